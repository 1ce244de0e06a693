//! One client's connection from being accepted to being closed.
//!
//! Stalled, or connecting to the server; then open, where `pair` moves the bytes; then perhaps
//! draining: to be reset, but not before the receiver has the bytes that it is to get.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use crate::pair::{Pair, Turn, Wants};
use crate::shared::State;
use crate::socket::{Side, connect, connected, unconfirmed};
use crate::{ConnectionState, Direction};

/// A receiver on the same machine confirms within 40 ms; so long is waited at most before the
/// system is asked again whether it has, at first a fraction.
const LONGEST_LOOK: Duration = Duration::from_millis(20);
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// Where the system does not say whether the receiver has everything, it gets this long.
const GRACE: Duration = Duration::from_millis(200);

/// See the module.
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

/// A reset that waits.
#[derive(Debug)]
struct Drain {
    direction: Direction,
    began: Instant,
    /// When to ask again, and after how long then.
    look_at: Instant,
    look_after: Duration,
}

impl Connection {
    /// One that was just accepted. The first step decides what becomes of it.
    pub(crate) fn new(number: u64, client: Side) -> Self {
        Self { number, stage: Stage::Stalled(client), wants: Wants::default() }
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed)
    }

    /// Both sockets, as far as there are.
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

    /// Does what can be done now, and notes in `wants` what it waits for.
    pub(crate) fn step(&mut self, server: SocketAddr, state: &mut State, buffer: &mut [u8]) {
        self.wants = Wants::default();
        self.stage = match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Stalled(client) => self.stalled(client, server, state),
            Stage::Connecting(client, server) => self.connecting(client, server, state),
            stage => stage,
        };
        // A connection that is made just now opens in the same step.
        self.stage = match std::mem::replace(&mut self.stage, Stage::Closed) {
            Stage::Open(pair) => self.open(pair, state, buffer),
            Stage::Draining(pair, drain) => self.draining(pair, drain, state),
            stage => stage,
        };
    }

    /// Resets both sides now, whatever is under way.
    pub(crate) fn cut(&mut self, state: &mut State) {
        self.close(ConnectionState::Cut, state);
    }

    fn close(&mut self, how: ConnectionState, state: &mut State) {
        let stage = std::mem::replace(&mut self.stage, Stage::Closed);
        if matches!(stage, Stage::Closed) {
            return;
        }
        // First the books, then the sockets: whoever notices finds it written.
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
            return self.give_up(Stage::Stalled(client), ConnectionState::Cut, state);
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
        self.give_up(stage, ConnectionState::Unreachable, state)
    }

    fn give_up(&mut self, stage: Stage, how: ConnectionState, state: &mut State) -> Stage {
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
                let drain = Drain { direction, began: now, look_at: now, look_after: FIRST_LOOK };
                self.draining(pair, drain, state)
            }
        }
    }

    fn draining(&mut self, pair: Box<Pair>, mut drain: Drain, state: &mut State) -> Stage {
        let receiver = pair.receiver(drain.direction);
        let now = Instant::now();
        let done = receiver.hung
            || (drain.look_at <= now
                && match unconfirmed(&receiver.socket) {
                    Some(bytes) => bytes == 0,
                    None => now.saturating_duration_since(drain.began) >= GRACE,
                });
        if done {
            return self.give_up(Stage::Draining(pair, drain), ConnectionState::Cut, state);
        }
        if drain.look_at <= now {
            drain.look_at = now + drain.look_after;
            drain.look_after = (drain.look_after * 2).min(LONGEST_LOOK);
        }
        self.wants.wake(drain.look_at);
        match drain.direction {
            Direction::ToServer => self.wants.server = Some(PollFlags::empty()),
            Direction::ToClient => self.wants.client = Some(PollFlags::empty()),
        }
        Stage::Draining(pair, drain)
    }
}
