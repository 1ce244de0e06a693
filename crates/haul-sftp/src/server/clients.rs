//! Tracks the connected clients, so that a new session does not overtake the requests of a client that has vanished.
//!
//! A run of haul that was killed may have left requests in the socket, in SSH and in its session. The next run repeats
//! the copy, and a late request of the first would damage it: an OPEN that creates a part file beside the finished
//! file, or a RENAME of the part file that the second run is writing. The kernel knows at once that the first client
//! has closed its connection; SSH learns it only after reading all earlier bytes. So before a session begins,
//! [`Clients::settle`] polls the sockets, disconnects the clients that are gone, and waits for their requests in
//! progress.

use std::net::{Shutdown, TcpStream as StdTcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a new session waits for requests in progress of vanished clients.
const SETTLE: Duration = Duration::from_secs(10);

/// All connections of a server, as long as they or their sessions last.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<Vec<Weak<Client>>>);

/// The client of a connection.
#[derive(Debug)]
pub(super) struct Client {
    /// A second descriptor of the socket, which the SSH library's task owns.
    socket: StdTcpStream,
    /// Dropped when the client has disconnected; its sessions hold weak references.
    connected: Mutex<Option<Arc<()>>>,
    /// Each session holds a receiver.
    sessions: watch::Sender<()>,
}

/// Held while a session is served.
#[derive(Debug)]
pub(super) struct InSession {
    _client: Arc<Client>,
    _session: watch::Receiver<()>,
}

/// Disconnects a client when it is dropped.
#[derive(Debug)]
pub(super) struct Connected(pub(super) Arc<Client>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

impl Clients {
    /// Adds the client of a connection; `socket` is a second descriptor of its socket.
    pub(super) fn add(&self, socket: StdTcpStream) -> Connected {
        let connected = Mutex::new(Some(Arc::default()));
        let client = Arc::new(Client { socket, connected, sessions: watch::Sender::new(()) });
        let mut clients = lock(&self.0);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(&client));
        Connected(client)
    }

    /// Disconnects clients that have closed their connection, and waits until none of their requests is in progress, at
    /// most [`SETTLE`].
    pub(super) async fn settle(&self) {
        let gone: Vec<_> = lock(&self.0)
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|client| client.is_gone())
            .collect();
        gone.iter().for_each(|client| client.disconnect());
        let ended = join_all(gone.iter().map(|client| client.sessions.closed()));
        // A disk that does not respond in time delays the requests of the new session as well.
        drop(timeout(SETTLE, ended).await);
    }
}

impl Client {
    /// Invalid once the client has disconnected.
    pub(super) fn connected(&self) -> Weak<()> {
        lock(&self.connected).as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    /// Registers a session, which lasts until the result is dropped.
    pub(super) fn begin_session(self: &Arc<Self>) -> InSession {
        InSession { _client: Arc::clone(self), _session: self.sessions.subscribe() }
    }

    /// Whether the client has disconnected or closed its sending side. SSH has no half-closed connections.
    fn is_gone(&self) -> bool {
        if lock(&self.connected).is_none() {
            return true;
        }
        let wanted = PollFlags::RDHUP;
        let mut sockets = [PollFd::new(&self.socket, wanted)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = poll(&mut sockets, Some(&now)).is_ok_and(|ready| ready > 0);
        found && sockets[0].revents().intersects(wanted | PollFlags::HUP | PollFlags::ERR)
    }

    /// Ends its connection. Its sessions drop the requests that they have not begun.
    fn disconnect(&self) {
        lock(&self.connected).take();
        // Fails if the connection has ended by itself.
        drop(self.socket.shutdown(Shutdown::Both));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use tokio::time::{Instant, sleep};

    use super::*;

    /// Both ends of a connection, the client's first.
    fn pair() -> (StdTcpStream, StdTcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = StdTcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[tokio::test]
    async fn a_new_session_waits_for_requests_of_a_vanished_client_that_are_in_progress() {
        let clients = Clients::default();
        let (mut one, its_socket) = pair();
        let (other, other_socket) = pair();
        let (vanishes, stays) = (clients.add(its_socket), clients.add(other_socket));
        let (session, _other_session) = (vanishes.0.begin_session(), stays.0.begin_session());
        // While both clients are connected, `settle` does not wait.
        timeout(Duration::from_secs(5), clients.settle()).await.unwrap();
        assert_eq!(vanishes.0.connected().strong_count(), 1);
        // Bytes that the client sent before it vanished are still unread.
        one.write_all(b"requests").unwrap();
        drop(one);
        let begun = Instant::now();
        let ends = async {
            sleep(Duration::from_millis(50)).await;
            drop(session);
        };
        tokio::join!(timeout(Duration::from_secs(5), clients.settle()), ends).0.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(50));
        assert_eq!(vanishes.0.connected().strong_count(), 0);
        assert_eq!(stays.0.connected().strong_count(), 1);
        drop(other);
    }

    #[tokio::test]
    async fn a_new_session_waits_for_the_sessions_of_an_ended_connection() {
        let clients = Clients::default();
        let (_client, socket) = pair();
        let connection = clients.add(socket);
        let (connected, session) = (connection.0.connected(), connection.0.begin_session());
        drop(connection);
        assert_eq!(connected.strong_count(), 0);
        let waits = timeout(Duration::from_millis(50), clients.settle()).await;
        assert!(waits.is_err());
        drop(session);
        timeout(Duration::from_secs(5), clients.settle()).await.unwrap();
    }
}
