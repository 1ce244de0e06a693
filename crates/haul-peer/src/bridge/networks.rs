//! The networks that this machine is in. Services in them may rely on a router, or on this machine's firewall, to keep
//! other clients out, even at public addresses.

use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sys::socket::SockaddrStorage;

/// The shortest prefix of an IPv6 network that a site gets, in bits (RFC 6177).
const SITE: u32 = 48;

/// Whether an address is one of this machine, of a network that it is in, or, with IPv6, of the same site. True for
/// every address if the system does not list this machine's addresses.
pub(super) fn is_own(ip: IpAddr) -> bool {
    let Ok(mut interfaces) = getifaddrs() else { return true };
    interfaces.any(|interface| Network::of(&interface).is_some_and(|network| network.has(ip)))
}

/// A network of this machine.
#[derive(Debug)]
struct Network {
    /// This machine's address in it.
    own: IpAddr,
    /// The netmask, if it is known.
    mask: Option<IpAddr>,
}

impl Network {
    fn of(interface: &InterfaceAddress) -> Option<Self> {
        let own = address(interface.address.as_ref()?)?;
        Some(Self { own, mask: interface.netmask.as_ref().and_then(address) })
    }

    fn has(&self, ip: IpAddr) -> bool {
        match (self.own, ip) {
            (IpAddr::V4(own), IpAddr::V4(ip)) => {
                let mask = match self.mask {
                    Some(IpAddr::V4(mask)) => mask.to_bits(),
                    _ => u32::MAX,
                };
                (own.to_bits() ^ ip.to_bits()) & mask == 0
            }
            // The other networks of the site may be behind the same router.
            (IpAddr::V6(own), IpAddr::V6(ip)) => {
                (own.to_bits() ^ ip.to_bits()) >> (u128::BITS - SITE) == 0
            }
            _ => false,
        }
    }
}

fn address(of: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = of.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| of.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_networks_end_at_their_mask_and_ipv6_networks_at_their_site() {
        let has = |own: &str, mask: Option<&str>, ip: &str| {
            let mask = mask.map(|mask| mask.parse().unwrap());
            Network { own: own.parse().unwrap(), mask }.has(ip.parse().unwrap())
        };
        let mask = Some("255.255.255.192");
        assert!(has("198.51.100.1", mask, "198.51.100.63"));
        assert!(!has("198.51.100.1", mask, "198.51.100.64"));
        assert!(has("198.51.100.1", None, "198.51.100.1"));
        assert!(!has("198.51.100.1", None, "198.51.100.2"));
        assert!(has("2001:db8::1", Some("ffff:ffff:ffff:ffff::"), "2001:db8:0:7::1"));
        assert!(!has("2001:db8::1", Some("ffff:ffff:ffff:ffff::"), "2001:db8:1::1"));
        assert!(!has("2001:db8::1", None, "198.51.100.1"));
    }

    #[test]
    fn this_machine_is_in_its_own_networks() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("2001:db8::1".parse().unwrap()));
    }
}
