//! Statistics of what the proxy has seen and done, for tests.
//!
//! The proxy's thread updates `Record` under the lock under which it acts, so that the copies of `Stats` that
//! tests get include everything that a client or server can have noticed.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use crate::{Direction, Fault, RuleId};

/// A snapshot of everything since the proxy was started.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Accepted connections, including those that were then refused.
    pub accepted: u64,
    /// Connections that were reset right after they were accepted.
    pub refused: u64,
    /// Connections that are open now, including stalled ones and those that only one side has ended.
    pub open: u64,
    /// The most connections that were open at once.
    pub peak_open: u64,
    /// Bytes to the server over all connections.
    pub to_server: Bytes,
    /// Bytes to the client over all connections.
    pub to_client: Bytes,
    /// Every connection; number 1 is the first.
    pub connections: Vec<ConnectionStats>,
    /// Every fault that took effect, in the order in which it first did.
    pub fired: Vec<Fired>,
    /// Errors that no rule caused.
    pub failures: Vec<Failure>,
}

impl Stats {
    /// Connection `number`, counted from 1, if there is one.
    pub fn connection(&self, number: u64) -> Option<&ConnectionStats> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.connections.get(index)
    }

    /// Whether a rule took effect on any connection.
    pub fn has_fired(&self, rule: RuleId) -> bool {
        self.fired.iter().any(|fired| fired.rule == rule)
    }
}

/// Bytes in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Read from the sending side, including bytes that were then dropped.
    pub read: u64,
    /// Handed to the system for the receiving side.
    pub delivered: u64,
}

/// One connection.
#[derive(Debug, Clone)]
pub struct ConnectionStats {
    /// Counted from 1.
    pub number: u64,
    /// The client's address.
    pub client: SocketAddr,
    /// Whether it is open, or how it ended.
    pub state: ConnectionState,
    /// Bytes to the server.
    pub to_server: Bytes,
    /// Bytes to the client.
    pub to_client: Bytes,
}

impl ConnectionStats {
    /// The bytes in one direction.
    pub const fn bytes(&self, direction: Direction) -> Bytes {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }
}

/// Whether a connection is open, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// Open, even if it is stalled, or a cut has taken effect and waits until the receiver has the bytes before it.
    Open,
    /// Both sides ended it with FIN.
    Finished,
    /// Reset: by a fault, by [`FaultProxy::cut_all`](crate::FaultProxy::cut_all), or by one of its sides. Or closed
    /// because its socket could not be set up; see [`Stats::failures`].
    Cut,
    /// Reset right after it was accepted.
    Refused,
    /// Reset because the server could not be reached. See [`Stats::failures`].
    Unreachable,
}

/// A fault that took effect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fired {
    /// The rule that caused it.
    pub rule: RuleId,
    /// The connection, counted from 1.
    pub connection: u64,
    /// What happened.
    pub what: Injected,
    /// How often on this connection: the changed bytes for flips; the reads, and the end of the stream, for
    /// delays and rates; otherwise 1.
    pub times: u64,
}

/// What happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Injected {
    /// It was refused by [`FaultProxy::refuse`](crate::FaultProxy::refuse).
    Refused,
    /// It was refused because this many were open already.
    OverLimit(u64),
    /// It was accepted and not forwarded.
    Stalled,
    /// A fault of one of its two streams.
    Stream {
        /// The direction of the bytes.
        direction: Direction,
        /// The fault.
        fault: Fault,
        /// The offset at which it first took effect. For [`Fault::Truncate`] and the cuts, this many
        /// bytes were let through.
        at: u64,
    },
}

/// An error that no rule caused.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The connection, counted from 1, if it concerns one.
    pub connection: Option<u64>,
    /// The operation that failed: `accept`, `connect`, `poll`, `set up`.
    pub operation: &'static str,
    /// The kind of the error.
    pub kind: io::ErrorKind,
    /// The text of the error.
    pub message: String,
}

/// The statistics that the proxy's thread updates.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) stats: Stats,
    /// The index of a fault in `stats.fired`.
    fired: BTreeMap<(RuleId, u64, Option<Direction>), usize>,
    /// Whether anything has changed since the last [`Record::take_dirty`].
    dirty: bool,
}

impl Record {
    /// Whether anything has changed since the last call.
    pub(crate) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Records an accepted connection, and returns its number.
    pub(crate) fn accepted(&mut self, client: SocketAddr) -> u64 {
        self.dirty = true;
        self.stats.accepted += 1;
        self.stats.open += 1;
        let number = self.stats.accepted;
        self.stats.connections.push(ConnectionStats {
            number,
            client,
            state: ConnectionState::Open,
            to_server: Bytes::default(),
            to_client: Bytes::default(),
        });
        number
    }

    /// Updates the peak; called for each connection that is not refused.
    pub(crate) fn admitted(&mut self) {
        self.stats.peak_open = self.stats.peak_open.max(self.stats.open);
    }

    /// Records that a connection is about to be closed.
    pub(crate) fn closed(&mut self, number: u64, state: ConnectionState) {
        self.dirty = true;
        self.stats.open -= 1;
        if state == ConnectionState::Refused {
            self.stats.refused += 1;
        }
        if let Some(connection) = self.connection(number) {
            connection.state = state;
        }
    }

    pub(crate) fn read(&mut self, number: u64, direction: Direction, bytes: usize) {
        self.count(number, direction, |count| count.read += bytes as u64);
    }

    pub(crate) fn delivered(&mut self, number: u64, direction: Direction, bytes: usize) {
        self.count(number, direction, |count| count.delivered += bytes as u64);
    }

    /// Records that a fault took effect.
    pub(crate) fn fire(&mut self, rule: RuleId, connection: u64, what: Injected) {
        self.dirty = true;
        let direction = match what {
            Injected::Stream { direction, .. } => Some(direction),
            Injected::Refused | Injected::OverLimit(_) | Injected::Stalled => None,
        };
        let index =
            *self.fired.entry((rule, connection, direction)).or_insert(self.stats.fired.len());
        match self.stats.fired.get_mut(index) {
            Some(fired) => fired.times += 1,
            None => self.stats.fired.push(Fired { rule, connection, what, times: 1 }),
        }
    }

    /// Records that a permanent fault took effect; it counts once.
    pub(crate) fn fire_once(&mut self, rule: RuleId, connection: u64, what: Injected) {
        let direction = match what {
            Injected::Stream { direction, .. } => Some(direction),
            Injected::Refused | Injected::OverLimit(_) | Injected::Stalled => None,
        };
        if !self.fired.contains_key(&(rule, connection, direction)) {
            self.fire(rule, connection, what);
        }
    }

    pub(crate) fn failed(
        &mut self,
        connection: Option<u64>,
        operation: &'static str,
        error: &io::Error,
    ) {
        self.dirty = true;
        self.stats.failures.push(Failure {
            connection,
            operation,
            kind: error.kind(),
            message: error.to_string(),
        });
    }

    fn count(&mut self, number: u64, direction: Direction, add: impl Fn(&mut Bytes)) {
        self.dirty = true;
        let all = match direction {
            Direction::ToServer => &mut self.stats.to_server,
            Direction::ToClient => &mut self.stats.to_client,
        };
        add(all);
        if let Some(connection) = self.connection(number) {
            add(match direction {
                Direction::ToServer => &mut connection.to_server,
                Direction::ToClient => &mut connection.to_client,
            });
        }
    }

    fn connection(&mut self, number: u64) -> Option<&mut ConnectionStats> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.stats.connections.get_mut(index)
    }
}
