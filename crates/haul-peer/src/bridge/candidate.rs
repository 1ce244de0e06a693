//! Decides which of the addresses named by the other side or by the bridge a peer dials. A peer elsewhere cannot make
//! this machine connect to services of its own or of its networks. The bridge is believed where it sees both sides: one
//! that lies about that can, except to loopback addresses.

use std::net::{IpAddr, SocketAddr};

use crate::ticket::{Address, is_private};

/// The lowest port to dial: haul listens on ports that the system chooses, and routers map to such ports.
const LOWEST_PORT: u16 = 1024;

/// Which addresses may be dialled, by where the bridge and the two sides are.
#[derive(Debug, Clone, Copy)]
pub(super) struct DialPolicy {
    /// The bridge's address, as this side has reached it.
    pub(super) bridge: IpAddr,
    /// The addresses at which the bridge sees this side and the other one, if it has reported them.
    pub(super) observed: (Option<IpAddr>, Option<IpAddr>),
}

impl DialPolicy {
    /// Whether to dial an address, at a port of at least [`LOWEST_PORT`]:
    ///
    /// - a loopback address only if the bridge is at one, too
    /// - a private address only if both sides may be in one private network: the bridge sees both at one address, or is
    ///   at a private or loopback address itself
    /// - a public address of this machine's networks likewise, or if the bridge sees the other side at it
    /// - any other public address
    pub(super) fn permits(&self, candidate: SocketAddr) -> bool {
        self.permits_among(candidate, super::networks::is_own)
    }

    fn permits_among(&self, candidate: SocketAddr, is_own: impl Fn(IpAddr) -> bool) -> bool {
        let Ok(address) = Address::new(candidate) else { return false };
        let ip = address.socket().ip();
        let bridge = self.bridge.to_canonical();
        let (own, other) = self.observed;
        let [own, other] = [own, other].map(|seen| seen.map(|seen| seen.to_canonical()));
        let is_near = own.is_some() && own == other;
        if candidate.port() < LOWEST_PORT {
            return false;
        }
        if ip.is_loopback() {
            return bridge.is_loopback();
        }
        let is_other_side = other == Some(ip);
        let is_outside = !is_private(ip) && (is_other_side || !is_own(ip));
        is_outside || is_near || is_private(bridge) || bridge.is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `own` are the addresses of this machine's networks.
    fn permits_beside(own: &[&str], bridge: &str, seen: [&str; 2], candidate: &str) -> bool {
        let seen = seen.map(|text| text.parse().ok());
        let policy = DialPolicy { bridge: bridge.parse().unwrap(), observed: (seen[0], seen[1]) };
        let is_own = |ip: IpAddr| own.contains(&ip.to_string().as_str());
        policy.permits_among(candidate.parse().unwrap(), is_own)
    }

    fn permits(bridge: &str, seen: [&str; 2], candidate: &str) -> bool {
        permits_beside(&[], bridge, seen, candidate)
    }

    /// A router or a firewall may protect such addresses. Formerly, only private ones were excluded.
    #[test]
    fn public_addresses_of_own_networks_are_not_dialled_for_a_client_elsewhere() {
        let own = ["198.51.100.1", "198.51.100.9", "2001:db8::9"];
        let seen = ["198.51.100.1", "203.0.113.1"];
        for candidate in ["198.51.100.1:6379", "198.51.100.9:8080", "[2001:db8::9]:8080"] {
            assert!(!permits_beside(&own, "192.0.2.1", seen, candidate), "{candidate}");
            assert!(permits_beside(&own, "10.1.2.3", seen, candidate), "{candidate}");
        }
        assert!(permits_beside(&own, "192.0.2.1", seen, "203.0.113.1:40000"));
        // The bridge sees that the client is in the same network.
        let beside = ["198.51.100.1", "198.51.100.9"];
        assert!(permits_beside(&own, "192.0.2.1", beside, "198.51.100.9:40000"));
        assert!(!permits_beside(&own, "192.0.2.1", beside, "198.51.100.1:6379"));
    }

    #[test]
    fn private_addresses_are_not_dialled_for_a_client_elsewhere() {
        const APART: [&str; 2] = ["198.51.100.1", "203.0.113.1"];
        const TOGETHER: [&str; 2] = ["198.51.100.1", "198.51.100.1"];
        const MAPPED: [&str; 2] = ["::ffff:198.51.100.1", "198.51.100.1"];
        let public = "192.0.2.1";
        for candidate in ["203.0.113.1:40000", "[2001:db8::1]:1024"] {
            assert!(permits(public, APART, candidate), "{candidate}");
        }
        for candidate in ["10.0.0.1:40000", "192.168.1.1:4000", "100.64.0.1:5000", "[fd00::1]:5000"]
        {
            assert!(!permits(public, APART, candidate), "{candidate}");
            assert!(!permits(public, ["", ""], candidate), "{candidate}");
            assert!(permits(public, TOGETHER, candidate), "{candidate}");
            assert!(permits(public, MAPPED, candidate), "{candidate}");
            assert!(permits("10.1.2.3", APART, candidate), "{candidate}");
        }
        for candidate in ["127.0.0.1:40000", "[::1]:40000", "[::ffff:127.0.0.1]:40000"] {
            assert!(!permits(public, TOGETHER, candidate), "{candidate}");
            assert!(permits("127.0.0.1", APART, candidate), "{candidate}");
        }
        for candidate in ["203.0.113.1:80", "0.0.0.0:40000", "224.0.0.1:40000", "[fe80::1]:40000"] {
            assert!(!permits("127.0.0.1", TOGETHER, candidate), "{candidate}");
        }
    }
}
