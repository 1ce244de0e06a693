//! Paths between peers: directly, past routers with NAT, through a bridge, and paths that change in mid-transfer. Most
//! tests copy a file, and determine the path of most of its bytes from the bridge's metrics.

pub(crate) mod lab;
mod mapped;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use haul_peer::server::Route;
use serde_json::Value;

use self::lab::{BRIDGE, Host, Nat, Public};
use crate::content::content;
use crate::serve::Serving;
use crate::session::{Ran, Session};

/// The expected path in each topology, for a download and an upload.
const SAME_NETWORK: Route = Route::Direct;
const IPV6_BLACK_HOLE: Route = Route::Direct;
const HIDDEN_SHARER: Route = Route::Bridge;
const RECEIVER_BEHIND_NAT: Route = Route::Direct;
const SHARER_BEHIND_NAT: Route = Route::Direct;
const FULL_CONE: Route = Route::Direct;
const PORT_RESTRICTED: Route = Route::Direct;
const SYMMETRIC: Route = Route::Bridge;
const ONE_SYMMETRIC: Route = Route::Bridge;

/// Length of the file in bytes.
const SIZE: u64 = 16 << 20;

/// The file takes two seconds: a better path has time to be found.
const RATE: &str = "--bwlimit 8M";

/// The file takes eight seconds: the path can change meanwhile.
const SLOW: &str = "--bwlimit 2M";

/// How often a file is copied until the path is the expected one: on a busy machine, a better path may be found too
/// late.
const ATTEMPTS: usize = 5;

/// Bytes that have moved when a path changes.
const CHANGE: u64 = 4 << 20;

/// The ports of the bridge: for peers, and for its metrics.
const PORT: u16 = 4181;
const METRICS: u16 = 9181;

/// A public network with a bridge, and the files of all its hosts.
struct World {
    _bridge: Serving,
    /// The argument of `haul share --bridge`.
    bridge: String,
    public: Public,
    session: Session,
}

/// A share, and its ticket.
struct Sharing {
    _serving: Serving,
    ticket: String,
    addresses: Vec<String>,
}

impl World {
    /// `None` where namespaces or NAT are not available.
    fn new() -> Option<Self> {
        let public = Public::new()?;
        let session = Session::new().file("data/big", content(1, SIZE as usize));
        let listen = format!("--listen {BRIDGE}:{PORT} --metrics 127.0.0.1:{METRICS}");
        let line = format!("bridge --open --json {listen}");
        let (bridge, object) = Serving::parsed(public.command(&session, &line));
        let named = object["bridges"][0].as_str().unwrap().to_owned();
        Some(Self { _bridge: bridge, bridge: named, public, session })
    }

    /// Shares the file from a host.
    fn share(&self, host: &Host, options: &str) -> Sharing {
        let line = format!("share --writable --json {options} data");
        let (serving, object) = Serving::parsed(host.command(&self.session, &line));
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let addresses = object["addresses"].as_array().unwrap().iter().map(text).collect();
        Sharing { _serving: serving, ticket: text(&object["ticket"]), addresses }
    }

    /// Shares the file from a host that is registered at the bridge.
    fn share_bridged(&self, host: &Host, options: &str) -> Sharing {
        self.share(host, &format!("--bridge {} {options}", self.bridge))
    }

    /// Bytes that the bridge has forwarded so far.
    fn bridged(&self) -> u64 {
        self.public.within(|| {
            let mut stream = TcpStream::connect(("127.0.0.1", METRICS)).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            let bytes = |line: &str| line.strip_prefix("haul_bridge_bytes_total ")?.parse().ok();
            text.lines().find_map(bytes).unwrap()
        })
    }

    /// The path of most of `bytes` bytes. `before` is what [`World::bridged`] returned before they were moved.
    fn route(&self, before: u64, bytes: u64) -> Route {
        let bridged = self.bridged() - before;
        eprintln!("{bytes} bytes, of which the bridge has forwarded {bridged}");
        if bridged > bytes / 2 { Route::Bridge } else { Route::Direct }
    }

    /// Downloads the file to a host, and uploads it again. Asserts the route of each, and, if given, that of the first
    /// connection of the download, as `-v` prints it.
    #[track_caller]
    fn both_ways(&self, host: &Host, ticket: &str, expected: Route, first: Option<Route>) {
        let copy = |from: &str, to: &str, made: &str, first: Option<Route>| {
            let mut seen = Vec::new();
            for _ in 0..ATTEMPTS {
                let before = self.bridged();
                let line = format!("cp -v {RATE} {from} {to}");
                let ran = host.haul(&self.session, &line).status(0);
                self.same(made);
                let found = (self.route(before, SIZE), reached(&ran));
                if found.0 == expected && first.is_none_or(|first| first == found.1) {
                    return;
                }
                // A worse path may be a matter of time, a better one is not.
                let is_better = found.0 == Route::Direct && expected == Route::Bridge;
                assert!(!is_better, "{from} to {to} is expected {expected:?}: {found:?}");
                seen.push(found);
                std::fs::remove_file(self.session.path(made)).unwrap();
            }
            panic!("{from} to {to} is expected {expected:?}, first {first:?}: {seen:?}");
        };
        copy(&format!("{ticket}/big"), "got", "got", first);
        copy("got", &format!("{ticket}/again"), "data/again", None);
    }

    /// Asserts that a file has the content of the shared one.
    #[track_caller]
    fn same(&self, path: &str) {
        let read = |path: &str| std::fs::read(self.session.path(path)).unwrap();
        assert!(read(path) == read("data/big"), "{path} has other bytes");
    }

    /// Starts to download the file to a host.
    fn start(&self, host: &Host, ticket: &str) -> Copying {
        let line = format!("cp --json {SLOW} {ticket}/big got");
        let mut command = host.command(&self.session, &line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Copying { child, output }
    }
}

/// The route of the first connection, as `-v` prints it: `203.0.113.2:4180: connected in 1 ms`.
#[track_caller]
fn reached(ran: &Ran) -> Route {
    let text = ran.err();
    let Some(line) = text.lines().find(|line| line.contains(": connected")) else {
        panic!("{text}")
    };
    eprintln!("{line}");
    if line.contains(&format!("bridge {BRIDGE}:")) { Route::Bridge } else { Route::Direct }
}

/// A running download, killed when dropped.
struct Copying {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Copying {
    /// Its next event; `None` at its end.
    fn event(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        if line.is_empty() {
            return None;
        }
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["event"] != "progress" {
            eprintln!("{}", line.trim_end());
        }
        Some(event)
    }

    /// Waits until this many bytes have moved.
    #[track_caller]
    fn until_moved(&mut self, bytes: u64) {
        while let Some(event) = self.event() {
            if event["event"] == "progress" && event["moved_bytes"].as_u64() >= Some(bytes) {
                return;
            }
        }
        panic!("it ended before {bytes} bytes had moved");
    }

    /// Waits for its end.
    #[track_caller]
    fn finish(mut self) {
        while self.event().is_some() {}
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn hosts_of_the_same_network_exchange_files() {
    let Some(world) = World::new() else { return };
    let (sharer, receiver) = (world.public.host(2), world.public.host(3));
    let sharing = world.share_bridged(&sharer, "");
    world.both_ways(&receiver, &sharing.ticket, SAME_NETWORK, Some(SAME_NETWORK));
}

/// A connection attempt to such an address ends only after minutes. Formerly, haul took 6 s to connect.
#[test]
fn an_ipv6_black_hole_does_not_delay_the_connection() {
    let Some(world) = World::new() else { return };
    let (sharer, receiver) = (world.public.host(2), world.public.host(3));
    sharer.add_address("fd00:113::2/64");
    receiver.add_address("fd00:113::3/64");
    sharer.drop_incoming("meta nfproto ipv6 meta l4proto tcp");
    for bridged in [false, true] {
        let sharing = match bridged {
            true => world.share_bridged(&sharer, ""),
            false => world.share(&sharer, ""),
        };
        let hole = sharing.addresses.iter().find(|one| one.starts_with("[fd00:113::2]")).unwrap();
        let hole: SocketAddr = hole.parse().unwrap();
        let soon = Duration::from_millis(300);
        let error = receiver.within(|| TcpStream::connect_timeout(&hole, soon).unwrap_err());
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
        world.both_ways(&receiver, &sharing.ticket, IPV6_BLACK_HOLE, Some(IPV6_BLACK_HOLE));
        let line = format!("cp --json --overwrite always {}/big got", sharing.ticket);
        let connect_ms = || {
            let summary = receiver.haul(&world.session, &line).status(0).summary();
            summary["connect_ms"].as_f64().unwrap()
        };
        // A SYN is retransmitted after a second. The machine may stall for a moment.
        assert!((0..10).any(|_| connect_ms() < 900.0), "the black hole delays every copy");
        std::fs::remove_file(world.session.path("data/again")).unwrap();
        std::fs::remove_file(world.session.path("got")).unwrap();
    }
}

#[test]
fn a_share_that_hides_its_addresses_is_reached() {
    let Some(world) = World::new() else { return };
    let (sharer, receiver) = (world.public.host(2), world.public.host(3));
    let sharing = world.share_bridged(&sharer, "--bridge-only");
    assert!(sharing.addresses.is_empty(), "{:?}", sharing.addresses);
    world.both_ways(&receiver, &sharing.ticket, HIDDEN_SHARER, Some(Route::Bridge));
}

/// Copies both ways between two hosts, each behind a router with the given NAT, if any.
fn between(nats: [Option<Nat>; 2], expected: Route) {
    let Some(world) = World::new() else { return };
    let host = |nat: Option<Nat>, number| match nat {
        Some(nat) => world.public.host_behind(nat, number),
        None => world.public.host(number),
    };
    let (sharer, receiver) = (host(nats[0], 2), host(nats[1], 3));
    let sharing = world.share_bridged(&sharer, "");
    eprintln!("{nats:?}:");
    world.both_ways(&receiver, &sharing.ticket, expected, None);
}

#[test]
fn a_receiver_behind_a_router_reaches_a_public_sharer() {
    for nat in [Nat::FullCone, Nat::PortRestricted, Nat::Symmetric] {
        between([None, Some(nat)], RECEIVER_BEHIND_NAT);
    }
}

#[test]
fn a_public_receiver_reaches_a_sharer_behind_a_router() {
    for nat in [Nat::FullCone, Nat::PortRestricted, Nat::Symmetric] {
        between([Some(nat), None], SHARER_BEHIND_NAT);
    }
}

#[test]
fn peers_behind_full_cone_nats_reach_each_other() {
    between([Some(Nat::FullCone); 2], FULL_CONE);
}

#[test]
fn peers_behind_port_restricted_nats_reach_each_other() {
    between([Some(Nat::PortRestricted); 2], PORT_RESTRICTED);
}

#[test]
fn peers_behind_symmetric_nats_reach_each_other() {
    between([Some(Nat::Symmetric); 2], SYMMETRIC);
}

#[test]
fn peers_of_which_one_is_behind_a_symmetric_nat_reach_each_other() {
    between([Some(Nat::PortRestricted), Some(Nat::Symmetric)], ONE_SYMMETRIC);
    between([Some(Nat::Symmetric), Some(Nat::PortRestricted)], ONE_SYMMETRIC);
}

#[test]
fn a_transfer_continues_at_another_address_of_the_sharer() {
    let Some(world) = World::new() else { return };
    let (sharer, receiver) = (world.public.host(2), world.public.host(3));
    sharer.add_address("198.51.100.2/24");
    receiver.add_address("198.51.100.3/24");
    let addresses = ["203.0.113.2", "198.51.100.2"];
    let sharing = world.share(&sharer, "");
    let mut copying = world.start(&receiver, &sharing.ticket);
    copying.until_moved(CHANGE);
    let connected = receiver.connected();
    let used = addresses.map(|one| connected.iter().filter(|peer| *peer == one).count());
    let [lost, remaining] = match used[0] > used[1] {
        true => addresses,
        false => [addresses[1], addresses[0]],
    };
    sharer.remove_address(&format!("{lost}/24"));
    copying.until_moved(SIZE - CHANGE);
    let connected = receiver.connected();
    assert!(connected.iter().any(|peer| peer == remaining), "{lost} is gone: {connected:?}");
    copying.finish();
    world.same("got");
}

#[test]
fn a_transfer_continues_from_another_address_of_the_receiver() {
    let Some(world) = World::new() else { return };
    let (sharer, receiver) = (world.public.host(2), world.public.host(3));
    let sharing = world.share(&sharer, "");
    let mut copying = world.start(&receiver, &sharing.ticket);
    copying.until_moved(CHANGE);
    receiver.remove_address("203.0.113.3/24");
    receiver.add_address("203.0.113.4/24");
    copying.until_moved(SIZE - CHANGE);
    let connected = sharer.connected();
    assert!(connected.iter().any(|peer| peer == "203.0.113.4"), "{connected:?}");
    copying.finish();
    world.same("got");
}

#[test]
fn a_transfer_continues_through_the_bridge_when_the_direct_path_is_cut() {
    let Some(world) = World::new() else { return };
    let (sharer, receiver) = (world.public.host(2), world.public.host(3));
    let sharing = world.share_bridged(&sharer, "");
    let before = world.bridged();
    let mut copying = world.start(&receiver, &sharing.ticket);
    copying.until_moved(CHANGE);
    assert_eq!(world.route(before, CHANGE), Route::Direct);
    sharer.drop_incoming("ip saddr 203.0.113.3");
    let before = world.bridged();
    copying.finish();
    assert_eq!(world.route(before, SIZE - CHANGE), Route::Bridge);
    world.same("got");
}

#[test]
fn a_transfer_through_the_bridge_continues_when_a_direct_path_opens() {
    let Some(world) = World::new() else { return };
    let (sharer, receiver) = (world.public.host(2), world.public.host(3));
    sharer.drop_incoming("ip saddr 203.0.113.3");
    let sharing = world.share_bridged(&sharer, "");
    let before = world.bridged();
    let mut copying = world.start(&receiver, &sharing.ticket);
    copying.until_moved(CHANGE);
    assert_eq!(world.route(before, CHANGE), Route::Bridge);
    sharer.pass_all();
    let before = world.bridged();
    copying.finish();
    // Lanes through the bridge stay. New ones are direct as soon as the kernel retransmits the SYN of a direct attempt.
    let route = world.route(before, SIZE - CHANGE);
    eprintln!("the rest took this path: {route:?}");
    world.same("got");
}
