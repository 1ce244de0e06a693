//! The server: its options, its listening socket, and its threads.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haul_net::{Admission, Running, Stopper, start_workers};
use haul_storage::{Error, ErrorKind, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::client_log::{ClientAction, ClientEvent, Observer};
use super::connection::{self, Arrival, Served};
use super::credentials::Credentials;
use super::host_key::HostKey;
use super::share::{Share, ShareOptions};
use super::transport;

/// Connections in addition to one per session, for clients that open a connection before its session. Up to three
/// quarters of all connections, and never fewer than this many, may be unauthenticated.
const SPARE_CONNECTIONS: usize = 32;

/// Default time to log in. sshd allows two minutes (`LoginGraceTime`) for users who type a password; here most have a
/// key.
const LOGIN_GRACE: Duration = Duration::from_secs(60);

/// Options of an SFTP server.
#[derive(Debug, Clone)]
pub struct SftpServerBuilder {
    directory: PathBuf,
    listen: SocketAddr,
    credentials: Option<Credentials>,
    host_key: Option<HostKey>,
    login_grace: Duration,
    observer: Observer,
    options: ShareOptions,
}

/// A running SFTP server. Dropping it stops it without waiting.
pub struct SftpServer {
    address: SocketAddr,
    fingerprint: String,
    public_key: String,
    stopper: Stopper,
}

impl SftpServer {
    /// A server for `directory`. The defaults are a free port of the loopback interface, a new host key, and no
    /// credentials.
    pub fn builder(directory: impl AsRef<Path>) -> SftpServerBuilder {
        SftpServerBuilder {
            directory: directory.as_ref().to_owned(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            credentials: None,
            host_key: None,
            login_grace: LOGIN_GRACE,
            observer: Observer::default(),
            options: ShareOptions::default(),
        }
    }

    /// The address on which the server listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The fingerprint of the host key: `SHA256:…`.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The host key in the format of `known_hosts`, without the host: `ssh-ed25519 AAAA…`.
    pub fn public_key(&self) -> &str {
        &self.public_key
    }

    /// Stops the server. Sends DISCONNECT to all clients, and returns when the last connection is closed; clients that
    /// have not closed theirs after a second are cut off.
    pub async fn stop(self) {
        self.stopper.stop().await;
    }
}

impl fmt::Debug for SftpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SftpServer({})", self.address)
    }
}

impl SftpServerBuilder {
    /// Sets the address to listen on.
    #[must_use]
    pub const fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Sets the credentials of the user who may log in.
    #[must_use]
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Sets the host key.
    #[must_use]
    pub fn host_key(mut self, key: HostKey) -> Self {
        self.host_key = Some(key);
        self
    }

    /// Sets how long a client may take to log in before it is disconnected; the default is one minute.
    #[must_use]
    pub const fn login_grace(mut self, grace: Duration) -> Self {
        self.login_grace = grace;
        self
    }

    /// Sets a callback for events about clients. The server's threads call it, so it must not block.
    #[must_use]
    pub fn observer(mut self, callback: impl Fn(ClientEvent) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(callback);
        self
    }

    /// Sets whether every change is refused.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.options.read_only = read_only;
        self
    }

    /// Sets the most sessions at once.
    #[must_use]
    pub const fn max_sessions(mut self, sessions: usize) -> Self {
        self.options.sessions = sessions;
        self
    }

    /// Sets the most open handles per session.
    #[must_use]
    pub const fn max_handles(mut self, handles: usize) -> Self {
        self.options.handles = handles;
        self
    }

    /// Sets the most bytes that all sessions together may hold, see [`ShareOptions::memory`].
    #[must_use]
    pub const fn memory(mut self, bytes: usize) -> Self {
        self.options.memory = bytes;
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    /// If there are no credentials, the directory cannot be served, the server cannot listen on the address, or a host
    /// key or thread cannot be created.
    pub async fn bind(self) -> Result<SftpServer> {
        let credentials = self.credentials.filter(|one| one.has_keys() || one.has_password());
        let credentials = credentials.ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, "serve")
                .at(self.directory.display())
                .because("no client could log in: configure keys or a password")
        })?;
        let host_key = self.host_key.map_or_else(HostKey::generate, Ok)?;
        let share = Arc::new(Share::open(&self.directory, self.options)?);
        let listener = TcpListener::bind(self.listen)
            .await
            .and_then(TcpListener::into_std)
            .map_err(|error| Error::from_io("listen", error).at(self.listen))?;
        let address = listener
            .local_addr()
            .map_err(|error| Error::from_io("listen", error).at(self.listen))?;
        let served = Arc::new(Served {
            config: Arc::new(transport::config(&host_key, &credentials)),
            sessions: Arc::new(Semaphore::new(self.options.sessions)),
            share,
            clients: Arc::default(),
            credentials,
            login_grace: self.login_grace,
            observer: self.observer,
        });
        let (stopper, running) = Stopper::new();
        start(&served, listener, &running)?;
        Ok(SftpServer {
            address,
            fingerprint: host_key.fingerprint(),
            public_key: host_key.public_line()?,
            stopper,
        })
    }
}

/// Starts the server's threads.
fn start(served: &Arc<Served>, listener: StdTcpListener, running: &Running) -> Result<()> {
    let most = served.share.options.sessions.saturating_add(SPARE_CONNECTIONS);
    let admission = Admission::new(most, SPARE_CONNECTIONS.max(most - most / 4));
    let (served, observer) = (Arc::clone(served), served.observer.clone());
    let serve = move |socket, from, admitted, running| {
        let arrival = Arrival { socket, from, admitted };
        let connection = connection::serve(Arc::clone(&served), arrival, running);
        async move {
            // An error means that the client has disconnected, or that no descriptors are left.
            drop(connection.await);
        }
    };
    let turn_away = move |socket: TcpStream, from| {
        // RFC 4253, section 4.2, allows lines before the identification. An error is ignored: the connection is closed
        // anyway.
        drop(socket.try_write(b"haul: too many connections; try again later\r\n"));
        observer.notify(from, ClientAction::ConnectionRefused);
    };
    start_workers("haul-sftp", (listener, admission), running, serve, turn_away)
        .map_err(|error| Error::from_io("start a thread", error))
}
