//! The addresses at which this machine can be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use haul_peer::ticket::Address;
use nix::ifaddrs::getifaddrs;

/// The addresses for the ticket: those that the user has named, then those on which the server can be reached.
pub(super) fn reachable(named: &[Address], listening: &[SocketAddr]) -> Vec<Address> {
    let mut found = named.to_vec();
    let own = own_addresses();
    for address in listening {
        let hosts: Vec<IpAddr> = match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => {
                own.iter().copied().filter(IpAddr::is_ipv4).collect()
            }
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => {
                own.iter().copied().filter(IpAddr::is_ipv6).collect()
            }
            one => vec![one],
        };
        let port = address.port();
        found.extend(hosts.into_iter().filter_map(|host| Address::new((host, port).into()).ok()));
    }
    found
}

/// The addresses at which others reach a server; those of the loopback interface only if there are no others.
pub(super) fn for_others(listening: &[SocketAddr]) -> Vec<Address> {
    let mut addresses = reachable(&[], listening);
    let is_local = |address: &Address| address.socket().ip().is_loopback();
    if !addresses.iter().all(is_local) {
        addresses.retain(|address| !is_local(address));
    }
    addresses
}

/// Whether a server listens on all addresses and yet only this machine can reach it.
pub(super) fn is_only_local(addresses: &[Address], listening: &[SocketAddr]) -> bool {
    listening.iter().any(|address| address.ip().is_unspecified())
        && addresses.iter().all(|address| address.socket().ip().is_loopback())
}

/// The addresses of this machine, those of the loopback interface last: they serve for a peer on the same machine.
fn own_addresses() -> Vec<IpAddr> {
    // Without a list, only addresses that the user names are known.
    let interfaces = getifaddrs().into_iter().flatten();
    let mut found: Vec<IpAddr> = interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .collect();
    found.sort_by_key(IpAddr::is_loopback);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_addresses_are_listed_only_if_there_are_no_others() {
        let listening = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let shown = |texts: &[&str]| -> Vec<String> {
            for_others(&listening(texts)).iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown(&["127.0.0.1:7", "192.0.2.1:7"]), ["192.0.2.1:7"]);
        assert_eq!(shown(&["127.0.0.1:7"]), ["127.0.0.1:7"]);
    }

    #[test]
    fn a_server_without_a_network_is_reached_only_locally() {
        let addresses = |texts: &[&str]| -> Vec<Address> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let local = addresses(&["127.0.0.1:4180", "[::1]:4180"]);
        let anywhere: [SocketAddr; 2] =
            ["0.0.0.0:4180".parse().unwrap(), "[::]:4180".parse().unwrap()];
        assert!(is_only_local(&local, &anywhere));
        assert!(!is_only_local(&addresses(&["127.0.0.1:4180", "10.0.0.7:4180"]), &anywhere));
        // The user has chosen the loopback address.
        assert!(!is_only_local(&local, &["127.0.0.1:4180".parse().unwrap()]));
    }
}
