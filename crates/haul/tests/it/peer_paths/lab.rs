//! Machines with network stacks of their own: a public network, hosts on it, and hosts behind routers with NAT.
//!
//! ```text
//! 203.0.113.1 (bridge)   203.0.113.2 (host)   203.0.113.3 (router) ── 10.0.3.2 (host)
//!        └────── switch ──────┴────────────────────┘
//! ```
//!
//! Machines are network namespaces without names, joined by veth pairs; nftables filters packets and translates
//! addresses. The kernel removes all of it with the last descriptor, however the test ends.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use haul_bench::link::Namespace;

use crate::session::{Ran, Session};

/// How a router translates the packets of its host. All preserve the host's port if they can, except the symmetric one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nat {
    /// Any host can reach the router's host, at the router's address.
    FullCone,
    /// Only an address and port to which the router's host has sent packets can reach it.
    PortRestricted,
    /// As [`Nat::PortRestricted`], and each connection gets a random port, which reveals nothing about the next one's.
    Symmetric,
}

/// The public network, and the machine of the bridge in it.
pub(super) struct Public(Namespace);

/// A host on the public network, or behind a router.
pub(super) struct Host {
    namespace: Namespace,
    router: Option<Namespace>,
}

/// The address of the bridge's machine, which is also the default gateway of all machines on the public network.
pub(super) const BRIDGE: &str = "203.0.113.1";

impl Public {
    /// The network, without hosts. `None`, with the reason printed, if this machine cannot create it.
    pub(super) fn new() -> Option<Self> {
        match Self::made() {
            Ok(public) => Some(public),
            Err(cause) => {
                eprintln!("SKIPPED, no path between peers is tested: {cause}");
                None
            }
        }
    }

    fn made() -> Result<Self, String> {
        let namespace = Namespace::new().map_err(|error| error.to_string())?;
        if Command::new("nft").arg("--version").output().is_err() {
            return Err("nft is not installed (Debian: nftables)".to_owned());
        }
        nft(&namespace, &rules(Nat::Symmetric)).map_err(|error| format!("NAT: {error}"))?;
        // That only tested whether NAT works: the public network itself translates nothing.
        nft(&namespace, "flush ruleset").map_err(|error| format!("nft: {error}"))?;
        ip(&namespace, "link add switch type bridge forward_delay 0")?;
        ip(&namespace, &format!("address add {BRIDGE}/24 dev switch"))?;
        ip(&namespace, "link set switch up")?;
        Ok(Self(namespace))
    }

    /// A command of haul on the machine of the bridge.
    pub(super) fn command(&self, session: &Session, line: &str) -> Command {
        command(&self.0, session, line)
    }

    /// Runs `work` on the machine of the bridge.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.within(work).unwrap()
    }

    /// A host with the address 203.0.113.`number`.
    pub(super) fn host(&self, number: u8) -> Host {
        let namespace = Namespace::new().unwrap();
        self.attach(&namespace, number);
        Host { namespace, router: None }
    }

    /// A host with the address 10.0.`number`.2, behind a router with the address 203.0.113.`number`.
    pub(super) fn host_behind(&self, nat: Nat, number: u8) -> Host {
        let (router, namespace) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        self.attach(&router, number);
        join(&router, "lan", &namespace, "wan");
        ip(&router, &format!("address add 10.0.{number}.1/24 dev lan")).unwrap();
        ip(&router, "link set lan up").unwrap();
        ip(&namespace, &format!("address add 10.0.{number}.2/24 dev wan")).unwrap();
        ip(&namespace, "link set wan up").unwrap();
        ip(&namespace, &format!("route add default via 10.0.{number}.1")).unwrap();
        let forward = || fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        router.within(forward).unwrap().unwrap();
        let rules = rules(nat).replace("HOST", &format!("10.0.{number}.2"));
        nft(&router, &rules).unwrap();
        Host { namespace, router: Some(router) }
    }

    /// Connects a machine with the switch. Packets to other networks are dropped silently.
    fn attach(&self, namespace: &Namespace, number: u8) {
        let port = format!("port{number}");
        join(&self.0, &port, namespace, "wan");
        ip(&self.0, &format!("link set {port} master switch up")).unwrap();
        ip(namespace, &format!("address add 203.0.113.{number}/24 dev wan")).unwrap();
        ip(namespace, "link set wan up").unwrap();
        ip(namespace, &format!("route add default via {BRIDGE}")).unwrap();
    }
}

impl Host {
    /// A command of haul on this host.
    pub(super) fn command(&self, session: &Session, line: &str) -> Command {
        command(&self.namespace, session, line)
    }

    /// Runs `haul` with the words of `line` on this host.
    pub(super) fn haul(&self, session: &Session, line: &str) -> Ran {
        session.ran(line, self.command(session, line).output().unwrap())
    }

    /// Runs `work` on this host, on a thread of its own. Processes are started by [`Host::command`] instead: they are
    /// killed when the thread that started them ends.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.within(work).unwrap()
    }

    /// The router in front of it, which must exist.
    pub(super) fn router(&self) -> &Namespace {
        self.router.as_ref().unwrap()
    }

    /// Adds an address with a prefix length, such as `203.0.113.4/24`.
    pub(super) fn add_address(&self, address: &str) {
        // Duplicate address detection would delay an IPv6 address by a second.
        let option = if address.contains(':') { " nodad" } else { "" };
        ip(&self.namespace, &format!("address add {address} dev wan{option}")).unwrap();
    }

    /// Removes an address with a prefix length.
    pub(super) fn remove_address(&self, address: &str) {
        ip(&self.namespace, &format!("address del {address} dev wan")).unwrap();
    }

    /// Silently drops packets that match `condition` (nftables syntax), until [`Host::pass_all`].
    pub(super) fn drop_incoming(&self, condition: &str) {
        let chain = format!("type filter hook input priority filter; {condition} drop;");
        nft(&self.namespace, &format!("table inet cut {{\nchain in {{ {chain} }}\n}}")).unwrap();
    }

    /// Ends the effect of [`Host::drop_incoming`].
    pub(super) fn pass_all(&self) {
        nft(&self.namespace, "delete table inet cut").unwrap();
    }

    /// The remote addresses of its established TCP connections.
    pub(super) fn connected(&self) -> Vec<String> {
        let listed = run(&self.namespace, "ss", "-Hnt").unwrap();
        let peers = listed.lines().filter_map(|line| {
            let mut fields = line.split_whitespace();
            let is_open = fields.next() == Some("ESTAB");
            let (address, _) = fields.nth(3).filter(|_| is_open)?.rsplit_once(':')?;
            Some(address.to_owned())
        });
        peers.collect()
    }
}

/// The rules of a router. `HOST` stands for the address of its host.
fn rules(nat: Nat) -> String {
    let to_host = match nat {
        Nat::FullCone => r#"iifname "wan" tcp dport 1024-65535 dnat to HOST;"#,
        Nat::PortRestricted | Nat::Symmetric => "",
    };
    let ports = if nat == Nat::Symmetric { "fully-random" } else { "" };
    format!(
        r#"
        table ip nat {{
            chain before {{ type nat hook prerouting priority dstnat; {to_host} }}
            chain after {{
                type nat hook postrouting priority srcnat; oifname "wan" masquerade {ports};
            }}
        }}
        table ip filter {{
            chain in {{ type filter hook input priority filter; iifname "wan" ct state new drop; }}
            chain through {{
                type filter hook forward priority filter;
                iifname "wan" ct state new ct status dnat accept;
                iifname "wan" ct state new drop;
            }}
        }}
        "#
    )
}

/// A command of haul on a machine. It is killed when the thread that starts it ends.
fn command(namespace: &Namespace, session: &Session, line: &str) -> Command {
    let mut command = session.command(line);
    namespace.prepare(&mut command);
    command.env("USER", "me");
    command
}

/// Joins two machines by a veth pair: `device` on the first, `far` on the other.
fn join(one: &Namespace, device: &str, other: &Namespace, far: &str) {
    let path = other.path();
    let line = format!("link add {device} type veth peer name {far} netns {}", path.display());
    ip(one, &line).unwrap();
}

/// Runs `ip` on a machine; returns what it prints.
pub(crate) fn ip(namespace: &Namespace, line: &str) -> Result<String, String> {
    run(namespace, "ip", line)
}

/// Runs a program on a machine; returns what it prints.
pub(super) fn run(namespace: &Namespace, program: &str, line: &str) -> Result<String, String> {
    let mut command = namespace.command(program);
    command.args(line.split_whitespace()).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program} {line}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs commands of nftables on a machine.
pub(super) fn nft(namespace: &Namespace, rules: &str) -> Result<(), String> {
    let mut command = namespace.command("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("nft: {error}"))?;
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
