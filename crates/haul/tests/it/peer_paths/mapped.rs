//! A sharer behind a router that forwards ports on request. The router runs `miniupnpd`, which speaks PCP, NAT-PMP and
//! UPnP.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::World;
use super::lab::{Host, Nat, ip, nft, run};
use crate::serve::Serving;
use crate::session::Session;

/// The public addresses of the router and of the receiver. `miniupnpd` maps no port of a documentation address
/// (RFC 5737), such as those of the other tests. Packets to these addresses do not leave the namespaces.
const ROUTER: &str = "11.0.113.2";
const OUTSIDE: &str = "11.0.113.3";

/// Longest wait for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nftables table that `miniupnpd` changes.
const TABLE: &str = "
    table inet mapped {
        chain miniupnpd { }
        chain prerouting_miniupnpd { }
        chain postrouting_miniupnpd { }
        chain through {
            type filter hook forward priority filter; policy accept;
            jump miniupnpd
        }
        chain before {
            type nat hook prerouting priority dstnat; policy accept;
            jump prerouting_miniupnpd
        }
        chain after {
            type nat hook postrouting priority srcnat; policy accept;
            jump postrouting_miniupnpd
        }
    }
";

/// Protocols of `miniupnpd`: the configuration that enables each, and the UDP port on which it then listens.
const PROTOCOLS: [(&str, u16); 2] =
    [("enable_natpmp=yes\nenable_upnp=no\n", 5351), ("enable_natpmp=no\nenable_upnp=yes\n", 1900)];

/// A running `miniupnpd`, killed when dropped.
struct Mapper {
    child: Child,
    log: PathBuf,
}

impl Mapper {
    /// Starts it on the router of a host with the address 10.0.2.2, and waits until it listens. `None`, with the reason
    /// printed, if it is not installed.
    fn start(session: &Session, host: &Host, (protocol, port): (&str, u16)) -> Option<Self> {
        let router = host.router();
        nft(router, "add table inet mapped\ndelete table inet mapped").unwrap();
        nft(router, TABLE).unwrap();
        let config = format!(
            "ext_ifname=wan\next_ip={ROUTER}\nlistening_ip=lan\nhttp_port=0\n{protocol}secure_mode=yes\n\
             ipv6_disable=yes\nupnp_table_name=mapped\nupnp_nat_table_name=mapped\n\
             minissdpdsocket={}\nuuid=00000000-0000-0000-0000-000000000001\n\
             allow 1024-65535 10.0.2.0/24 1024-65535\ndeny 0-65535 0.0.0.0/0 0-65535\n",
            session.path("no-minissdpd").display()
        );
        session.write("miniupnpd.conf", config);
        let log = session.path("miniupnpd.log");
        let file = File::create(&log).unwrap();
        let mut command = router.command("miniupnpd");
        command.arg("-d").arg("-f").arg(session.path("miniupnpd.conf"));
        command.arg("-P").arg(session.path("miniupnpd.pid"));
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                eprintln!("SKIPPED, no router forwards a port: miniupnpd: {error}");
                return None;
            }
        };
        let mut mapper = Self { child, log };
        let until = Instant::now() + PATIENCE;
        let is_ready = || run(router, "ss", "-Hlun").unwrap().contains(&format!(":{port} "));
        while !is_ready() {
            let has_ended = mapper.child.try_wait().unwrap().is_some();
            assert!(!has_ended && Instant::now() < until, "{}", mapper.printed());
            sleep(Duration::from_millis(20));
        }
        Some(mapper)
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts a share on a host; returns it with the object that it prints.
fn share(session: &Session, host: &Host, options: &str) -> (Serving, Value) {
    let mut command = host.command(session, &format!("share -v --json {options} data"));
    command.env_remove("HAUL_PORT_MAPPING");
    Serving::parsed(command)
}

/// Starts a share whose ticket has an address of the router. A share waits at most a second for the mapping; on a busy
/// machine, the router may take longer, and the share is started again.
fn share_mapped(session: &Session, host: &Host, mapper: &Mapper) -> (Serving, Value, SocketAddr) {
    let until = Instant::now() + PATIENCE;
    loop {
        let (serving, object) = share(session, host, "");
        if let Some(address) = mapped(&object) {
            return (serving, object, address);
        }
        let (_, printed) = serving.end("INT");
        assert!(Instant::now() < until, "{object}\n{printed}\n{}", mapper.printed());
    }
}

/// The address of the router in the ticket, if it has one.
fn mapped(object: &Value) -> Option<SocketAddr> {
    let addresses = object["addresses"].as_array().unwrap().iter();
    let mut addresses = addresses.map(|address| address.as_str().unwrap().parse().unwrap());
    addresses.find(|address: &SocketAddr| address.ip().to_string() == ROUTER)
}

#[test]
fn a_sharer_behind_a_router_that_forwards_ports_is_reached_without_a_bridge() {
    let Some(world) = World::new() else { return };
    let (sharer, receiver) =
        (world.public.host_behind(Nat::PortRestricted, 2), world.public.host(3));
    ip(sharer.router(), &format!("address add {ROUTER}/24 dev wan")).unwrap();
    receiver.add_address(&format!("{OUTSIDE}/24"));
    for protocol in PROTOCOLS {
        let Some(mapper) = Mapper::start(&world.session, &sharer, protocol) else { return };
        let (serving, object, address) = share_mapped(&world.session, &sharer, &mapper);
        let forwarded = || {
            let rules = run(sharer.router(), "nft", "list table inet mapped").unwrap();
            rules.contains(&format!("dport {}", address.port()))
        };
        assert!(forwarded(), "{}", mapper.printed());
        let ticket = object["ticket"].as_str().unwrap();
        let copy = format!("cp -v {ticket}/big got");
        let ran = receiver.haul(&world.session, &copy).status(0);
        let printed = ran.err();
        assert!(printed.contains(&format!("{address}: connected")), "{printed}");
        world.same("got");
        fs::remove_file(world.session.path("got")).unwrap();
        let (status, printed) = serving.end("INT");
        assert_eq!(status, Some(0), "{printed}");
        assert!(printed.contains(&format!("the router forwards {address}")), "{printed}");
        let until = Instant::now() + PATIENCE;
        while forwarded() {
            assert!(Instant::now() < until, "the port is still forwarded: {}", mapper.printed());
            sleep(Duration::from_millis(20));
        }
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_err();
        assert!(receiver.within(connect));
    }
}

#[test]
fn no_port_is_mapped_if_mapping_is_turned_off_or_useless() {
    let Some(world) = World::new() else { return };
    let sharer = world.public.host_behind(Nat::PortRestricted, 2);
    ip(sharer.router(), &format!("address add {ROUTER}/24 dev wan")).unwrap();
    let Some(mapper) = Mapper::start(&world.session, &sharer, PROTOCOLS[0]) else { return };
    let bridge_only = format!("--bridge-only --bridge {}", world.bridge);
    for options in [
        "--no-port-mapping",
        "--listen 127.0.0.1:0",
        // As if the user had forwarded a port.
        "--address 203.0.113.2:4180",
        &bridge_only,
    ] {
        let (serving, object) = share(&world.session, &sharer, options);
        assert_eq!(mapped(&object), None, "{options}");
        serving.end("INT");
    }
    world.session.write("home/.config/haul/config.toml", "[defaults]\nport-mapping = false\n");
    let (serving, object) = share(&world.session, &sharer, "");
    assert_eq!(mapped(&object), None);
    serving.end("INT");
    assert!(!mapper.printed().contains("request received"), "{}", mapper.printed());
}
