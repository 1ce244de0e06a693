//! Addresses in a ticket: where the sharer may be reached, and its bridge.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// Why an address cannot be part of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Port 0.
    #[error("port 0 cannot be dialled")]
    Port,
    /// `0.0.0.0` or `::`.
    #[error("the unspecified address cannot be dialled")]
    Unspecified,
    /// A multicast or broadcast address.
    #[error("a multicast or broadcast address cannot be dialled")]
    Multicast,
    /// An IPv6 address of a single link.
    #[error("a link-local IPv6 address is valid on one interface only")]
    LinkLocal,
    /// Neither a host name nor an address.
    #[error("it is neither a host name nor an address")]
    Host,
    /// Not of the form `HOST:PORT`.
    #[error("it is not of the form HOST:PORT")]
    Form,
}

/// An address and port that can be dialled from another machine: neither unspecified nor multicast, broadcast or
/// IPv6 link-local, and its port is not 0. An IPv4-mapped IPv6 address becomes an IPv4 address; scope and flow label
/// are dropped. Loopback addresses are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address(SocketAddr);

impl Address {
    /// Checks an address.
    ///
    /// # Errors
    /// Why it cannot be dialled.
    pub fn new(address: SocketAddr) -> Result<Self, AddressError> {
        if address.port() == 0 {
            return Err(AddressError::Port);
        }
        Ok(Self(SocketAddr::new(dialable(address.ip())?, address.port())))
    }

    /// The address for a socket.
    pub const fn socket(self) -> SocketAddr {
        self.0
    }

    /// Whether it is private (RFC 1918, RFC 4193), shared by a provider's customers (RFC 6598), or link-local.
    pub fn is_private(self) -> bool {
        is_private(self.0.ip())
    }

    /// The form in a ticket: address, then port, both big-endian; 6 or 18 bytes.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = match self.0.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        bytes.extend(self.0.port().to_be_bytes());
        bytes
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::new(text.parse().map_err(|_| AddressError::Form)?)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The bridge at which the sharer waits: a host name in its ASCII form or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BridgeAddress {
    host: String,
    port: u16,
    /// The bridge's public key, if it is known: only a bridge with this key is accepted.
    pub key: Option<[u8; 32]>,
}

impl BridgeAddress {
    /// Longest host name in bytes (RFC 1035, section 2.3.4, without the final dot).
    const MAX_HOST: usize = 253;

    /// Checks a host name or address (IPv6 without brackets) and a port. A name has to be in its ASCII form
    /// ([`haul_storage::ascii_host`]); it becomes lower-case.
    ///
    /// # Errors
    /// Why it cannot be dialled.
    pub fn new(host: &str, port: u16) -> Result<Self, AddressError> {
        if port == 0 {
            return Err(AddressError::Port);
        }
        let host = match host.parse() {
            Ok(ip) => dialable(ip)?.to_string(),
            Err(_) => name(host).ok_or(AddressError::Host)?,
        };
        Ok(Self { host, port, key: None })
    }

    /// The same bridge, known by its public key.
    #[must_use]
    pub fn with_key(self, key: Option<[u8; 32]>) -> Self {
        Self { key, ..self }
    }

    /// The host name or address; an IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

/// Parses `HOST:PORT` or `[IPV6]:PORT`, without a key.
impl FromStr for BridgeAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = text.rsplit_once(':').ok_or(AddressError::Form)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if bare.is_some() != host.contains(':') {
            return Err(AddressError::Form);
        }
        let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        let port = port.and_then(|port| port.parse().ok()).ok_or(AddressError::Form)?;
        Self::new(bare.unwrap_or(host), port)
    }
}

/// `HOST:PORT`, with brackets around an IPv6 address, and without the key.
impl fmt::Display for BridgeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Whether an address is private, shared by a provider's customers, or link-local.
pub(crate) fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            // RFC 6598.
            let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
            ip.is_private() || ip.is_link_local() || is_shared
        }
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// The canonical form of an address that can be dialled.
fn dialable(ip: IpAddr) -> Result<IpAddr, AddressError> {
    let ip = ip.to_canonical();
    if ip.is_unspecified() {
        Err(AddressError::Unspecified)
    } else if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Err(AddressError::Multicast)
    } else if matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
        Err(AddressError::LinkLocal)
    } else {
        Ok(ip)
    }
}

/// A host name in lower case and without a final dot; `None` if it is not valid (RFC 1123, section 2.1, and `_`).
fn name(host: &str) -> Option<String> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_name = host.len() <= BridgeAddress::MAX_HOST && host.split('.').all(is_label);
    is_name.then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_be_dialled_are_refused() {
        for (text, error) in [
            ("192.0.2.1:0", AddressError::Port),
            ("0.0.0.0:1", AddressError::Unspecified),
            ("[::]:1", AddressError::Unspecified),
            ("[::ffff:0.0.0.0]:1", AddressError::Unspecified),
            ("224.0.0.251:1", AddressError::Multicast),
            ("255.255.255.255:1", AddressError::Multicast),
            ("[ff02::fb]:1", AddressError::Multicast),
            ("[::ffff:224.0.0.1]:1", AddressError::Multicast),
            ("[fe80::1]:1", AddressError::LinkLocal),
            ("host:1", AddressError::Form),
            ("192.0.2.1", AddressError::Form),
        ] {
            assert_eq!(text.parse::<Address>(), Err(error), "{text}");
        }
    }

    #[test]
    fn an_address_has_one_form() {
        let address: Address = "[::ffff:192.0.2.1]:80".parse().unwrap();
        assert_eq!(address.to_string(), "192.0.2.1:80");
        assert_eq!(address.to_bytes(), [192, 0, 2, 1, 0, 80]);
        assert_eq!("127.0.0.1:1".parse::<Address>().unwrap().socket().port(), 1);
    }

    #[test]
    fn private_addresses_are_recognized() {
        for (text, expected) in [
            ("10.0.0.1:1", true),
            ("172.31.0.1:1", true),
            ("192.168.0.1:1", true),
            ("169.254.0.1:1", true),
            ("100.64.0.1:1", true),
            ("100.127.255.255:1", true),
            ("[fd00::1]:1", true),
            ("[::ffff:10.0.0.1]:1", true),
            ("100.128.0.1:1", false),
            ("172.32.0.1:1", false),
            ("203.0.113.1:1", false),
            ("[2001:db8::1]:1", false),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().is_private(), expected, "{text}");
        }
    }

    #[test]
    fn a_bridge_has_a_name_or_an_address_and_a_port() {
        for (text, host, shown) in [
            ("Bridge.Example.:443", "bridge.example", "bridge.example:443"),
            ("192.0.2.1:443", "192.0.2.1", "192.0.2.1:443"),
            ("[2001:DB8::1]:443", "2001:db8::1", "[2001:db8::1]:443"),
            ("localhost:443", "localhost", "localhost:443"),
        ] {
            let bridge: BridgeAddress = text.parse().unwrap();
            assert_eq!((bridge.host(), bridge.port()), (host, 443));
            assert_eq!(bridge.to_string(), shown);
            assert_eq!(shown.parse(), Ok(bridge));
        }
        let long = format!("{}a:1", "a.".repeat(126));
        assert!(long.parse::<BridgeAddress>().is_ok());
        for text in [
            "",
            "host",
            ":1",
            "host:",
            "host:+1",
            "host:65536",
            "host:0",
            "2001:db8::1:443",
            "[host]:1",
            "a b:1",
            "-a:1",
            "a..b:1",
            "bücher.example:1",
            "[::]:1",
            "0.0.0.0:1",
            &format!("a.{long}"),
        ] {
            assert!(text.parse::<BridgeAddress>().is_err(), "{text}");
        }
    }
}
