//! Opens locations on servers and behind tickets: the form of the location selects the backend.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use haul_http::client::{Headers, Proxies};
use haul_http::parse::proxy;
use haul_net::Waits;
use haul_storage::{Error, ErrorKind, Location, Result, Scheme};

use super::ftp::FtpHosts;
use super::headers::{self, CookieFiles};
use super::http::HttpHosts;
use super::opened::Shared;
use super::opened_path::OpenedPath;
use super::peer::{Discovery, PeerHosts};
use super::secrets::Secrets;
use super::sftp::SftpHosts;
use super::threads::LaneThreads;
use crate::args::RemoteArgs;
use crate::output::Printer;

/// Opens each host once.
#[derive(Debug)]
pub(super) struct Remotes {
    sftp: SftpHosts,
    http: HttpHosts,
    ftp: FtpHosts,
    peer: PeerHosts,
    secrets: Arc<Secrets>,
}

impl Remotes {
    /// Hosts are opened with these options and the environment's secrets and proxies. `lanes` is how many a transfer
    /// will want over a long path.
    ///
    /// # Errors
    /// The option that is invalid or the file that cannot be used, and why.
    pub(super) fn new(
        remote: &RemoteArgs,
        discovery: Discovery<'_>,
        printer: &Printer,
        lanes: usize,
    ) -> Result<Self, String> {
        let cookies = CookieFiles::open(&remote.web)?;
        let headers = headers::from_args(&remote.web)?;
        let mut waits = reported_by(printer);
        if let Some(seconds) = remote.network.timeout {
            waits = waits.with_silence(Duration::from_secs(seconds.0));
        }
        if let Some(value) = &remote.network.proxy {
            proxy::check_option(value).map_err(|error| error.to_string())?;
        }
        let proxies = Proxies::of_environment().with_option(remote.network.proxy.as_deref());
        let web = (headers, cookies, proxies.clone());
        let (printer, threads) = (printer.clone(), Arc::new(LaneThreads::default()));
        let secrets = Arc::new(Secrets::of_environment());
        let shared = Shared { printer, waits, secrets, lanes, threads };
        Ok(Self {
            sftp: SftpHosts::new(remote, &shared),
            http: HttpHosts::new(remote, web, &shared),
            ftp: FtpHosts::new(remote, proxies, &shared),
            peer: PeerHosts::new(&shared, discovery),
            secrets: shared.secrets,
        })
    }

    /// Sets header fields of the configuration for a host.
    ///
    /// # Errors
    /// The location is not on an HTTP or WebDAV server.
    pub(super) fn headers(&self, location: &Location, headers: &Headers) -> Result<(), String> {
        match protocol(location) {
            Some(Protocol::Http) => self.http.headers(location, headers),
            _ => return Err("headers are for http, https, dav and davs".to_owned()),
        }
        Ok(())
    }

    /// Notes a host of the command: the name of its remote in the configuration, if any, and the number of the
    /// host list that it is from, if any.
    pub(super) fn note(&self, location: &Location, remote: Option<&str>, list: Option<usize>) {
        self.secrets.note(location, remote, list);
    }

    /// Sets the command that prints the password of a host.
    pub(super) fn password_command(&self, location: &Location, command: &str) {
        self.secrets.has_command(location);
        match protocol(location) {
            Some(Protocol::Sftp) => self.sftp.password_command(location, command),
            Some(Protocol::Http) => self.http.password_command(location, command),
            Some(Protocol::Ftp) => self.ftp.password_command(location, command),
            // The ticket is the secret.
            Some(Protocol::Peer) | None => {}
        }
    }

    /// Opens an existing location; links in it are followed.
    pub(super) async fn existing(&self, location: &Location) -> Result<OpenedPath> {
        match protocol(location) {
            Some(Protocol::Sftp) => self.sftp.existing(location).await,
            Some(Protocol::Http) => self.http.existing(location).await,
            Some(Protocol::Ftp) => self.ftp.existing(location).await,
            Some(Protocol::Peer) => self.peer.existing(location).await,
            None => Err(unsupported(location)),
        }
    }

    /// The location with its ticket in place of a spoken code.
    pub(super) async fn with_ticket(&self, location: &Location) -> Result<Location> {
        self.peer.with_ticket(location).await
    }

    /// The name of a peer's share whose location was opened.
    pub(super) async fn share_name(&self, location: &Location) -> Option<String> {
        self.peer.share_name(location).await
    }

    /// Opens a destination, which need not exist. `name` is that of the only source.
    pub(super) async fn destination(
        &self,
        location: &Location,
        name: Option<&[u8]>,
    ) -> Result<OpenedPath> {
        match protocol(location) {
            Some(Protocol::Sftp) => self.sftp.destination(location, name).await,
            Some(Protocol::Http) => self.http.destination(location).await,
            Some(Protocol::Ftp) => self.ftp.destination(location).await,
            Some(Protocol::Peer) => self.peer.destination(location).await,
            None => Err(unsupported(location)),
        }
    }
}

/// Prints long waits. Each report has a thread of its own, since lanes must not block on a terminal;
/// each host is reported only once in a while.
fn reported_by(printer: &Printer) -> Waits {
    let printer = printer.clone();
    Waits::new(move |wait| {
        let (printer, wait) = (printer.clone(), wait.clone());
        // If no thread can be started, the report is lost; the wait's time limit holds anyway.
        drop(thread::Builder::new().spawn(move || printer.waiting(&wait)));
    })
}

enum Protocol {
    Sftp,
    Http,
    Ftp,
    Peer,
}

fn protocol(location: &Location) -> Option<Protocol> {
    let scheme = match location {
        Location::Remote { scheme, .. } => scheme,
        Location::Peer { .. } => return Some(Protocol::Peer),
        Location::Local(_) | Location::Named { .. } => return None,
    };
    Some(match scheme {
        Scheme::Sftp => Protocol::Sftp,
        Scheme::Http | Scheme::Https | Scheme::Dav | Scheme::Davs => Protocol::Http,
        Scheme::Ftp | Scheme::Ftps => Protocol::Ftp,
    })
}

/// Unreachable in practice: `Storages` opens local paths itself, and `locate` returns no `Named` location.
fn unsupported(location: &Location) -> Error {
    Error::new(ErrorKind::Unsupported, "open").at(location)
}
