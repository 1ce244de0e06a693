//! The server: its options, its listening socket, and its threads.
//!
//! All tasks of a connection run on one thread, so that passing a packet between SSH and the session wakes no other
//! thread. There are as many threads as processors; a connection is assigned to the thread that has the fewest.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdTcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};
use std::time::Duration;

use haul_net::{Admission, Running, Stopper};
use haul_storage::{Error, ErrorKind, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::connection::{self, Arrival, Served};
use super::credentials::Credentials;
use super::host_key::HostKey;
use super::share::{Share, ShareOptions};
use super::transport;
use super::visitor::{ClientAction, ClientEvent, Observer};

/// Connections in addition to one per session, for clients that open a connection before its session. At most three
/// quarters of all connections, but at least this many, may be unauthenticated.
const SPARE_CONNECTIONS: usize = 32;

/// Default time to log in. sshd allows two minutes (`LoginGraceTime`) for users who type a password; here most have a
/// key.
const LOGIN_GRACE: Duration = Duration::from_secs(60);

/// Most threads for connections.
const THREADS: usize = 16;

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

    /// Stops the server. Asks all clients to disconnect, and returns when the last one is gone; those that stay are
    /// disconnected.
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

    /// Refuses every change.
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
    /// If there are no credentials, the directory cannot be served, or the address cannot be listened on.
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

/// Starts the threads for connections, and the one that accepts them.
fn start(served: &Arc<Served>, listener: StdTcpListener, running: &Running) -> Result<()> {
    let failed = |error| Error::from_io("start a thread", error);
    let mut workers = Vec::new();
    let count = available_parallelism().map_or(2, usize::from).clamp(1, THREADS);
    let spawn = |work: Box<dyn FnOnce(Runtime) + Send>| {
        let runtime = RuntimeBuilder::new_current_thread().enable_all().build().map_err(failed)?;
        let running = running.clone();
        let run = move || {
            work(runtime);
            drop(running);
        };
        thread::Builder::new().name("haul-sftp".to_owned()).spawn(run).map_err(failed)
    };
    for _ in 0..count {
        let (connections, arrivals) = unbounded_channel();
        let load = Arc::new(AtomicUsize::new(0));
        let worker = Worker {
            served: Arc::clone(served),
            running: running.clone(),
            load: Arc::clone(&load),
        };
        spawn(Box::new(move |runtime| runtime.block_on(worker.run(arrivals))))?;
        workers.push((load, connections));
    }
    let most = served.share.options.sessions.saturating_add(SPARE_CONNECTIONS);
    let admission = Admission::new(most, SPARE_CONNECTIONS.max(most - most / 4));
    let (observer, running) = (served.observer.clone(), running.clone());
    spawn(Box::new(move |runtime| {
        runtime.block_on(accept(listener, workers, &admission, observer, running));
    }))?;
    Ok(())
}

/// Accepts connections and assigns each to the thread that has the fewest.
async fn accept(
    listener: StdTcpListener,
    workers: Vec<(Arc<AtomicUsize>, UnboundedSender<Arrival>)>,
    admission: &Arc<Admission>,
    observer: Observer,
    running: Running,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let serve = |socket: TcpStream, from, admitted| {
        let least = workers.iter().min_by_key(|(load, _)| load.load(Ordering::Relaxed));
        // If the socket fails here, the client has disconnected.
        if let (Some((load, worker)), Ok(socket)) = (least, socket.into_std()) {
            load.fetch_add(1, Ordering::Relaxed);
            // A thread ends only when the server stops.
            drop(worker.send(Arrival { socket, from, admitted }));
        }
    };
    let turn_away = |socket: TcpStream, from| {
        // RFC 4253, section 4.2, allows lines before the identification. An error is ignored: the connection is closed
        // anyway.
        drop(socket.try_write(b"haul: too many connections; try again later\r\n"));
        observer.tell(from, ClientAction::TurnedAway);
    };
    running.accept(listener, admission, serve, turn_away).await;
}

struct Worker {
    served: Arc<Served>,
    running: Running,
    /// The number of its connections.
    load: Arc<AtomicUsize>,
}

impl Worker {
    async fn run(self, mut arrivals: UnboundedReceiver<Arrival>) {
        let mut connections = JoinSet::new();
        let mut running = self.running.clone();
        loop {
            tokio::select! {
                Some(arrival) = arrivals.recv() => {
                    let served = Arc::clone(&self.served);
                    let connection = connection::serve(served, arrival, self.running.clone());
                    let load = Loaded(Arc::clone(&self.load));
                    connections.spawn(async move {
                        // An error means that the client has disconnected.
                        drop(connection.await);
                        drop(load);
                    });
                }
                Some(_) = connections.join_next() => {}
                () = running.stopped() => break,
            }
        }
        while connections.join_next().await.is_some() {}
    }
}

/// Counts a connection of a worker until it is dropped.
struct Loaded(Arc<AtomicUsize>);

impl Drop for Loaded {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
