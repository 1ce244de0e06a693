//! Finds the router through which this machine reaches the internet by IPv4.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

use haul_storage::{Result, io_cause};

use super::limits;
use super::refusal::refused;

/// The kernel's table of IPv4 routes.
const TABLE: &str = "/proc/net/route";

/// Maximum bytes of the table that are read. The default route is at its beginning.
const MOST: u64 = 1 << 20;

/// "UP" and "GATEWAY" of a route's flags, and "REJECT".
const VIA_GATEWAY: u32 = 0x3;
const REJECT: u32 = 0x200;

/// The route to the internet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    /// The router.
    pub(super) gateway: Ipv4Addr,
    /// This machine's address towards it.
    pub(super) own: Ipv4Addr,
    /// How long to wait for the router's response to an SSDP search, each time that it is sent.
    pub(super) search: Duration,
}

impl Route {
    /// The current route. Sends nothing.
    ///
    /// # Errors
    /// If there is none, or the system does not report it.
    pub(super) fn current() -> Result<Self> {
        let table = File::open(TABLE)
            .map_err(|error| refused(format!("the router is unknown ({})", io_cause(&error))))?;
        let lines = BufReader::new(table.take(MOST)).lines().map_while(io::Result::ok);
        let gateway = default_gateway(lines)
            .ok_or_else(|| refused("this machine has no way to an IPv4 router"))?;
        let own = own_address(gateway).map_err(|error| refused(io_cause(&error)))?;
        Ok(Self { gateway, own, search: limits::SEARCH })
    }
}

/// The router of the default route with the lowest metric.
fn default_gateway(lines: impl Iterator<Item = String>) -> Option<Ipv4Addr> {
    let routes = lines.filter_map(|line| default_route(&line));
    routes.min_by_key(|(metric, _)| *metric).map(|(_, gateway)| gateway)
}

/// Metric and router of a line, if it is a default route.
fn default_route(line: &str) -> Option<(u32, Ipv4Addr)> {
    let mut fields = line.split_whitespace().skip(1);
    let mut hexadecimal = || u32::from_str_radix(fields.next()?, 16).ok();
    let (destination, gateway, flags) = (hexadecimal()?, hexadecimal()?, hexadecimal()?);
    let metric = fields.nth(2)?.parse().ok()?;
    let mask = u32::from_str_radix(fields.next()?, 16).ok()?;
    let is_default = destination == 0 && mask == 0;
    let is_usable = flags & (VIA_GATEWAY | REJECT) == VIA_GATEWAY;
    // The kernel prints the address, which is big-endian in memory, as a number in native byte order.
    (is_default && is_usable).then(|| (metric, Ipv4Addr::from(gateway.to_ne_bytes())))
}

/// This machine's address towards another one. Nothing is sent.
fn own_address(gateway: Ipv4Addr) -> io::Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect((gateway, crab_nat::GATEWAY_PORT))?;
    match socket.local_addr()?.ip() {
        IpAddr::V4(own) => Ok(own),
        IpAddr::V6(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT";

    fn gateway(routes: &[&str]) -> Option<Ipv4Addr> {
        let lines = [HEADER].iter().chain(routes).map(|line| (*line).to_owned());
        default_gateway(lines)
    }

    /// An address as the kernel prints it.
    fn hexadecimal(octets: [u8; 4]) -> String {
        format!("{:08X}", u32::from_ne_bytes(octets))
    }

    fn route(gateway: [u8; 4], flags: &str, metric: u32) -> String {
        let gateway = hexadecimal(gateway);
        format!("eth0\t00000000\t{gateway}\t{flags}\t0\t0\t{metric}\t00000000\t0\t0\t0   ")
    }

    #[test]
    fn the_router_is_that_of_the_default_route_with_the_lowest_metric() {
        let (far, near) = (route([10, 0, 0, 1], "0003", 600), route([192, 168, 1, 1], "0003", 100));
        assert_eq!(gateway(&[&far, &near]), Some(Ipv4Addr::new(192, 168, 1, 1)));
        assert_eq!(gateway(&[&near, &far]), Some(Ipv4Addr::new(192, 168, 1, 1)));
        assert_eq!(gateway(&[&far]), Some(Ipv4Addr::new(10, 0, 0, 1)));
    }

    #[test]
    fn routes_to_networks_and_those_without_a_usable_router_are_ignored() {
        let network = hexadecimal([10, 0, 2, 0]);
        let mask = hexadecimal([255, 255, 255, 0]);
        let near = format!("eth0\t{network}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0");
        let half = "tun0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000080\t0\t0\t0";
        let device = route([0, 0, 0, 0], "0001", 0);
        let rejected = route([10, 0, 0, 1], "0203", 0);
        let down = route([10, 0, 0, 1], "0002", 0);
        assert_eq!(gateway(&[&near, half, &device, &rejected, &down, "", "eth0", "\u{fc}"]), None);
    }

    #[test]
    fn the_own_address_is_that_towards_the_router() {
        let own = own_address(Ipv4Addr::new(127, 0, 0, 9)).unwrap();
        assert!(own.is_loopback(), "{own}");
    }
}
