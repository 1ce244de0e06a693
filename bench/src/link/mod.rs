//! Links made on one machine: a client and its servers, each with a network stack of its own, and
//! between them a round trip, a rate, a queue, loss and jitter, which may change at given times.
//!
//! TCP and UDP run on the real kernel stacks of both sides, so that windows, pacing and recovery are
//! real. Packets go through netem where the kernel has it; elsewhere through TUN devices and threads
//! of this process (`tun`). Everything ends with the [`Network`], and with the process.

mod direction;
mod ends;
mod error;
mod namespace;
mod netem;
mod packet;
mod spec;
mod tun;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

pub use direction::Counters;
use ends::Ends;
pub use error::LinkError;
pub use namespace::Namespace;
use netem::Netem;
pub use netem::available as netem_available;
pub use spec::{Change, LinkSpec, LinkTable, MTU, PAYLOAD_OF_MTU, Percent, Rate, Time};
use tun::Tun;

/// A client and its servers.
#[derive(Debug)]
pub struct Network {
    // Carriers stop before the namespaces go.
    links: Vec<Link>,
    client: Namespace,
}

/// A server and the link to it.
#[derive(Debug)]
pub struct Link {
    carrier: Carrier,
    server: Namespace,
    ends: Ends,
}

#[derive(Debug)]
enum Carrier {
    Tun(Tun),
    Netem(Netem),
}

/// How links are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// The kernel's emulator.
    Netem,
    /// TUN devices and threads.
    Tun,
}

/// What passed over a link so far, in bytes and packets with IP headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes from client to server.
    pub up: u64,
    /// Bytes from server to client.
    pub down: u64,
    /// Packets dropped at full queues, both ways. None where only the kernel knows.
    pub dropped: Option<u64>,
    /// Packets lost at random, both ways. None where only the kernel knows.
    pub lost: Option<u64>,
}

impl Network {
    /// Makes a client and one server a link, by the means that `means` says.
    pub fn new(links: &[LinkSpec], means: Means) -> Result<Self, LinkError> {
        let mut network = Self { client: Namespace::new()?, links: Vec::new() };
        for (index, spec) in links.iter().enumerate() {
            let ends = Ends::new(index)?;
            let (client, server) = (&network.client, Namespace::new()?);
            let carrier = match means {
                Means::Tun => Carrier::Tun(Tun::start(client, &server, &ends, spec)?),
                Means::Netem => Carrier::Netem(netem::start(client, &server, &ends, spec)?),
            };
            network.links.push(Link { carrier, server, ends });
        }
        Ok(network)
    }

    /// Where the tools run.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// The links, in the order they were asked for.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Begins anew with the links' first settings; their changes count from now on.
    pub fn restart(&self) {
        for link in &self.links {
            match &link.carrier {
                Carrier::Tun(tun) => tun.restart(),
                Carrier::Netem(netem) => netem.restart(),
            }
        }
    }

    /// What passed over all links so far.
    ///
    /// # Errors
    /// The counters cannot be read, or a change of a link could not be made.
    pub fn passed(&self) -> Result<Passed, LinkError> {
        let mut sum = Passed { dropped: Some(0), lost: Some(0), ..Passed::default() };
        for link in &self.links {
            let one = link.passed(&self.client)?;
            sum.up += one.up;
            sum.down += one.down;
            sum.dropped = sum.dropped.zip(one.dropped).map(|(sum, one)| sum + one);
            sum.lost = sum.lost.zip(one.lost).map(|(sum, one)| sum + one);
        }
        Ok(sum)
    }
}

impl Link {
    /// Where the server runs.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// The server's address.
    pub fn address(&self) -> Ipv4Addr {
        self.ends.address(2)
    }

    /// The server's address in IPv6.
    pub fn address6(&self) -> Ipv6Addr {
        self.ends.address6(2)
    }

    /// The client's address on this link.
    pub fn client_address(&self) -> Ipv4Addr {
        self.ends.address(1)
    }

    fn passed(&self, client: &Namespace) -> Result<Passed, LinkError> {
        match &self.carrier {
            Carrier::Tun(tun) => Ok(Passed {
                up: tun.up.bytes(),
                down: tun.down.bytes(),
                dropped: Some(tun.up.dropped() + tun.down.dropped()),
                lost: Some(tun.up.lost() + tun.down.lost()),
            }),
            Carrier::Netem(netem) => {
                netem.check()?;
                let (down, up) = client.within(|| device_bytes(&self.ends.client_device))??;
                Ok(Passed { up, down, dropped: None, lost: None })
            }
        }
    }
}

/// Bytes that a device of the calling thread's namespace has received and sent.
pub(crate) fn device_bytes(device: &str) -> Result<(u64, u64), LinkError> {
    let path = "/proc/thread-self/net/dev";
    let table = std::fs::read_to_string(path)
        .map_err(|error| LinkError::new(format!("reading {path}"), &error))?;
    table
        .lines()
        .find_map(|line| {
            let fields = line.trim_start().strip_prefix(device)?.strip_prefix(':')?;
            let mut fields = fields.split_ascii_whitespace();
            Some((fields.next()?.parse().ok()?, fields.nth(7)?.parse().ok()?))
        })
        .ok_or_else(|| LinkError::new(format!("reading {path}"), &format!("no device {device}")))
}

impl Means {
    /// What this machine has: netem, or else TUN.
    pub fn of_this_machine() -> Self {
        if netem_available() { Self::Netem } else { Self::Tun }
    }
}

impl fmt::Display for Means {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Netem => "netem",
            Self::Tun => "tun",
        })
    }
}

impl FromStr for Means {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "netem" => Ok(Self::Netem),
            "tun" => Ok(Self::Tun),
            _ => Err(format!("'{text}' is neither netem nor tun")),
        }
    }
}
