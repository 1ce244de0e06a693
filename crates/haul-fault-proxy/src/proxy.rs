//! The running proxy in the hands of a test: faults are set and lifted, and stats are asked for.
//!
//! Everything goes through `shared` to the thread of the proxy, which owns all sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::rules::Effect;
use crate::shared::Shared;
use crate::{Connections, Direction, Fault, Fired, RuleId, Stats};

/// A TCP proxy that does to connections what a test orders.
///
/// What is set holds, when the call returns, for everything that has not left the proxy by then,
/// for connections that are open as for new ones. What is set stays until it is lifted.
///
/// Dropping it closes the listener, resets all connections that are open, and waits for its thread.
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

    /// Where clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets a fault happen to one direction of some connections, besides what is set already.
    pub fn set(&self, connections: Connections, direction: Direction, fault: Fault) -> RuleId {
        self.add(connections, Effect::Stream(direction, fault))
    }

    /// Resets these connections right after they are accepted. Those that are open already stay.
    ///
    /// The system answers a client before a proxy can, so that connecting mostly succeeds, and the
    /// reset shows in the first read or write. If it is quicker than the client's thread, connecting
    /// fails with it; a [`Fault::CutHard`] after few bytes can be so quick too.
    pub fn refuse(&self, connections: Connections) -> RuleId {
        self.add(connections, Effect::Refuse)
    }

    /// Refuses connections while `limit` are open. Those that are open already stay.
    pub fn limit_open(&self, limit: u64) -> RuleId {
        self.add(Connections::All, Effect::LimitOpen(limit))
    }

    /// Accepts these connections and neither forwards them nor reads from them. They are forwarded
    /// when this is lifted. Those that are forwarded already stay so.
    ///
    /// The end of a stream is not seen on a stalled connection, only a reset.
    pub fn stall(&self, connections: Connections) -> RuleId {
        self.add(connections, Effect::Stall)
    }

    /// Ends something that was set. What has happened by then stays so. False if it was lifted
    /// before.
    pub fn lift(&self, rule: RuleId) -> bool {
        self.shared.change(|state| state.rules.lift(rule))
    }

    /// Lifts everything that is set, by the builder too. A pause goes on.
    pub fn clear(&self) {
        self.shared.change(|state| state.rules.clear());
    }

    /// Stands still, as a server that is stopped: nothing is accepted, read, written or closed. The
    /// system goes on to answer new clients, and to take from them what fits into its buffers.
    pub fn pause(&self) {
        self.shared.change(|state| state.paused = true);
    }

    /// Ends a pause. Nothing is lost by it.
    pub fn resume(&self) {
        self.shared.change(|state| state.paused = false);
    }

    /// Resets all connections that are open, as a server that dies, also while the proxy is paused.
    /// They are closed when this returns; bytes that were under way are lost. Clients that connect
    /// afterwards, or that wait for the end of a pause, are accepted.
    pub fn cut_all(&self) {
        let order = self.shared.change(|state| {
            state.cuts_ordered += 1;
            state.cuts_ordered
        });
        self.shared.wait_for(Duration::MAX, || {
            let state = self.shared.lock();
            (state.ended || state.cuts_made >= order).then_some(())
        });
    }

    /// What has happened so far. What a client or server can have noticed is in it.
    pub fn stats(&self) -> Stats {
        self.shared.lock().record.stats.clone()
    }

    /// The faults that were met, in the order in which they first were.
    pub fn fired(&self) -> Vec<Fired> {
        self.shared.lock().record.stats.fired.clone()
    }

    /// Waits until the stats are as wanted, and says whether they are; after `timeout` they were
    /// not. No lock is held while `wanted` is asked.
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
            // The proxy is broken, and with it whatever the test has shown.
            std::panic::resume_unwind(panic);
        }
    }
}
