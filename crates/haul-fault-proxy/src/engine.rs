//! The thread of the proxy: it sleeps until a socket is ready, a timer expires or a test changes the state,
//! and gives every connection its turn.
//!
//! One thread owns all sockets. So a connection can be closed at any time without another thread being
//! blocked in a read or write on it, and dropping the proxy waits for one thread only.

use std::io::{self, ErrorKind, PipeReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::connection::Connection;
use crate::flow::CHUNK;
use crate::pair::Wants;
use crate::rules::Admission;
use crate::shared::{Shared, State};
use crate::socket::Side;
use crate::{ConnectionState, Injected};

/// The pause after a failed accept, most likely for lack of file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The longest timeout of a poll.
const LONGEST: Duration = Duration::from_secs(3600);

/// Everything that the thread owns.
#[derive(Debug)]
pub(crate) struct Engine {
    listener: TcpListener,
    server: SocketAddr,
    bell: PipeReader,
    shared: Arc<Shared>,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    /// The listener is not polled before this time.
    accept_at: Option<Instant>,
    turns: usize,
}

impl Engine {
    pub(crate) fn new(
        listener: TcpListener,
        server: SocketAddr,
        bell: PipeReader,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            listener,
            server,
            bell,
            shared,
            connections: Vec::new(),
            buffer: vec![0; CHUNK],
            accept_at: None,
            turns: 0,
        }
    }

    /// Runs until it is stopped; then all connections are reset.
    pub(crate) fn run(mut self) {
        // Even if this thread panics, the test does not wait for it in vain.
        let _farewell = Farewell(Arc::clone(&self.shared));
        let shared = Arc::clone(&self.shared);
        let mut paused = false;
        loop {
            let waited = self.wait(paused);
            let mut state = shared.lock();
            let listener_ready = match waited {
                Ok(ready) => ready,
                Err(error) => {
                    state.record.failed(None, "poll", &error);
                    state.stopping = true;
                    false
                }
            };
            let cutting = state.cuts_made < state.cuts_requested;
            if cutting && !state.paused && !state.stopping {
                // Clients that connected before the request are cut as well.
                self.accept(&mut state);
            }
            if state.stopping || cutting {
                for connection in &mut self.connections {
                    connection.cut(&mut state);
                }
                state.cuts_made = state.cuts_requested;
            }
            if state.stopping {
                return;
            }
            paused = state.paused;
            if !paused {
                self.turn(&mut state, listener_ready);
            }
            self.connections.retain(|connection| !connection.is_closed());
            let dirty = state.record.take_dirty();
            drop(state);
            if dirty || cutting {
                shared.announce();
            }
        }
    }

    /// Sleeps until there is something to do, and marks the sockets that are ready. Returns whether the
    /// listener is.
    fn wait(&mut self, paused: bool) -> io::Result<bool> {
        let mut wake = self.accept_at.filter(|_| !paused);
        let mut watched: Vec<(&mut Side, PollFlags)> = Vec::new();
        // While the proxy is paused, it watches only the bell.
        for connection in self.connections.iter_mut().filter(|_| !paused) {
            let Wants { client, server, at } = connection.wants;
            wake = wake.into_iter().chain(at).min();
            let sides = connection.sides();
            watched.extend(sides.0.zip(client));
            watched.extend(sides.1.zip(server));
        }
        let accepts = !paused && self.accept_at.is_none();
        let listening = if accepts { PollFlags::IN } else { PollFlags::empty() };
        let mut fds =
            vec![PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&self.listener, listening)];
        fds.extend(watched.iter().map(|(side, events)| PollFd::new(&side.socket, *events)));

        let timeout = wake.map(|at| at.saturating_duration_since(Instant::now()).min(LONGEST));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        }

        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let mut ready = ready.into_iter();
        if ready.next().is_some_and(|flags| !flags.is_empty()) {
            // These bytes only wake the thread: the test's change is in the state, which is checked next.
            let _rings = (&self.bell).read(&mut [0; 64])?;
        }
        let listener_ready = ready.next().is_some_and(|flags| !flags.is_empty());
        for ((side, _), flags) in watched.into_iter().zip(ready) {
            let over = flags.intersects(PollFlags::ERR | PollFlags::HUP);
            side.hung |= over;
            side.readable |= over || flags.contains(PollFlags::IN);
            side.writable |= over || flags.contains(PollFlags::OUT);
        }
        Ok(listener_ready)
    }

    /// Gives every connection its turn and accepts new ones.
    fn turn(&mut self, state: &mut State, listener_ready: bool) {
        // Each turn begins with another connection, so that all get the same share of a common link.
        self.turns = self.turns.wrapping_add(1);
        let begin = self.turns % self.connections.len().max(1);
        let (second, first) = self.connections.split_at_mut(begin);
        for connection in first.iter_mut().chain(second) {
            connection.step(self.server, state, &mut self.buffer);
        }
        if self.accept_at.is_some_and(|at| at <= Instant::now()) {
            self.accept_at = None;
        } else if listener_ready {
            self.accept(state);
        }
    }

    fn accept(&mut self, state: &mut State) {
        loop {
            match self.listener.accept() {
                Ok((socket, client)) => self.admit(socket, client, state),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The client was gone before it was accepted; another may be waiting.
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                    _ => {
                        state.record.failed(None, "accept", &error);
                        self.accept_at = Some(Instant::now() + ACCEPT_AGAIN);
                        return;
                    }
                },
            }
        }
    }

    fn admit(&mut self, socket: TcpStream, client: SocketAddr, state: &mut State) {
        let open = state.record.stats.open;
        let number = state.record.accepted(client);
        let side = match Side::new(socket) {
            Ok(side) => side,
            Err(error) => {
                state.record.failed(Some(number), "set up", &error);
                state.record.closed(number, ConnectionState::Cut);
                return;
            }
        };
        match state.rules.admission(number, open) {
            Admission::Forward => {}
            Admission::Stall(rule) => state.record.fire_once(rule, number, Injected::Stalled),
            Admission::Refuse(rule, what) => {
                state.record.fire_once(rule, number, what);
                state.record.closed(number, ConnectionState::Refused);
                side.reset();
                return;
            }
        }
        state.record.admitted();
        let mut connection = Connection::new(number, side);
        connection.step(self.server, state, &mut self.buffer);
        self.connections.push(connection);
    }
}

/// Reports that the thread has ended, even by a panic.
#[derive(Debug)]
struct Farewell(Arc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.announce();
    }
}
