//! Announces and browses services of multicast DNS, with the crate `mdns-sd`.
//!
//! Interfaces without multicast, the loopback interface and point-to-point links are left out.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result};
use mdns_sd::{
    IfKind, Metrics, Receiver, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo,
    TxtProperties,
};
use tokio::time::timeout;

use super::tag::random;
use crate::ticket::Address;

/// The type of shares.
pub(super) const SHARES: &str = "_haul._tcp.local.";
/// The type of bridges.
pub(super) const BRIDGES: &str = "_haul-bridge._tcp.local.";

/// The property with the version of the record, and the only version so far.
const VERSION: (&str, &str) = ("v", "1");

/// Maximum addresses of a service that are used.
const MOST_ADDRESSES: usize = 8;

/// Above this number of records and timers, the thread is flooded: a network with thousands of machines has fewer.
const MOST_REMEMBERED: i64 = 20_000;

/// How long the thread may take to report that number.
const COUNTED: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 5 });

/// How long to wait at the end until announcements are withdrawn.
const GOODBYE: Duration = Duration::from_millis(500);

/// The thread that speaks multicast DNS. When this is dropped, it withdraws its announcements and ends.
pub(super) struct Daemon(ServiceDaemon);

impl Daemon {
    /// Starts it.
    ///
    /// # Errors
    /// If the system has no more threads or files. If it cannot send, it finds nothing, without an error.
    pub(super) fn start() -> Result<Self> {
        let daemon = Self(ServiceDaemon::new().map_err(failed)?);
        let loopback = vec![IfKind::LoopbackV4, IfKind::LoopbackV6];
        daemon.0.disable_interface(loopback).map_err(failed)?;
        Ok(daemon)
    }

    /// Announces a service with a property under random names, at each of these ports. Returns the names.
    ///
    /// # Errors
    /// If the system has no random numbers, or the thread has ended.
    pub(super) fn announce(
        &self,
        kind: &str,
        ports: &BTreeMap<u16, Hosts>,
        property: (&str, &str),
    ) -> Result<Vec<String>> {
        let announce = |(port, hosts): (&u16, &Hosts)| {
            let (instance, host) = (name()?, format!("{}.local.", name()?));
            let properties = [VERSION, property];
            let named = if hosts.interfaces.is_empty() { &hosts.named[..] } else { &[] };
            let service = ServiceInfo::new(kind, &instance, &host, named, *port, &properties[..]);
            let mut service = service.map_err(failed)?;
            // Random names have no conflicts.
            service.set_requires_probe(false);
            if !hosts.interfaces.is_empty() {
                service = service.enable_addr_auto();
                service.set_interfaces(hosts.announced());
            }
            let name = service.get_fullname().to_owned();
            self.0.register(service).map_err(failed)?;
            Ok(name)
        };
        ports.iter().map(announce).collect()
    }

    /// Withdraws a service.
    pub(super) fn withdraw(&self, name: &str) {
        // If the thread has ended, there is nothing to withdraw.
        drop(self.0.unregister(name));
    }

    /// Whether the thread remembers more than a network can have, or does not respond. The crate has no limit, and
    /// remembers unsolicited responses with any lifetime, so any machine on the network could fill the memory.
    pub(super) async fn is_flooded(&self) -> bool {
        let Ok(counting) = self.0.get_metrics() else { return true };
        match timeout(COUNTED, counting.recv_async()).await {
            Ok(Ok(metrics)) => remembered(&metrics) > MOST_REMEMBERED,
            _ => true,
        }
    }

    /// Withdraws everything, and ends the thread.
    pub(super) async fn stop(&self) {
        if let Ok(stopped) = self.0.shutdown() {
            // Machines that miss it forget the services when their TTL ends.
            drop(timeout(GOODBYE, stopped.recv_async()).await);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Fails if it was stopped before.
        drop(self.0.shutdown());
    }
}

/// How many records and timers the thread remembers.
fn remembered(metrics: &Metrics) -> i64 {
    let is_counted = |name: &str| name.starts_with("cached-") || name == "timer";
    metrics.iter().filter(|(name, _)| is_counted(name)).map(|(_, count)| *count).sum()
}

/// The addresses at which a port can be reached from other machines.
#[derive(Debug, Default, Clone)]
pub(super) struct Hosts {
    /// All addresses of these kinds of interfaces, also those added later.
    interfaces: Vec<IfKind>,
    /// These addresses.
    named: Vec<IpAddr>,
}

impl Hosts {
    /// What the thread announces if it selects the addresses: those of `interfaces`, and those of `named` that this
    /// machine has.
    fn announced(&self) -> Vec<IfKind> {
        let named = self.named.iter().map(|&ip| IfKind::Addr(ip));
        self.interfaces.iter().cloned().chain(named).collect()
    }
}

/// The ports of a server with these listening addresses; none if only this machine can reach it.
pub(super) fn ports(listening: &[SocketAddr]) -> BTreeMap<u16, Hosts> {
    let mut ports = BTreeMap::<u16, Hosts>::new();
    for address in listening.iter().filter(|address| !address.ip().is_loopback()) {
        let hosts = ports.entry(address.port()).or_default();
        match address.ip() {
            ip if !ip.is_unspecified() => hosts.named.push(ip),
            IpAddr::V4(_) => hosts.interfaces.push(IfKind::IPv4),
            IpAddr::V6(_) => hosts.interfaces.push(IfKind::IPv6),
        }
    }
    ports
}

/// The services of a type, as they are found.
pub(super) struct Browser {
    events: Receiver<ServiceEvent>,
    _daemon: Daemon,
}

impl Browser {
    /// Queries the services of a type, and again after one second, two, and so on.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub(super) fn start(kind: &str) -> Result<Self> {
        let daemon = Daemon::start()?;
        let events = daemon.0.browse(kind).map_err(failed)?;
        Ok(Self { events, _daemon: daemon })
    }

    /// The next service of a known version; `None` if no more can come. A service may be returned several times.
    pub(super) async fn next(&self) -> Option<Service> {
        loop {
            if let ServiceEvent::ServiceResolved(found) = self.events.recv_async().await.ok()?
                && let Some(service) = Service::of(&found)
            {
                return Some(service);
            }
        }
    }
}

/// A service as another machine has announced it. Nothing in it is verified.
pub(super) struct Service {
    /// IPv4 addresses first.
    pub(super) addresses: Vec<Address>,
    properties: TxtProperties,
}

impl Service {
    fn of(found: &ResolvedService) -> Option<Self> {
        let (version, known) = VERSION;
        let ips = found.get_addresses().iter().map(|ip| ip.to_ip_addr());
        let addresses = usable(ips, found.get_port());
        let properties = found.get_properties().clone();
        let service = Self { addresses, properties };
        (service.property(version) == Some(known)).then_some(service)
    }

    /// The text of a property.
    pub(super) fn property(&self, name: &str) -> Option<&str> {
        self.properties.get_property_val_str(name)
    }
}

/// The addresses to dial, at most [`MOST_ADDRESSES`]: those that an [`Address`] can be, except loopback ones.
fn usable(ips: impl Iterator<Item = IpAddr>, port: u16) -> Vec<Address> {
    let addresses = ips.filter_map(|ip| Address::new(SocketAddr::new(ip, port)).ok());
    let mut addresses: Vec<_> =
        addresses.filter(|address| !address.socket().ip().is_loopback()).collect();
    addresses.sort_by_key(|address| (address.socket().is_ipv6(), address.socket().ip()));
    addresses.truncate(MOST_ADDRESSES);
    addresses
}

/// A random name, which reveals nothing.
fn name() -> Result<String> {
    Ok(random::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn failed(error: mdns_sd::Error) -> Error {
    Error::new(ErrorKind::Other, "use multicast DNS").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_server_on_the_loopback_interface_is_not_announced() {
        assert!(ports(&addresses(&["127.0.0.1:4180", "[::1]:4180"])).is_empty());
    }

    #[test]
    fn a_server_is_announced_at_its_ports_with_the_addresses_on_which_it_listens() {
        let found = ports(&addresses(&["0.0.0.0:7", "[::]:7", "192.0.2.1:8", "127.0.0.1:9"]));
        assert_eq!(found.keys().collect::<Vec<_>>(), [&7, &8]);
        assert!(matches!(found[&7].interfaces[..], [IfKind::IPv4, IfKind::IPv6]));
        assert!(found[&8].interfaces.is_empty());
        assert_eq!(found[&8].named, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        let only_v4 = ports(&addresses(&["0.0.0.0:7"]));
        assert!(matches!(only_v4[&7].interfaces[..], [IfKind::IPv4]));
    }

    /// Formerly, one address of the other IP version was left out.
    #[test]
    fn one_address_is_announced_beside_all_of_the_other_ip_version() {
        let found = ports(&addresses(&["0.0.0.0:7", "[2001:db8::1]:7"]));
        let announced = found[&7].announced();
        let [IfKind::IPv4, IfKind::Addr(ip)] = announced[..] else { panic!("{announced:?}") };
        assert_eq!(ip, "2001:db8::1".parse::<IpAddr>().unwrap());
    }

    /// Everyone on the network can announce any addresses.
    #[test]
    fn few_addresses_of_other_machines_are_used() {
        let ips = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let announced = ips(&[
            "2001:db8::1",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "224.0.0.251",
            "fe80::1",
            "ff02::fb",
            "255.255.255.255",
            "192.0.2.7",
        ]);
        let used = usable(announced.into_iter(), 7);
        let used: Vec<_> = used.iter().map(ToString::to_string).collect();
        assert_eq!(used, ["192.0.2.7:7", "[2001:db8::1]:7"]);
        assert!(usable(ips(&["192.0.2.7"]).into_iter(), 0).is_empty());
        let many = (1..=100).map(|last| IpAddr::from([192, 0, 2, last]));
        assert_eq!(usable(many, 7).len(), MOST_ADDRESSES);
    }

    /// The names of the metrics are the crate's.
    #[test]
    fn cached_records_and_timers_are_counted() {
        let counts = [("cached-addr", 1), ("cached-txt", 20), ("timer", 300), ("respond", 4000)];
        let metrics = counts.map(|(name, count)| (name.to_owned(), count));
        assert_eq!(remembered(&metrics.into_iter().collect()), 321);
    }

    #[tokio::test]
    async fn a_new_daemon_is_not_flooded_and_one_that_has_ended_is() {
        let daemon = Daemon::start().unwrap();
        assert!(!daemon.is_flooded().await);
        daemon.stop().await;
        assert!(daemon.is_flooded().await);
    }

    #[test]
    fn names_are_random() {
        assert_ne!(name().unwrap(), name().unwrap());
        assert_eq!(name().unwrap().len(), 16);
    }
}
