//! What a scenario needs around its runs: data, network, server, and the variables of its commands.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};

use super::fresh;
use super::repository;
use super::settings::Settings;
use crate::command::must_run;
use crate::data::Dataset;
use crate::link::{Link, LinkSpec, Means, Namespace, Network, Traffic};
use crate::record::{self, Measure};
use crate::scenario::{Direction, NetworkPath, Protocol, Scenario, Storage};
use crate::servers::{Server, Site};

/// Index of the client's link, if a bridge is in the middle. The other one is the server's.
const CLIENT_LINK: usize = 1;

/// The secret by which the ends of a tool find each other. Each run has a relay of its own, so it need not change.
const SECRET: &str = "4180-haul-bench";

/// A scenario set up. Dropping it stops the server and removes the network.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) server: Option<Server>,
    pub(super) wiring: Wiring,
    pub(super) data: Dataset,
    direction: Direction,
    /// Makes a file system for each result, if wanted and possible.
    fresh: Option<fresh::Maker>,
    /// Results of runs, each in a directory of its own.
    results: PathBuf,
    pub(super) private: PathBuf,
}

/// How client and server are connected.
#[derive(Debug)]
pub(super) enum Wiring {
    None,
    Loopback(Namespace),
    Linked(Network),
    /// A machine in the middle, with a link to the server and one to the client.
    Bridged(Network),
}

impl Stage {
    /// Sets `scenario` up in the empty directory `work`.
    pub(super) fn set_up(
        scenario: &Scenario,
        work: &Path,
        settings: &Settings,
    ) -> io::Result<Self> {
        let base = work.join("stage");
        fs::create_dir(&base)?;
        if scenario.storage == Storage::Ram {
            let settings: Option<&std::ffi::CStr> = None;
            mount("tmpfs", &base, "tmpfs", MountFlags::empty(), settings).map_err(|error| {
                io::Error::other(format!("mounting a tmpfs (it needs root): {error}"))
            })?;
        }
        let (root, private) = (base.join("root"), base.join("private"));
        fs::create_dir_all(&private)?;
        fs::create_dir_all(root.join("up"))?;
        let data = scenario.data.make(&root.join("data"))?;
        if scenario.measure == Measure::MountStatus {
            repository::make(&data)?;
        }
        let results = match scenario.direction {
            Direction::Upload => root.join("up"),
            Direction::Copy | Direction::Download => base.join("results"),
        };
        fs::create_dir_all(&results)?;
        let fresh = if scenario.storage == Storage::Fresh && fresh::available() {
            Some(fresh::Maker::new(&base.join("images"), &scenario.data)?)
        } else {
            None
        };
        let wiring = Wiring::new(scenario, settings.means)?;
        let server = match wiring.server().zip(wiring.hub()) {
            Some(((namespace, address), hub)) => {
                let (root, private, haul) = (&root, &private, &settings.haul);
                let site = Site { namespace, address, hub, root, private, haul };
                Some(Server::start(scenario.protocol, site)?)
            }
            None => None,
        };
        let direction = scenario.direction;
        let stage = Self { server, wiring, data, direction, fresh, results, private };
        stage.write_lists()?;
        Ok(stage)
    }

    /// Creates an empty directory for the result of a run. Returns its path on this machine.
    pub(super) fn result(&self, run: usize) -> io::Result<PathBuf> {
        let path = self.results.join(format!("run{run}"));
        fs::create_dir(&path)?;
        if let Some(maker) = &self.fresh {
            maker.mount_on(&path)?;
        }
        if self.direction == Direction::Upload {
            use std::os::unix::fs::PermissionsExt;
            // Apache and vsftpd write as users of their own.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
        }
        Ok(path)
    }

    /// Removes the result of a run.
    pub(super) fn remove(&self, result: &Path) -> io::Result<()> {
        if let Some(maker) = &self.fresh {
            maker.take_from(result)?;
        }
        fs::remove_dir_all(result)
    }

    /// The variables of one run; tools.toml explains those that its commands name.
    pub(super) fn variables(&self, result: &Path) -> Vec<(&'static str, OsString)> {
        let mut variables: Vec<(&'static str, OsString)> = vec![
            ("SRC", self.data.root().into()),
            ("DST", result.into()),
            ("NAMES", self.private.join("names").into()),
            ("FILE", self.data.names().next().unwrap_or_default().into()),
        ];
        let Some(server) = &self.server else { return variables };
        variables.push(("SECRET", SECRET.into()));
        let name = result.file_name().unwrap_or_default().to_string_lossy();
        let path = match self.direction {
            Direction::Upload => format!("up/{name}"),
            Direction::Copy | Direction::Download => "data".to_owned(),
        };
        let known = |name: &str| {
            server.variables.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
        };
        variables.push(("REMOTE", server.remote_path(&path).into()));
        variables.push(("URL", format!("{}/{path}", known("SERVER_URL")).into()));
        variables.push(("URLS", self.private.join("urls").into()));
        variables.extend(server.variables.iter().map(|(key, value)| (*key, value.into())));
        variables
    }

    fn write_lists(&self) -> io::Result<()> {
        let list = |prefix: &str| -> String {
            self.data.names().map(|name| format!("{prefix}{name}\n")).collect()
        };
        fs::write(self.private.join("names"), list(""))?;
        // Of use for downloads only: an upload has another URL in each run.
        let base = self.variables(Path::new("")).into_iter().find(|(key, _)| *key == "URL");
        if let Some((_, base)) = base {
            fs::write(self.private.join("urls"), list(&format!("{}/", base.to_string_lossy())))?;
        }
        Ok(())
    }
}

impl Wiring {
    fn new(scenario: &Scenario, means: Option<Means>) -> io::Result<Self> {
        let network = |links: &[LinkSpec]| {
            Network::new(links, means.unwrap_or(Means::Tun)).map_err(io::Error::other)
        };
        Ok(match &scenario.path {
            NetworkPath::None => Self::None,
            NetworkPath::Loopback => Self::Loopback(Namespace::new().map_err(io::Error::other)?),
            NetworkPath::Link(spec) if scenario.protocol == Protocol::PeerBridge => {
                let network = network(&spec.halves())?;
                let [server, client] = network.links() else {
                    return Err(io::Error::other("a path through a bridge has two links"));
                };
                // The client knows the bridge by its address on the other link.
                let [to, via] = [server, client].map(|link| link.client_address().to_string());
                let mut route = client.server().command("ip");
                must_run(route.args(["route", "add", to.as_str(), "via", via.as_str()]))?;
                Self::Bridged(network)
            }
            NetworkPath::Link(spec) => Self::Linked(network(std::slice::from_ref(spec))?),
        })
    }

    /// Where tools run; `None`: this machine's own namespace.
    pub(super) fn client(&self) -> Option<&Namespace> {
        match self {
            Self::None => None,
            Self::Loopback(namespace) => Some(namespace),
            Self::Linked(network) => Some(network.client()),
            Self::Bridged(network) => network.links().get(CLIENT_LINK).map(Link::server),
        }
    }

    /// Begins a run: the changes of a link are timed from now on.
    pub(super) fn restart(&self) {
        if let Self::Linked(network) | Self::Bridged(network) = self {
            network.restart();
        }
    }

    /// The server's namespace, and its address in it.
    pub(super) fn server(&self) -> Option<(&Namespace, Ipv4Addr)> {
        match self {
            Self::None => None,
            Self::Loopback(namespace) => Some((namespace, Ipv4Addr::LOCALHOST)),
            Self::Linked(network) | Self::Bridged(network) => {
                network.links().first().map(|link| (link.server(), link.address()))
            }
        }
    }

    /// Where a bridge runs: in the middle, or beside the server.
    fn hub(&self) -> Option<(&Namespace, Ipv4Addr)> {
        match self {
            Self::Bridged(network) => {
                network.links().first().map(|link| (network.client(), link.client_address()))
            }
            _ => self.server(),
        }
    }

    /// Traffic over the wire so far; with a bridge, over the client's link. `None` without a network, and on loopback:
    /// the same device sends and receives everything, so directions cannot be distinguished.
    pub(super) fn traffic(&self) -> Option<Traffic> {
        match self {
            // Counters that cannot be read count as missing.
            Self::Linked(network) => network.traffic().ok(),
            Self::Bridged(network) => {
                // The client is on the server's side of this link.
                let Traffic { up, down, dropped, lost } = network.traffic_of(CLIENT_LINK).ok()?;
                Some(Traffic { up: down, down: up, dropped, lost })
            }
            Self::None | Self::Loopback(_) => None,
        }
    }
}

/// The link's description in the results.
pub(super) fn shape(scenario: &Scenario) -> Option<record::LinkShape> {
    let NetworkPath::Link(spec) = &scenario.path else { return None };
    Some(record::LinkShape {
        rtt_ms: spec.rtt.as_secs_f64() * 1e3,
        down_bits: spec.down,
        up_bits: spec.up,
        loss: spec.loss,
        jitter_ms: spec.jitter.as_secs_f64() * 1e3,
        changes: spec.changes.iter().map(ToString::to_string).collect(),
        payload_limit: scenario.payload_limit(),
    })
}
