//! Emulated links on one machine. A client and its servers have a network namespace each; the links between them have
//! jitter, and an RTT, rates, a queue and loss that may change at given times.
//!
//! TCP and UDP run on the real kernel stacks of both sides, so windows, pacing and recovery are real. Packets pass
//! through netem if the kernel has it, otherwise through TUN devices and threads of this process (`tun`). All of it
//! disappears with the [`Network`], or with the process.

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

/// A client, its servers, and the links between them.
#[derive(Debug)]
pub struct Network {
    // Dropped first: carriers must stop before the client's namespace disappears.
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

/// How links are emulated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// The kernel's network emulator.
    Netem,
    /// TUN devices and threads of this process.
    Tun,
}

/// Counters of a link since it was created. Bytes include IP headers, with netem also Ethernet headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes from client to server.
    pub up: u64,
    /// Bytes from server to client.
    pub down: u64,
    /// Packets dropped at full queues, both directions. `None` with netem, which counts them together with `lost`.
    pub dropped: Option<u64>,
    /// Packets lost at random, both directions. `None` with netem, see `dropped`.
    pub lost: Option<u64>,
}

impl Network {
    /// Creates a client, and for each of `links` a server.
    ///
    /// # Errors
    /// Without root, or with more than 256 links.
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

    /// The namespace of the client, in which the tools run.
    pub fn client(&self) -> &Namespace {
        &self.client
    }

    /// The links, in the order of the arguments of [`new`](Self::new).
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Resets all links to their initial settings; the times of their changes count from now on.
    pub fn restart(&self) {
        for link in &self.links {
            match &link.carrier {
                Carrier::Tun(tun) => tun.restart(),
                Carrier::Netem(netem) => netem.restart(),
            }
        }
    }

    /// The sum of the counters of all links.
    ///
    /// # Errors
    /// If counters cannot be read, or a change of a link's settings has failed.
    pub fn traffic(&self) -> Result<Traffic, LinkError> {
        let mut sum = Traffic { dropped: Some(0), lost: Some(0), ..Traffic::default() };
        for link in &self.links {
            let one = link.traffic(&self.client)?;
            sum.up += one.up;
            sum.down += one.down;
            sum.dropped = sum.dropped.zip(one.dropped).map(|(sum, one)| sum + one);
            sum.lost = sum.lost.zip(one.lost).map(|(sum, one)| sum + one);
        }
        Ok(sum)
    }

    /// The counters of the link with this index.
    ///
    /// # Errors
    /// As [`Network::traffic`]; or if there is no such link.
    pub fn traffic_of(&self, link: usize) -> Result<Traffic, LinkError> {
        let none = || LinkError::new("reading counters", "there is no such link");
        self.links.get(link).ok_or_else(none)?.traffic(&self.client)
    }
}

impl Link {
    /// The namespace of the server.
    pub fn server(&self) -> &Namespace {
        &self.server
    }

    /// The server's address.
    pub fn address(&self) -> Ipv4Addr {
        self.ends.address(2)
    }

    /// The server's IPv6 address.
    pub fn address6(&self) -> Ipv6Addr {
        self.ends.address6(2)
    }

    /// The client's address on this link.
    pub fn client_address(&self) -> Ipv4Addr {
        self.ends.address(1)
    }

    fn traffic(&self, client: &Namespace) -> Result<Traffic, LinkError> {
        match &self.carrier {
            Carrier::Tun(tun) => Ok(Traffic {
                up: tun.up.bytes(),
                down: tun.down.bytes(),
                dropped: Some(tun.up.dropped() + tun.down.dropped()),
                lost: Some(tun.up.lost() + tun.down.lost()),
            }),
            Carrier::Netem(netem) => {
                netem.check()?;
                let (down, up) = client.within(|| device_bytes(&self.ends.client_device))??;
                Ok(Traffic { up, down, dropped: None, lost: None })
            }
        }
    }
}

/// Bytes received and sent by a network device in the namespace of the calling thread.
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
    /// netem if the kernel has it, otherwise TUN.
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
