//! The events of a copy to or from many hosts.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::Error;

use crate::{Event, Progress, Summary};

/// Something that happened. Hosts are counted from 0 in the order in which they were given.
#[derive(Debug)]
#[non_exhaustive]
pub enum FanEvent {
    /// An event of one host's transfer, other than its progress.
    Of {
        /// Which host.
        host: usize,
        /// The event.
        event: Event,
    },
    /// A host could not be opened; this will be retried.
    Opening {
        /// Which host.
        host: usize,
        /// What happened.
        error: Arc<Error>,
        /// The number of the retry, from 1.
        attempt: u32,
        /// The pause before it.
        pause: Duration,
    },
    /// The progress of all hosts together.
    Progress(Progress),
    /// A host is done, with or without success.
    Ended(HostEnd),
}

/// The end of one host's transfer.
#[derive(Debug)]
pub struct HostEnd {
    /// Which host.
    pub host: usize,
    /// How it ended.
    pub outcome: HostOutcome,
    /// From the first try to open it to the end.
    pub elapsed: Duration,
}

/// How one host's transfer ended.
#[derive(Debug)]
pub enum HostOutcome {
    /// Its transfer ended; the summary shows whether it succeeded.
    Moved(Box<Summary>),
    /// It could not be opened.
    Unopened(Error),
    /// Everything was stopped before its transfer began.
    NotBegun,
}

impl HostEnd {
    /// Whether everything was moved.
    pub fn is_done(&self) -> bool {
        matches!(&self.outcome, HostOutcome::Moved(summary)
            if summary.failed == 0 && !summary.interrupted)
    }
}

/// The results of all hosts.
#[derive(Debug, Clone, Default)]
pub struct FanSummary {
    /// How many hosts there were.
    pub hosts: u64,
    /// Of these, the ones where something failed, or that could not be opened.
    pub failed_hosts: u64,
    /// Hosts that were stopped, or never begun, without a failure of their own.
    pub stopped_hosts: u64,
    /// The sums over all hosts; the RTT is the shortest, `connect` the longest, and `elapsed` that of the whole
    /// fan-out. A host that could not be opened counts as one failure.
    pub total: Summary,
    /// Bytes that were read from a source for several hosts; 0 if every host had its own source.
    pub source_bytes: u64,
    /// The most bytes of these that were in memory at once.
    pub most_held_bytes: u64,
}

/// The consumer of events. Called from the engine's tasks, one call at a time; it must not block.
#[derive(Clone)]
pub struct FanSink(Arc<dyn Fn(FanEvent) + Send + Sync>);

impl FanSink {
    /// A sink that calls `consume` for each event.
    pub fn new(consume: impl Fn(FanEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(consume))
    }

    /// Sends one event.
    pub fn send(&self, event: FanEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for FanSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FanSink")
    }
}
