//! The server as a whole: options, the listening socket, the connections.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haul_net::{Admission, Running, Stopper};
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

/// Connections at once, if nothing is said.
const CONNECTIONS: usize = 256;

/// What is said to who comes when there are too many, if that can be said without TLS.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n\
                          Content-Length: 0\r\nConnection: close\r\n\r\n";

/// What a WebDAV server is made of.
#[derive(Debug, Clone)]
pub struct DavServerBuilder {
    directory: PathBuf,
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
    /// A server for `directory`, without TLS and password, on a port of the loopback interface that the
    /// system chooses.
    pub fn builder(directory: impl AsRef<Path>) -> DavServerBuilder {
        DavServerBuilder {
            directory: directory.as_ref().to_owned(),
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

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is, for clients: `http://127.0.0.1:8080/`.
    pub fn url(&self) -> String {
        let scheme = if self.fingerprint.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/", self.address)
    }

    /// What identifies its certificate, if it speaks TLS; see [`ServerTls::fingerprint`].
    pub fn fingerprint(&self) -> Option<&str> {
        self.fingerprint.as_deref()
    }

    /// Lets what is under way end, within two seconds, and returns when the last client is gone.
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
    /// Listens there.
    #[must_use]
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Lets only those in.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Lets everybody in who reaches it, from other machines as well.
    #[must_use]
    pub const fn anonymous(mut self, anonymous: bool) -> Self {
        self.anonymous = anonymous;
        self
    }

    /// Speaks TLS, with that certificate.
    #[must_use]
    pub fn tls(mut self, tls: ServerTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// A further name by which clients come. Without a password they may come by those of the machine,
    /// by `localhost` and by addresses only.
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

    /// How many connections there may be at once; 256 if nothing is said. Where there is a password,
    /// those that have not given it may have three quarters of them.
    #[must_use]
    pub const fn max_connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Tells what clients do. The server's threads call `told`: it must not block.
    #[must_use]
    pub fn observer(mut self, told: impl Fn(ClientEvent) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(told);
        self
    }

    /// Listens and serves, on the runtime that this is called on.
    ///
    /// # Errors
    /// If everybody on the network could come and that was not said, the directory cannot be served, or
    /// the address cannot be listened on.
    pub async fn bind(self) -> Result<DavServer> {
        let is_open = self.credentials.is_none() && !self.anonymous;
        if is_open && !self.listen.ip().is_loopback() {
            return Err(Error::new(ErrorKind::InvalidInput, "serve").at(self.listen).because(
                "it is reachable from other machines: require a password, or allow anonymous \
                 access",
            ));
        }
        let share = Arc::new(Share::open(&self.directory, self.read_only)?);
        let failed = |error| Error::from_io("listen", error).at(self.listen);
        let listener = TcpListener::bind(self.listen).await.map_err(failed)?;
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
        tokio::spawn(accept(listener, served, admission, running));
        Ok(DavServer { address, fingerprint, stopper })
    }
}

/// Accepts connections until the server stops.
async fn accept(
    listener: TcpListener,
    served: Arc<Served>,
    admission: Arc<Admission>,
    running: Running,
) {
    let of_connections = running.clone();
    let serve = |socket: TcpStream, from, admitted| {
        let client = Client::new(&socket, from, admitted);
        let running = of_connections.clone();
        tokio::spawn(connection::serve(Arc::clone(&served), socket, client, running));
    };
    let turn_away = |socket: TcpStream, from| {
        if served.tls.is_none() {
            // Whether it arrives is the client's loss.
            drop(socket.try_write(TOO_MANY));
        }
        served.observer.tell(from, ClientAction::TurnedAway);
    };
    running.accept(listener, &admission, serve, turn_away).await;
}
