//! Shares and bridges on a local network: two machines, each with a network stack of its own, and a cable between them.

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use haul_bench::link::Namespace;
use serde_json::Value;

use crate::peer_paths::lab::ip;
use crate::serve::Serving;
use crate::session::{Ran, Session};

/// The initial address of the sharer, and the address of the receiver.
const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

/// Time limit for everything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

struct Lan {
    sharer: Namespace,
    receiver: Namespace,
}

impl Lan {
    /// `None` without the right to create namespaces and cables. The reason is printed.
    fn new() -> Option<Self> {
        let spaces = Namespace::new().and_then(|sharer| Ok((sharer, Namespace::new()?)));
        let (sharer, receiver) = match spaces {
            Ok(spaces) => spaces,
            Err(error) => {
                eprintln!("SKIPPED: {error}");
                return None;
            }
        };
        let path = receiver.path();
        let cable = format!("link add cable0 type veth peer name cable1 netns {}", path.display());
        if let Err(error) = ip(&sharer, &cable) {
            eprintln!("SKIPPED: {error}");
            return None;
        }
        let ends = [(&sharer, "cable0", ADDRESSES[0]), (&receiver, "cable1", ADDRESSES[1])];
        for (space, device, address) in ends {
            ip(space, &format!("addr add {address}/24 dev {device}")).unwrap();
            ip(space, &format!("link set {device} up")).unwrap();
        }
        for (space, device, _) in ends {
            let until = Instant::now() + PATIENCE;
            while !ip(space, &format!("-o link show {device}")).unwrap().contains("state UP") {
                assert!(Instant::now() < until, "{device} is not up");
                sleep(Duration::from_millis(10));
            }
        }
        Some(Self { sharer, receiver })
    }

    /// Gives the sharer another address. At the old one, connections are refused.
    fn move_sharer(&self, to: &str) {
        ip(&self.sharer, &format!("addr del {}/24 dev cable0", ADDRESSES[0])).unwrap();
        ip(&self.sharer, &format!("addr add {to}/24 dev cable0")).unwrap();
        ip(&self.receiver, &format!("addr add {}/32 dev lo", ADDRESSES[0])).unwrap();
    }

    /// Runs a command on the receiver's machine.
    fn receive(&self, session: &Session, line: &str) -> Ran {
        session.ran(line, command(&self.receiver, session, line).output().unwrap())
    }

    /// Runs a command on the receiver's machine until it succeeds, for at most [`PATIENCE`]: on a busy machine,
    /// responses to a search may be late.
    fn receive_found(&self, session: &Session, line: &str) -> Ran {
        let until = Instant::now() + PATIENCE;
        loop {
            let ran = self.receive(session, line);
            if ran.code() == Some(0) || Instant::now() > until {
                return ran;
            }
        }
    }

    /// Starts a share with a code on the sharer's machine; retries until it finds the bridge, for at most [`PATIENCE`].
    fn share_code(&self, session: &Session) -> (Serving, Value) {
        let until = Instant::now() + PATIENCE;
        loop {
            let serving = Serving::spawn(printing(&self.sharer, session, "share --code photos"), 1);
            match serde_json::from_str::<Value>(&serving.output) {
                Ok(object) if object["event"] == "sharing" => return (serving, object),
                other => assert!(Instant::now() < until, "{other:?}"),
            }
        }
    }

    /// Starts a command on the sharer's machine. Returns it with the object that it prints.
    fn start(&self, session: &Session, line: &str) -> (Serving, Value) {
        started(&self.sharer, session, line)
    }

    /// A socket on the receiver's machine that receives multicast DNS packets.
    fn listener(&self) -> UdpSocket {
        let listen = || {
            let socket = UdpSocket::bind("0.0.0.0:5353").unwrap();
            let here: Ipv4Addr = ADDRESSES[1].parse().unwrap();
            socket.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 251), &here).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            socket
        };
        self.receiver.within(listen).unwrap()
    }
}

fn started(space: &Namespace, session: &Session, line: &str) -> (Serving, Value) {
    Serving::parsed(printing(space, session, line))
}

/// A command that prints an object; its user is called walter.
fn printing(space: &Namespace, session: &Session, line: &str) -> Command {
    let mut command = command(space, session, &format!("{line} --json"));
    command.env("USER", "walter");
    command
}

fn command(space: &Namespace, session: &Session, line: &str) -> Command {
    let mut command = session.command(line);
    space.prepare(&mut command);
    command.env_remove("HAUL_LAN");
    command
}

/// The packets that arrive until a condition holds, or until [`PATIENCE`] has passed.
fn received_until(socket: &UdpSocket, holds: impl Fn(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
    let until = Instant::now() + PATIENCE;
    let mut packets = Vec::new();
    while !holds(&packets) && Instant::now() < until {
        packets.extend(received(socket, Duration::from_millis(50)));
    }
    packets
}

/// The packets that arrive within this time.
fn received(socket: &UdpSocket, time: Duration) -> Vec<Vec<u8>> {
    let until = Instant::now() + time;
    let mut packets = Vec::new();
    while Instant::now() < until {
        let mut packet = [0; 9000];
        if let Ok(length) = socket.recv(&mut packet) {
            packets.push(packet[..length].to_vec());
        }
    }
    packets
}

/// The DNS labels of 16 hexadecimal digits in the packets.
fn random_names(packets: &[Vec<u8>]) -> HashSet<Vec<u8>> {
    let labels = packets.iter().flat_map(|packet| packet.windows(17));
    let labels =
        labels.filter(|label| label[0] == 16 && label[1..].iter().all(u8::is_ascii_hexdigit));
    labels.map(|label| label[1..].to_vec()).collect()
}

/// Whether a packet withdraws a service of haul: a record of type PTR and class IN has a TTL of 0 (RFC 6762, section
/// 10.1).
fn withdraws(packet: &[u8]) -> bool {
    contains(packet, "_haul") && packet.windows(8).any(|part| part == [0, 12, 0, 1, 0, 0, 0, 0])
}

fn contains(packet: &[u8], text: &str) -> bool {
    let packet = packet.to_ascii_lowercase();
    packet.windows(text.len()).any(|window| window == text.to_ascii_lowercase().as_bytes())
}

fn ticket(object: &Value) -> String {
    object["ticket"].as_str().unwrap().to_owned()
}

fn session() -> Session {
    Session::new().file("photos/one.jpg", "first")
}

#[test]
fn a_sharer_whose_address_has_changed_is_found() {
    let Some(lan) = Lan::new() else { return };
    let session = session();
    let (sharing, object) = lan.start(&session, "share --keep photos");
    let old = ticket(&object);
    lan.receive(&session, &format!("ls {old}")).status(0).stdout("one.jpg\n");
    sharing.end("INT");
    lan.move_sharer("10.77.0.3");
    let (sharing, _) = lan.start(&session, "share --keep photos");
    let ran = lan.receive_found(&session, &format!("ls -v {old}")).status(0).stdout("one.jpg\n");
    ran.stderr_has("10.77.0.3");
    lan.receive(&session, &format!("ls --no-lan {old}")).status(1).stderr_has("cannot connect");
    session.write("home/.config/haul/config.toml", "[defaults]\nlan = false\n");
    lan.receive(&session, &format!("ls {old}")).status(1).stderr_has("cannot connect");
    lan.receive(&session, "config show").status(0).stdout_has("lan");
    sharing.end("INT");
}

#[test]
fn a_known_peer_is_found_at_another_port() {
    let Some(lan) = Lan::new() else { return };
    let session = session();
    let line = "share --keep --listen 0.0.0.0:0 photos";
    let (sharing, object) = lan.start(&session, line);
    let at = object["addresses"][0].clone();
    session.write("ticket", ticket(&object));
    lan.receive(&session, "peers add here @ticket").status(0);
    sharing.end("INT");
    let (sharing, object) = lan.start(&session, line);
    assert_ne!(object["addresses"][0], at);
    lan.receive_found(&session, "cat peer:here/one.jpg").status(0).stdout("first");
    sharing.end("INT");
}

#[test]
fn a_code_needs_no_bridge_option_where_a_bridge_announces_itself() {
    let Some(lan) = Lan::new() else { return };
    let session = session();
    let (bridge, object) = lan.start(&session, "bridge --open --announce");
    let key = object["key"].as_str().unwrap().to_owned();
    let (sharing, object) = lan.share_code(&session);
    // The bridge is used for the code only.
    assert!(object["bridge"].is_null(), "{object}");
    let code = object["code"].as_str().unwrap();
    let ran = lan.receive_found(&session, &format!("cp {code}/ all")).status(0);
    ran.stderr_has(&format!("using the bridge 10.77.0.1:4181/{key} of the local network"));
    assert_eq!(session.read("all/one.jpg"), "first");
    sharing.end("INT");
    let (sharing, object) = lan.share_code(&session);
    let code = object["code"].as_str().unwrap();
    lan.receive_found(&session, &format!("peers add here {code}")).status(0);
    lan.receive(&session, "cat peer:here/one.jpg").status(0).stdout("first");
    let ran = lan.receive(&session, "ls --no-lan 7-orbit-candle").status(1);
    ran.stderr_has("no bridge is known");
    // Everyone can announce a bridge, so the user has to choose.
    let other = Session::new();
    let (second, _) = started(&lan.receiver, &other, "bridge --open --announce");
    let until = Instant::now() + PATIENCE;
    let ran = loop {
        let ran = lan.receive(&session, "ls 7-orbit-candle").status(1);
        // One of them may have responded late.
        if ran.err().contains("the local network has several") || Instant::now() > until {
            break ran;
        }
        // An attempt that reaches only one bridge looks the code up there, which a bridge allows a few times a minute.
        sleep(Duration::from_secs(2));
    };
    ran.stderr_has("the local network has several").stderr_has(&key);
    for one in [second, sharing, bridge] {
        one.end("INT");
    }
}

#[test]
fn announcements_reveal_no_names_and_differ_from_each_other() {
    let Some(lan) = Lan::new() else { return };
    let session = session();
    let socket = lan.listener();
    let time = Duration::from_millis(1500);
    let mut names = HashSet::new();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for _ in 0..2 {
        let (sharing, _) = lan.start(&session, "share --keep photos");
        let mut packets = received_until(&socket, |packets| random_names(packets).len() >= 2);
        packets.extend(received(&socket, time));
        assert!(packets.iter().any(|packet| contains(packet, "_haul")), "nothing is announced");
        // A short name may appear by chance.
        let forbidden = ["photos", "walter", "one.jpg", host.trim()];
        for text in forbidden.into_iter().filter(|text| text.len() > 4) {
            assert!(!packets.iter().any(|packet| contains(packet, text)), "{text}");
        }
        let random = random_names(&packets);
        assert_eq!(random.len(), 2, "of the service, and of the host");
        for name in random {
            assert!(names.insert(name), "a name is the same as before");
        }
        sharing.end("INT");
        // Discards the packets of the withdrawal.
        received(&socket, Duration::from_millis(300));
    }
    let (sharing, _) = lan.start(&session, "share --keep --no-lan photos");
    assert!(received(&socket, time).is_empty());
    sharing.end("INT");
}

/// Formerly, the holder of the expired ticket could still see in which networks the sharer was.
#[test]
fn a_share_is_withdrawn_when_its_ticket_expires() {
    let Some(lan) = Lan::new() else { return };
    let session = session();
    let socket = lan.listener();
    let (sharing, _) = lan.start(&session, "share --expires 5 photos");
    let is_announced = |packets: &[Vec<u8>]| {
        packets.iter().any(|packet| contains(packet, "_haul") && !withdraws(packet))
    };
    assert!(is_announced(&received_until(&socket, is_announced)), "nothing is announced");
    let is_withdrawn = |packets: &[Vec<u8>]| packets.iter().any(|packet| withdraws(packet));
    assert!(is_withdrawn(&received_until(&socket, is_withdrawn)), "the share is not withdrawn");
    sharing.end("INT");
}
