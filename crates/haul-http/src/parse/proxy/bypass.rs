//! `no_proxy`: the hosts that are reached without a proxy.

use std::net::IpAddr;

use haul_storage::ascii_host;

/// Whether the list names `host` (without brackets) at `port`. Its entries, separated by commas or white
/// space:
///
/// | entry | names |
/// |---|---|
/// | `*` | everything |
/// | `example.org`, `.example.org` | that host and every one below it, in any alphabet |
/// | `192.0.2.1`, `2001:db8::1`, `[2001:db8::1]` | that address |
/// | `192.0.2.0/24`, `2001:db8::/32` | the addresses in that network |
/// | `host:8080`, `[2001:db8::1]:8080` | the same, at that port only |
///
/// Names are not resolved, so a network in the list does not match a name whose address is in that network.
/// An entry with an invalid port names nothing.
pub fn bypasses(list: &str, host: &str, port: u16) -> bool {
    // The zone of an address does not matter.
    let bare = host.split('%').next().unwrap_or_default();
    let address = bare.parse::<IpAddr>().ok();
    let entries = list.split([',', ' ', '\t', '\n']).filter(|entry| !entry.is_empty());
    entries.into_iter().any(|entry| {
        if entry == "*" {
            return true;
        }
        let (name, only_port) = split_port(entry);
        if only_port.is_some_and(|only| only != port) {
            return false;
        }
        match address {
            Some(address) => has_address(name, address),
            None => has_name(name, host),
        }
    })
}

fn has_name(entry: &str, host: &str) -> bool {
    let Some(entry) = ascii_host(entry.trim_matches('.')) else { return false };
    let entry = entry.to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let above = host.strip_suffix(&entry[..]);
    !entry.is_empty() && above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
}

fn has_address(entry: &str, address: IpAddr) -> bool {
    let Some((network, length)) = entry.split_once('/') else {
        return entry.parse() == Ok(address);
    };
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) if length <= 32 => {
            let differ = u32::from(network) ^ u32::from(address);
            differ.checked_shr(32 - length).unwrap_or(0) == 0
        }
        (IpAddr::V6(network), IpAddr::V6(address)) if length <= 128 => {
            let differ = u128::from(network) ^ u128::from(address);
            differ.checked_shr(128 - length).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// The entry without brackets, and its port. With an invalid port it is the whole entry, which is neither
/// a name nor an address.
fn split_port(entry: &str) -> (&str, Option<u16>) {
    let valid = |name, port: &str| match port.parse::<u16>() {
        Ok(port) => (name, Some(port)),
        Err(_) => (entry, None),
    };
    if let Some((address, rest)) = entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return match rest.strip_prefix(':') {
            Some(port) => valid(address, port),
            None if rest.is_empty() => (address, None),
            None => (entry, None),
        };
    }
    match entry.split_once(':') {
        Some((name, port)) if !port.contains(':') => valid(name, port),
        // Several colons: an IPv6 address without a port.
        _ => (entry, None),
    }
}
