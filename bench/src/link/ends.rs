//! Devices and addresses of one link.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::error::LinkError;
use super::namespace::Namespace;

/// On link N the client has 10.99.N.1 and fd99:N::1, the server 10.99.N.2 and fd99:N::2 (N hexadecimal in IPv6).
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) index: u8,
    pub(super) client_device: String,
    pub(super) server_device: String,
}

impl Ends {
    pub(super) fn new(index: usize) -> Result<Self, LinkError> {
        let index = u8::try_from(index)
            .map_err(|_| LinkError::new("making a network", &"at most 256 servers are possible"))?;
        Ok(Self { index, client_device: format!("link{index}"), server_device: "link0".to_owned() })
    }

    pub(super) fn address(&self, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 99, self.index, host)
    }

    pub(super) fn address6(&self, host: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfd99, u16::from(self.index), 0, 0, 0, 0, 0, host)
    }

    pub(super) fn configure(
        &self,
        client: &Namespace,
        server: &Namespace,
    ) -> Result<(), LinkError> {
        let sides = [(client, &self.client_device, 1), (server, &self.server_device, 2)];
        for (namespace, device, host) in sides {
            let address = format!("{}/24", self.address(host));
            let address6 = format!("{}/64", self.address6(u16::from(host)));
            namespace.ip(&["address", "add", &address, "dev", device])?;
            namespace.ip(&["-6", "address", "add", &address6, "dev", device, "nodad"])?;
            namespace.ip(&["link", "set", device, "up", "mtu", "1500", "txqueuelen", "10000"])?;
        }
        Ok(())
    }
}
