//! What the proxy has seen and done, for tests to ask about.
//!
//! `Record` is written by the thread of the proxy as things happen, always before the client or the
//! server can notice them; tests get copies of the `Stats` in it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use crate::{Direction, Fault, RuleId};

/// Everything since the proxy was started, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Connections that were accepted, those that were then refused among them.
    pub accepted: u64,
    /// Connections that were reset right after they were accepted.
    pub refused: u64,
    /// Connections that are open now. A stalled one is, and one that only one side has ended.
    pub open: u64,
    /// The most that ever were open at once.
    pub peak_open: u64,
    /// Bytes to the server over all connections.
    pub to_server: Bytes,
    /// Bytes to the client over all connections.
    pub to_client: Bytes,
    /// Every connection; number 1 is the first.
    pub connections: Vec<ConnectionStats>,
    /// Every fault that was met, in the order in which they were first met.
    pub fired: Vec<Fired>,
    /// What went wrong without having been ordered.
    pub failures: Vec<Failure>,
}

impl Stats {
    /// Connection `number`, counted from 1, if there was one.
    pub fn connection(&self, number: u64) -> Option<&ConnectionStats> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.connections.get(index)
    }

    /// Whether a rule was met, with any connection.
    pub fn has_fired(&self, rule: RuleId) -> bool {
        self.fired.iter().any(|fired| fired.rule == rule)
    }
}

/// Bytes in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Read from the sending side, also what was then dropped.
    pub read: u64,
    /// Handed to the system for the receiving side.
    pub delivered: u64,
}

/// One connection.
#[derive(Debug, Clone)]
pub struct ConnectionStats {
    /// Counted from 1.
    pub number: u64,
    /// The address it came from.
    pub client: SocketAddr,
    /// What has become of it.
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

/// What has become of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionState {
    /// Open, or stalled, or not yet cut.
    Open,
    /// Both sides ended it in an orderly way.
    Finished,
    /// Reset: by a fault, by [`FaultProxy::cut_all`](crate::FaultProxy::cut_all), or because one
    /// side did.
    Cut,
    /// Reset right after it was accepted.
    Refused,
    /// Reset because the server could not be reached. See [`Stats::failures`].
    Unreachable,
}

/// A fault that was met.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fired {
    /// The rule that ordered it.
    pub rule: RuleId,
    /// With which connection, counted from 1.
    pub connection: u64,
    /// What happened.
    pub what: Injected,
    /// How often with this connection: bytes for flips, portions for delays and rates, otherwise 1.
    pub times: u64,
}

/// What happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Injected {
    /// It was refused by [`FaultProxy::refuse`](crate::FaultProxy::refuse).
    Refused,
    /// It was refused because so many were open already.
    OverLimit(u64),
    /// It was accepted and not forwarded.
    Stalled,
    /// Something happened to its bytes.
    Stream {
        /// In which direction.
        direction: Direction,
        /// What.
        fault: Fault,
        /// The offset at which it was first met. For [`Fault::Truncate`] and the cuts, this many
        /// bytes were let through.
        at: u64,
    },
}

/// Something that went wrong without having been ordered.
#[derive(Debug, Clone)]
pub struct Failure {
    /// With which connection, counted from 1, if with one.
    pub connection: Option<u64>,
    /// In doing what: `accept`, `connect`, `poll`, `set up`.
    pub operation: &'static str,
    /// The kind of the error.
    pub kind: io::ErrorKind,
    /// The error in words.
    pub message: String,
}

/// The stats that are being written.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) stats: Stats,
    /// Where in `fired` a fault already is.
    fired: BTreeMap<(RuleId, u64, Option<Direction>), usize>,
    /// Whether somebody who waits should look.
    dirty: bool,
}

impl Record {
    /// Whether anything has changed since the last call.
    pub(crate) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// A connection was accepted. It gets its number.
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

    /// A connection that is not refused is part of the peak.
    pub(crate) fn admitted(&mut self) {
        self.stats.peak_open = self.stats.peak_open.max(self.stats.open);
    }

    /// A connection is about to be closed.
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

    /// A fault was met.
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

    /// A fault that stays was met: it counts once.
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
