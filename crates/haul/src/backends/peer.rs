//! Opens locations on a peer's share. All locations with one ticket share its lanes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use haul_peer::client::{PeerHost, PeerOptions, PeerStorage, ReachEvent};
use haul_peer::identity::Identity;
use haul_peer::ticket::Ticket;
use haul_storage::{
    EntryKind, Error, ErrorKind, Location, RelPath, Result, Storage as _, TicketText, text,
};
use serde::Serialize;

use super::codes::Codes;
use super::opened::{OpenedHosts, Shared};
use super::opened_path::{OpenedPath, at_root, invalid};
use crate::args::BridgeArg;
use crate::output::{Printer, human};

/// The longest time that a command waits at its end for lanes to send their last messages. It does not wait for the
/// sharer's response, which takes an RTT.
const GOODBYE: Duration = Duration::from_millis(20);

/// How peers are found, other than by their tickets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Discovery<'a> {
    /// The bridge of spoken codes.
    pub(super) bridge: Option<&'a BridgeArg>,
    /// Whether to look for peers, and for a bridge of spoken codes, on the local network.
    pub(super) lan: bool,
}

/// Connects to each peer once.
#[derive(Debug)]
pub(super) struct PeerHosts {
    opened: OpenedHosts<TicketText, PeerHost, PeerStorage>,
    codes: Codes,
    /// Whether to look for peers on the local network.
    lan: bool,
}

impl PeerHosts {
    /// No peer yet.
    pub(super) fn new(shared: &Shared, discovery: Discovery<'_>) -> Self {
        let codes = Codes::new(discovery.bridge, discovery.lan);
        Self { opened: OpenedHosts::new(shared), codes, lan: discovery.lan }
    }

    /// The location with its ticket in place of a spoken code.
    pub(super) async fn with_ticket(&self, location: &Location) -> Result<Location> {
        Ok(self.codes.resolved(location, &self.opened.shared).await?.into_owned())
    }

    /// Opens an existing location.
    pub(super) async fn existing(&self, location: &Location) -> Result<OpenedPath> {
        let location = self.codes.resolved(location, &self.opened.shared).await?;
        let location = &*location;
        let (ticket, path) = parts(location)?;
        self.host(ticket, location)?.read_first(&path);
        let share = self.storage(ticket, location, RelPath::root()).await?;
        let found = share.stat(&path).await?;
        if found.is_dir() {
            return self.directory(ticket, location, path).await;
        }
        if location.has_trailing_slash() && !path.is_root() {
            return Err(Error::new(ErrorKind::NotADirectory, "open").at(location));
        }
        self.file(ticket, location, &path).await
    }

    /// The name that the sharer gave a share whose location was opened.
    pub(super) async fn share_name(&self, location: &Location) -> Option<String> {
        let Location::Peer { ticket, .. } = location else { return None };
        let host = self.opened.known(ticket)?;
        host.share_name().await.ok()
    }

    /// Opens a destination, which need not exist.
    pub(super) async fn destination(&self, location: &Location) -> Result<OpenedPath> {
        let location = self.codes.resolved(location, &self.opened.shared).await?;
        let location = &*location;
        let (ticket, path) = parts(location)?;
        self.host(ticket, location)?.look_first_at(&path);
        let share = self.storage(ticket, location, RelPath::root()).await?;
        let mut nearest = path.clone();
        let found = loop {
            match share.stat(&nearest).await {
                Err(error) if error.kind() == ErrorKind::NotFound => match nearest.parent() {
                    Some(parent) => nearest = parent,
                    None => return Err(error),
                },
                found => break found?,
            }
        };
        match found.kind {
            EntryKind::Directory if nearest == path => self.directory(ticket, location, path).await,
            EntryKind::File if nearest == path && !location.has_trailing_slash() => {
                self.file(ticket, location, &path).await
            }
            EntryKind::Directory => Ok(OpenedPath {
                storage: share,
                path,
                is_directory: false,
                exists: false,
                local: None,
            }),
            EntryKind::File => Err(Error::new(ErrorKind::NotADirectory, "open").at(location)),
            _ => Err(Error::new(ErrorKind::AlreadyExists, "replace")
                .at(location)
                .because("it is neither a file nor a directory")),
        }
    }

    async fn directory(
        &self,
        ticket: &TicketText,
        location: &Location,
        path: RelPath,
    ) -> Result<OpenedPath> {
        let storage = self.storage(ticket, location, path).await?;
        let path = RelPath::root();
        Ok(OpenedPath { storage, path, is_directory: true, exists: true, local: None })
    }

    async fn file(
        &self,
        ticket: &TicketText,
        location: &Location,
        path: &RelPath,
    ) -> Result<OpenedPath> {
        let directory = path.parent().unwrap_or_else(RelPath::root);
        let storage = self.storage(ticket, location, directory).await?;
        let path = RelPath::root().join(path.name()).map_err(|error| invalid(location, error))?;
        Ok(OpenedPath { storage, path, is_directory: false, exists: true, local: None })
    }

    async fn storage(
        &self,
        ticket: &TicketText,
        location: &Location,
        root: RelPath,
    ) -> Result<Arc<PeerStorage>> {
        let host = self.host(ticket, location)?;
        let at = at_root(location, root.as_bytes());
        let bytes = root.as_bytes().to_vec();
        let open = PeerStorage::open(Arc::clone(&host), at, root);
        let storage = self.opened.storage(ticket, &bytes, open).await?;
        let name = || host.reached().map_or_else(String::new, |path| path.to_string());
        self.opened.introduce(ticket, || human::reached(&name(), &host.link()));
        Ok(storage)
    }

    fn host(&self, ticket: &TicketText, location: &Location) -> Result<Arc<PeerHost>> {
        self.opened.host(ticket, |_| {
            let unusable = |cause: String| {
                Error::new(ErrorKind::InvalidInput, "use the ticket").at(location).because(cause)
            };
            let ticket: Ticket = ticket
                .expose()
                .parse()
                .map_err(|error: haul_peer::ticket::TicketError| unusable(error.to_string()))?;
            let shared = &self.opened.shared;
            let (identity, runtime) = (Identity::ephemeral()?, shared.runtime()?);
            let waits = shared.waits.of(at_root(location, b"").to_string());
            let options = PeerOptions { lan: self.lan, waits };
            let host = PeerHost::with_options(&ticket, &identity, options, runtime)?;
            host.expect(shared.lanes);
            let printer = &shared.printer;
            if printer.is_verbose() {
                host.on_event(reporter(location.to_string(), printer.clone()));
            }
            Ok(host)
        })
    }
}

/// Closes the lanes before the threads that they run on end.
impl Drop for PeerHosts {
    fn drop(&mut self) {
        let hosts = self.opened.all();
        hosts.iter().for_each(|host| host.close());
        let start = Instant::now();
        while !hosts.iter().all(|host| host.is_closed()) && start.elapsed() < GOODBYE {
            thread::sleep(GOODBYE / 20);
        }
    }
}

/// Prints how a peer is reached, for `-v`. In text, the first path is in the line that introduces the host.
fn reporter(location: String, printer: Printer) -> impl Fn(ReachEvent) + Send + Sync {
    let is_known = AtomicBool::new(false);
    move |event| match event {
        ReachEvent::Path(path) if printer.is_json() => {
            let (kind, address) = (path.kind().name(), path.address());
            printer.object(&ReachedObject { event: "reached", location: &location, kind, address });
        }
        ReachEvent::Path(path) if is_known.swap(true, Ordering::Relaxed) => {
            printer.note(format_args!("haul: connections move to {path}"));
        }
        ReachEvent::Failed { kind, cause } if printer.is_json() => {
            let kind = kind.name();
            let object = UnreachedObject { event: "unreached", location: &location, kind, cause };
            printer.object(&object);
        }
        ReachEvent::Failed { kind, cause } => {
            let (kind, cause) = (kind.name(), text::line(&cause));
            printer.note(format_args!("haul: no {kind} connection: {cause}"));
        }
        _ => {}
    }
}

/// How a peer is reached, in JSON.
#[derive(Debug, Serialize)]
struct ReachedObject<'a> {
    event: &'static str,
    location: &'a str,
    kind: &'static str,
    address: String,
}

/// A path that does not lead to a peer, in JSON.
#[derive(Debug, Serialize)]
struct UnreachedObject<'a> {
    event: &'static str,
    location: &'a str,
    kind: &'static str,
    cause: String,
}

/// The ticket and the path in the share.
fn parts(location: &Location) -> Result<(&TicketText, RelPath)> {
    // `Remotes` passes only tickets.
    let Location::Peer { ticket, path } = location else {
        return Err(Error::new(ErrorKind::Unsupported, "open").at(location));
    };
    let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names: Vec<&[u8]> = names.collect();
    Ok((ticket, super::opened_path::rel_path(location, &names)?))
}
