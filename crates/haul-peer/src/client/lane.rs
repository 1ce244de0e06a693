//! A lane of a client: one connection of its session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use haul_net::RttGauge;
use haul_net::pool::SharedLane;
use haul_storage::{LinkPath, PathKind};
use tokio::sync::mpsc::UnboundedSender;

use super::session::{Session, frame};
use crate::wire::messages::{self, to_server};

/// RTTs of packets count as current for this long.
const RECENT: Duration = Duration::from_secs(1);

/// A lane. Its task (`opener`) sends `messages` and bulk data, and receives.
pub(super) struct Lane {
    pub(super) session: Arc<Session>,
    pub(super) number: u64,
    pub(super) messages: UnboundedSender<Bytes>,
    pub(super) is_ended: Arc<AtomicBool>,
    pub(super) rtt: Duration,
    pub(super) gauge: Option<RttGauge>,
    pub(super) path: LinkPath,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({})", self.number)
    }
}

impl Lane {
    /// Queues a message; `false` if the lane has ended. Its requests fail then.
    pub(super) fn send(&self, message: Bytes) -> bool {
        self.messages.send(message).is_ok()
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// Whether the lane runs through the bridge.
    pub(super) fn is_bridged(&self) -> bool {
        self.path.kind == PathKind::Bridge
    }
}

/// Sends a Bye: the server stops using the lane, finishes what it is sending, and closes it.
impl Drop for Lane {
    fn drop(&mut self) {
        if let Ok(bye) = frame(0, to_server::Body::Bye(messages::Empty {})) {
            // Fails if the lane has ended.
            drop(self.messages.send(bye));
        }
    }
}

impl SharedLane for Lane {
    /// Bulk data goes to the first lane that can send it, and messages are short: all lanes are equal.
    fn load(&self) -> u64 {
        0
    }

    /// Requests without their last response. A lane that has some is not closed.
    fn outstanding(&self) -> u64 {
        self.session.waiting_on(self.number)
    }

    fn rtt(&self) -> Option<Duration> {
        let measured = self.gauge.as_ref().and_then(RttGauge::sample);
        Some(measured.map_or(self.rtt, |sample| sample.shortest.min(self.rtt)))
    }

    fn current_rtt(&self) -> Option<Duration> {
        self.gauge.as_ref()?.sample()?.current_rtt(RECENT)
    }
}
