//! What a copy to or from many hosts says of itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::Error;

use crate::{Event, Progress, Summary};

/// Something that happened. Hosts are counted from 0 in the order in which they were given.
#[derive(Debug)]
#[non_exhaustive]
pub enum FanEvent {
    /// What the transfer of one host says, but for its progress.
    Of {
        /// Which host.
        host: usize,
        /// What.
        event: Event,
    },
    /// A host could not be opened, and it is going to be tried again.
    Opening {
        /// Which host.
        host: usize,
        /// What happened.
        error: Arc<Error>,
        /// Which try this will be; the first retry is 1.
        attempt: u32,
        /// The pause before it.
        pause: Duration,
    },
    /// Where all hosts together stand.
    Progress(Progress),
    /// A host is done, however.
    Ended(HostEnd),
}

/// How it ended for one host.
#[derive(Debug)]
pub struct HostEnd {
    /// Which host.
    pub host: usize,
    /// How.
    pub outcome: HostOutcome,
    /// From the first try to open it to the end.
    pub elapsed: Duration,
}

/// How it ended for one host.
#[derive(Debug)]
pub enum HostOutcome {
    /// Its transfer came to an end; whether all was well the summary says.
    Moved(Summary),
    /// It could not be opened.
    Unopened(Error),
    /// All was stopped before its turn.
    NotBegun,
}

impl HostEnd {
    /// Whether everything is where it was to go.
    pub fn is_done(&self) -> bool {
        matches!(&self.outcome, HostOutcome::Moved(summary)
            if summary.failed == 0 && !summary.interrupted)
    }
}

/// How it ended for all.
#[derive(Debug, Clone, Default)]
pub struct FanSummary {
    /// How many hosts there were.
    pub hosts: u64,
    /// Of these, the ones where something failed, or that could not be opened.
    pub failed_hosts: u64,
    /// Hosts that were stopped, or never begun, for no failure of their own.
    pub stopped_hosts: u64,
    /// Everything of all hosts added up; the round trip is the shortest, the time that of the whole.
    /// A host that could not be opened is one failure.
    pub total: Summary,
    /// Bytes that were read from a source for several hosts; 0 if every host had its own source.
    pub source_bytes: u64,
    /// The most bytes of these that were in memory at once.
    pub most_held_bytes: u64,
}

/// Who hears what happens. Called from the engine's tasks, one call at a time; it must not block.
#[derive(Clone)]
pub struct FanSink(Arc<dyn Fn(FanEvent) + Send + Sync>);

impl FanSink {
    /// A sink that calls `hear` for each event.
    pub fn new(hear: impl Fn(FanEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
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
