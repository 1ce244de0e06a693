//! The server: its options, its listening socket, and its threads.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_net::{Admission, Jail, Running, Stopper, start_workers};
use haul_storage::{Error, ErrorKind, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::client::Client;
use super::connection::{self, Served};
use super::credentials::Credentials;
use super::failures::Failures;
use super::gate::Gate;
use super::handler::Handler;
use super::names::Names;
use super::share::Share;
use super::tls::ServerTls;
use super::visitor::{ClientAction, ClientEvent, Observer};

/// Default limit of connections at once.
const CONNECTIONS: usize = 256;

/// The response to excess connections, if the server does not use TLS.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n\
                          Content-Length: 0\r\nConnection: close\r\n\r\n";

/// Options of a WebDAV server.
#[derive(Debug, Clone)]
pub struct DavServerBuilder {
    directory: PathBuf,
    items: Vec<(Vec<u8>, PathBuf)>,
    listen: SocketAddr,
    credentials: Option<Credentials>,
    anonymous: bool,
    tls: Option<ServerTls>,
    names: Vec<String>,
    read_only: bool,
    connections: usize,
    observer: Observer,
}

/// A running WebDAV server. Dropping it stops it without waiting.
pub struct DavServer {
    address: SocketAddr,
    fingerprint: Option<String>,
    stopper: Stopper,
}

impl DavServer {
    /// A server for `directory`. The defaults are no TLS, no password, and a free port of the loopback interface.
    pub fn builder(directory: impl AsRef<Path>) -> DavServerBuilder {
        DavServerBuilder {
            directory: directory.as_ref().to_owned(),
            items: Vec::new(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            credentials: None,
            anonymous: false,
            tls: None,
            names: Vec::new(),
            read_only: false,
            connections: CONNECTIONS,
            observer: Observer::default(),
        }
    }

    /// The address on which the server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the server, such as `http://127.0.0.1:8080/`.
    pub fn url(&self) -> String {
        let scheme = if self.fingerprint.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    /// The fingerprint of the server's certificate, if it uses TLS; see [`ServerTls::fingerprint`].
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Stops the server. Requests in progress may complete within two seconds. Returns when the last client is gone.
    pub async fn stop(self) {
        self.stopper.stop().await;
    }
}

impl fmt::Debug for DavServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DavServer({})", self.url())
    }
}

impl DavServerBuilder {
    /// Serves files and directories from anywhere, each with its name and its canonical path. The directory has nothing
    /// but a symbolic link for each; see [`Jail::with_items`].
    #[must_use]
    pub fn items(mut self, items: Vec<(Vec<u8>, PathBuf)>) -> Self {
        self.items = items;
        self
    }

    /// Sets the address to listen on.
    #[must_use]
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Requires these credentials.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Allows access without a password even from other machines.
    #[must_use]
    pub const fn anonymous(mut self, anonymous: bool) -> Self {
        self.anonymous = anonymous;
        self
    }

    /// Enables TLS with this certificate.
    #[must_use]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Adds a host name under which clients may access the server. Without a password, requests may use only these
    /// names, the names of this machine, `localhost` and its subdomains, and IP addresses.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Refuses every change.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the most connections at once; the default is 256. If a password is required, at most three quarters of the
    /// connections may be unauthenticated.
    #[must_use]
    pub const fn max_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets a callback for events about clients. The server's threads call it, so it must not block.
    #[must_use]
    pub fn observer(mut self, callback: impl Fn(ClientEvent) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(callback);
        self
    }

    /// Starts the server, on threads of its own.
    ///
    /// # Errors
    /// If other machines could access the server without a password and [`anonymous`](Self::anonymous) was not called,
    /// if the directory cannot be served, the address cannot be listened on, or a thread cannot be started.
    pub async fn bind(self) -> Result<DavServer> {
        let is_open = self.credentials.is_none() && !self.anonymous;
        if is_open && !self.listen.ip().is_loopback() {
            return Err(Error::new(ErrorKind::InvalidInput, "serve").at(self.listen).because(
                "it is reachable from other machines: require a password, or allow anonymous \
                 access",
            ));
        }
        let jail = Jail::open(&self.directory)?.with_items(self.items)?;
        let share = Arc::new(Share::new(jail, self.read_only)?);
        let failed = |error| Error::from_io("listen", error).at(self.listen);
        let listener =
            TcpListener::bind(self.listen).await.and_then(TcpListener::into_std).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let unauthenticated = match &self.credentials {
            Some(_) => self.connections - self.connections / 4,
            None => self.connections,
        };
        let admission = Admission::new(self.connections, unauthenticated);
        let gate = Gate {
            names: Names::new(&self.names),
            credentials: self.credentials,
            failures: Failures::default(),
            observer: self.observer.clone(),
        };
        let fingerprint = self.tls.as_ref().map(|tls| tls.fingerprint().to_owned());
        let served = Arc::new(Served {
            handler: Handler::new(share, gate),
            tls: self.tls.map(|tls| TlsAcceptor::from(tls.config)),
            observer: self.observer,
        });
        let (stopper, running) = Stopper::new();
        start(served, (listener, admission), &running)?;
        Ok(DavServer { address, fingerprint, stopper })
    }
}

/// Starts the server's threads.
fn start(
    served: Arc<Served>,
    accepts: (StdTcpListener, Arc<Admission>),
    running: &Running,
) -> Result<()> {
    let of_refused = Arc::clone(&served);
    let serve = move |socket: TcpStream, from, admitted, running| {
        let client = Client::new(&socket, from, admitted);
        connection::serve(Arc::clone(&served), socket, client, running)
    };
    let turn_away = move |socket: TcpStream, from| {
        if of_refused.tls.is_none() {
            // An error is ignored: the connection is closed anyway.
            drop(socket.try_write(TOO_MANY));
        }
        of_refused.observer.notify(from, ClientAction::TurnedAway);
    };
    start_workers("haul-dav", accepts, running, serve, turn_away)
        .map_err(|error| Error::from_io("start a thread", error))
}
