//! Checks the external address of a mapping, as the router reports it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use haul_storage::Result;

use super::refusal::refused;
use crate::ticket::Address;

/// The address of a mapping for a ticket.
///
/// # Errors
/// If it cannot be reached from the internet: the router has no such address, or is behind another router.
pub(super) fn external(ip: IpAddr, port: u16) -> Result<Address> {
    let ip = ip.to_canonical();
    let address = Address::new(SocketAddr::new(ip, port)).map_err(|error| {
        refused(format!("the router reports the address {ip}:{port}, but {error}"))
    })?;
    if address.is_private() {
        let cause = format!("the router's address {ip} is private: it is behind another router");
        return Err(refused(cause));
    }
    match ip {
        IpAddr::V4(v4) if is_unicast(v4) => Ok(address),
        _ => Err(refused(format!(
            "the router reports {ip}, which is no IPv4 address of the internet"
        ))),
    }
}

/// Whether an address is outside of 0.0.0.0/8, 127.0.0.0/8 and 240.0.0.0/4 (RFC 6890). `Address` excludes multicast.
fn is_unicast(ip: Ipv4Addr) -> bool {
    !ip.is_loopback() && (1..240).contains(&ip.octets()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_of_the_internet_goes_into_a_ticket() {
        let of = |text: &str| external(text.parse().unwrap(), 4180);
        assert_eq!(of("203.0.113.7").unwrap().to_string(), "203.0.113.7:4180");
        assert_eq!(of("::ffff:203.0.113.7").unwrap().to_string(), "203.0.113.7:4180");
        for (text, cause) in [
            ("100.64.0.7", "behind another router"),
            ("192.168.1.7", "behind another router"),
            ("10.0.0.7", "behind another router"),
            ("0.0.0.0", "unspecified"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("127.0.0.1", "no IPv4 address of the internet"),
            ("0.0.0.7", "no IPv4 address of the internet"),
            ("240.0.0.1", "no IPv4 address of the internet"),
            ("2001:db8::1", "no IPv4 address of the internet"),
        ] {
            let error = of(text).unwrap_err().cause();
            assert!(error.contains(cause), "{text}: {error}");
        }
        assert!(external("203.0.113.7".parse().unwrap(), 0).is_err());
    }
}
