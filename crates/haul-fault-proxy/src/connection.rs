//! State machine of one proxied connection, from accept to close.
//!
//! A connection is stalled, or connects to the server. Then it is open, and `pair` forwards the bytes. At the end it
//! may be draining: it is reset once the receiver has acknowledged all forwarded bytes.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::pair::{Pair, Turn, Wants};
use crate::shared::State;
use crate::socket::{Side, connect, connected, unconfirmed};
use crate::{ConnectionState, Direction};

/// Longest and first interval between polls for unacknowledged bytes while draining; it doubles each
/// time. A receiver on the same machine acknowledges within 40 ms (delayed ACK).
const LONGEST_POLL: Duration = Duration::from_millis(20);
const FIRST_POLL: Duration = Duration::from_millis(1);

/// How long to drain where the system does not report unacknowledged bytes.
const GRACE: Duration = Duration::from_millis(200);

/// One client's connection and the one to the server; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u64,
    stage: Stage,
    pub(crate) wants: Wants,
}

#[derive(Debug)]
enum Stage {
    Stalled(Side),
    Connecting(Side, Side),
    Open(Box<Pair>),
    Draining(Box<Pair>, Drain),
    Closed,
}

/// A reset that waits until the receiver has all bytes.
#[derive(Debug)]
struct Drain {
    direction: Direction,
    began: Instant,
    /// Time of the next poll, and the interval after it.
    poll_at: Instant,
    poll_interval: Duration,
}

impl Connection {
    /// A connection that was just accepted. The first [`step`](Self::step) either stalls or connects it.
    pub(crate) fn new(number: u64, client: Side) -> Self {
        Self { number, stage: Stage::Stalled(client), wants: Wants::default() }
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed)
    }

    /// The sockets to the client and to the server, as far as they exist.
    pub(crate) fn sides(&mut self) -> (Option<&mut Side>, Option<&mut Side>) {
        match &mut self.stage {
            Stage::Stalled(client) => (Some(client), None),
            Stage::Connecting(client, server) => (Some(client), Some(server)),
            Stage::Open(pair) | Stage::Draining(pair, _) => {
                (Some(&mut pair.client), Some(&mut pair.server))
            }
            Stage::Closed => (None, None),
        }
    }

    /// Makes all progress possible without blocking, and sets `wants` to the events that it waits for.
    pub(crate) fn step(&mut self, server: SocketAddr, state: &mut State, buffer: &mut [u8]) {
        self.wants = Wants::default();
        self.stage = match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Stalled(client) => self.stalled(client, server, state),
            Stage::Connecting(client, server) => self.connecting(client, server, state),
            stage => stage,
        };
        // A connection established just now forwards bytes in the same step.
        self.stage = match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Open(pair) => self.open(pair, state, buffer),
            Stage::Draining(pair, drain) => self.draining(pair, drain, state),
            stage => stage,
        };
    }

    /// Resets both sides at once and discards the bytes in flight.
    pub(crate) fn cut(&mut self, state: &mut State) {
        self.close(ConnectionState::Cut, state);
    }

    fn close(&mut self, how: ConnectionState, state: &mut State) {
        let stage = std::mem::replace(&mut self.stage, Stage::Closed);
        if matches!(stage, Stage::Closed) {
            return;
        }
        // Update the stats before the sockets: a test that sees the reset reads consistent stats.
        state.record.closed(self.number, how);
        match stage {
            Stage::Stalled(client) => client.reset(),
            Stage::Connecting(client, server) => {
                client.reset();
                server.reset();
            }
            Stage::Open(pair) | Stage::Draining(pair, _) => pair.reset(),
            Stage::Closed => {}
        }
    }

    fn stalled(&mut self, client: Side, server: SocketAddr, state: &mut State) -> Stage {
        if client.hung {
            return self.close_from(Stage::Stalled(client), ConnectionState::Cut, state);
        }
        if state.rules.stalls(self.number) {
            self.wants.client = Some(PollFlags::empty());
            return Stage::Stalled(client);
        }
        match connect(server) {
            Ok(server) => self.connecting(client, server, state),
            Err(error) => self.unreachable(Stage::Stalled(client), &error, state),
        }
    }

    fn connecting(&mut self, client: Side, server: Side, state: &mut State) -> Stage {
        if !server.writable {
            self.wants.server = Some(PollFlags::OUT);
            return Stage::Connecting(client, server);
        }
        match connected(&server) {
            Ok(()) => Stage::Open(Box::new(Pair::new(self.number, client, server))),
            Err(error) => self.unreachable(Stage::Connecting(client, server), &error, state),
        }
    }

    fn unreachable(&mut self, stage: Stage, error: &io::Error, state: &mut State) -> Stage {
        state.record.failed(Some(self.number), "connect", error);
        self.close_from(stage, ConnectionState::Unreachable, state)
    }

    fn close_from(&mut self, stage: Stage, how: ConnectionState, state: &mut State) -> Stage {
        self.stage = stage;
        self.close(how, state);
        Stage::Closed
    }

    fn open(&mut self, mut pair: Box<Pair>, state: &mut State, buffer: &mut [u8]) -> Stage {
        match pair.pump(state, buffer) {
            Turn::Going(wants) => {
                self.wants = wants;
                Stage::Open(pair)
            }
            Turn::Finished => {
                state.record.closed(self.number, ConnectionState::Finished);
                Stage::Closed
            }
            Turn::Cut(direction) => {
                let now = Instant::now();
                let drain =
                    Drain { direction, began: now, poll_at: now, poll_interval: FIRST_POLL };
                self.draining(pair, drain, state)
            }
        }
    }

    fn draining(&mut self, pair: Box<Pair>, mut drain: Drain, state: &mut State) -> Stage {
        let receiver = pair.receiver(drain.direction);
        let now = Instant::now();
        let done = receiver.hung
            || (drain.poll_at <= now
                && match unconfirmed(&receiver.socket) {
                    Some(bytes) => bytes == 0,
                    None => now.saturating_duration_since(drain.began) >= GRACE,
                });
        if done {
            return self.close_from(Stage::Draining(pair, drain), ConnectionState::Cut, state);
        }
        if drain.poll_at <= now {
            drain.poll_at = now + drain.poll_interval;
            drain.poll_interval = (drain.poll_interval * 2).min(LONGEST_POLL);
        }
        self.wants.wake(drain.poll_at);
        match drain.direction {
            Direction::ToServer => self.wants.server = Some(PollFlags::empty()),
            Direction::ToClient => self.wants.client = Some(PollFlags::empty()),
        }
        Stage::Draining(pair, drain)
    }
}
