//! The handle by which a test controls a running proxy: it sets and lifts faults, and reads statistics.
//!
//! All calls go through `shared` to the thread of the proxy, which owns all sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::rules::Effect;
use crate::shared::Shared;
use crate::{Connections, Direction, Fault, Fired, RuleId, Stats};

/// A TCP proxy that injects faults into connections.
///
/// When the call that sets a fault returns, the fault applies to all bytes that have not left the proxy (a rate limit:
/// to all bytes that the proxy has not read yet), on open and on new connections. It applies until it is lifted.
///
/// Dropping the proxy closes its listener, resets all open connections, and waits for its thread.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    pub(crate) const fn new(
        address: SocketAddr,
        shared: Arc<Shared>,
        thread: JoinHandle<()>,
    ) -> Self {
        Self { address, shared, thread: Some(thread) }
    }

    /// The address to which clients connect.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets a fault in one direction of some connections, in addition to existing ones.
    pub fn set(&self, connections: Connections, direction: Direction, fault: Fault) -> RuleId {
        self.add(connections, Effect::Stream(direction, fault))
    }

    /// Resets these connections right after they are accepted. Connections that are already open are not affected.
    ///
    /// The kernel accepts a connection before the proxy can act, so connecting usually succeeds, and the reset shows in
    /// the first read or write. Connecting fails if the reset arrives before the client's thread runs; this may also
    /// happen with a [`Fault::CutHard`] after a few bytes.
    pub fn refuse(&self, connections: Connections) -> RuleId {
        self.add(connections, Effect::Refuse)
    }

    /// Refuses connections while `limit` are open. Connections that are already open are not affected.
    pub fn limit_open(&self, limit: u64) -> RuleId {
        self.add(Connections::All, Effect::LimitOpen(limit))
    }

    /// Accepts these connections but neither forwards nor reads them, until the fault is lifted. Connections that are
    /// already forwarded are not affected.
    ///
    /// On a stalled connection the proxy notices a reset, but not the end of a stream.
    pub fn stall(&self, connections: Connections) -> RuleId {
        self.add(connections, Effect::Stall)
    }

    /// Lifts a rule. Its effects so far remain. Returns false if it was already lifted.
    pub fn lift(&self, rule: RuleId) -> bool {
        self.shared.change(|state| state.rules.lift(rule))
    }

    /// Lifts all rules, also those of the builder. A pause continues.
    pub fn clear(&self) {
        self.shared.change(|state| state.rules.clear());
    }

    /// Pauses the proxy like a stopped server: nothing is accepted, read, written or closed. The kernel still
    /// completes handshakes of new clients, and buffers what they send.
    pub fn pause(&self) {
        self.shared.change(|state| state.paused = true);
    }

    /// Ends a pause. No bytes are lost.
    pub fn resume(&self) {
        self.shared.change(|state| state.paused = false);
    }

    /// Resets all open connections like a server that dies, even while the proxy is paused. They are closed when this
    /// returns; bytes in flight are lost. Clients that connect afterwards, or wait for the end of a pause, are
    /// accepted.
    pub fn cut_all(&self) {
        let request = self.shared.change(|state| {
            state.cuts_requested += 1;
            state.cuts_requested
        });
        self.shared.wait_for(Duration::MAX, || {
            let state = self.shared.lock();
            (state.ended || state.cuts_made >= request).then_some(())
        });
    }

    /// The statistics so far. They include everything that a client or server can have noticed.
    pub fn stats(&self) -> Stats {
        self.shared.lock().record.stats.clone()
    }

    /// The faults that have taken effect, in the order in which they first did.
    pub fn fired(&self) -> Vec<Fired> {
        self.shared.lock().record.stats.fired.clone()
    }

    /// Waits until `wanted` returns true for the statistics; returns false after `timeout`. No lock is held while
    /// `wanted` runs.
    pub fn wait_until(&self, mut wanted: impl FnMut(&Stats) -> bool, timeout: Duration) -> bool {
        self.shared.wait_for(timeout, || wanted(&self.stats()).then_some(())).is_some()
    }

    fn add(&self, connections: Connections, effect: Effect) -> RuleId {
        self.shared.change(|state| state.rules.add(connections, effect))
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.change(|state| state.stopping = true);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            // The proxy has panicked, so the result of the test is void.
            std::panic::resume_unwind(panic);
        }
    }
}
