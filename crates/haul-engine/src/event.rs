//! The events of a transfer, and the summary that it returns. The terminal display, NDJSON and tests consume
//! nothing else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Error, LinkPath, RelPath};

use crate::digest::Digest;

/// Something that happened. Events are sent in the order in which they happen.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The plan is complete; no more files are added.
    Planned {
        /// Files of the plan, unchanged ones included.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// The progress so far; sent at the set interval and once at the end.
    Progress(Progress),
    /// The files in flight, in the order in which they began; sent just before each [`Event::Progress`] but the last,
    /// and only with [`crate::Settings::shows_current`].
    Current(Vec<CurrentFile>),
    /// One file (or link, directory) is done.
    File(FileEvent),
    /// An operation failed transiently and will be retried.
    Retry {
        /// What happened.
        error: Arc<Error>,
        /// The number of the retry, from 1.
        attempt: u32,
        /// The pause before it.
        pause: Duration,
    },
    /// Something worth knowing that is not a failure.
    Warning {
        /// Where it occurred.
        location: String,
        /// The message for the user.
        message: String,
    },
    /// Something could not be listed, copied or removed, and the rest goes on; or the transfer stops for lack of space.
    Failed(Error),
}

/// A file in flight.
#[derive(Debug, Clone)]
pub struct CurrentFile {
    /// Which of the jobs it belongs to, counted from 0.
    pub job: usize,
    /// Where it will be, below the destination's root.
    pub path: RelPath,
    /// Its length in bytes, if it is known.
    pub size: Option<u64>,
    /// Bytes done, resumed ones included.
    pub bytes: u64,
    /// Bytes per second over the last seconds.
    pub bytes_per_second: u64,
}

/// What was done with one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Its bytes were copied.
    Copied,
    /// It existed, and was not replaced.
    Unchanged,
    /// A symbolic or hard link was made.
    Linked,
    /// It was removed from the destination: the source does not have it, or has another kind of entry there.
    Removed,
}

impl Action {
    /// The word in NDJSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Copied => "copied",
            Self::Unchanged => "unchanged",
            Self::Linked => "linked",
            Self::Removed => "removed",
        }
    }
}

/// Why an entry was copied or linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The destination did not have it.
    New,
    /// The destination had an entry of another kind, for example a symbolic link instead of a file.
    Kind,
    /// The sizes differ.
    Size,
    /// The modification times differ, or the source was modified later.
    Time,
    /// The contents differ.
    Content,
    /// A link has another target.
    Target,
    /// The owners differ, and an existing file of another user must not get set-ID bits or capabilities.
    Owner,
    /// The settings replace files in any case.
    Always,
}

impl Reason {
    /// The word in NDJSON and listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Kind => "kind",
            Self::Size => "size",
            Self::Time => "time",
            Self::Content => "content",
            Self::Target => "target",
            Self::Owner => "owner",
            Self::Always => "always",
        }
    }
}

/// One finished entry.
#[derive(Debug, Clone)]
pub struct FileEvent {
    /// Which of the jobs it belongs to, counted from 0.
    pub job: usize,
    /// Where it is now, below the destination's root.
    pub path: RelPath,
    /// Its length in bytes.
    pub bytes: u64,
    /// What was done.
    pub action: Action,
    /// Why it was copied or linked.
    pub reason: Option<Reason>,
    /// Bytes that an earlier run had left in the part file.
    pub resumed_bytes: u64,
    /// Its digest, if one was requested.
    pub digest: Option<Digest>,
    /// Whether some users may not read it: because of its own mode, at the source or at the destination, or
    /// the mode of a directory above that is copied as well.
    pub private: bool,
    /// With `dry_run`: nothing of this was done.
    pub dry_run: bool,
}

/// What the transfer is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Neither the plan nor the count ahead of it is complete; totals are what is known so far.
    Planning,
    /// The totals are complete, from the plan or from the count ahead of it ([`crate::Settings::count_ahead`]).
    Moving,
    /// The transfer is complete, or was stopped.
    Ended,
}

/// The progress of a transfer.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Time since its start.
    pub elapsed: Duration,
    /// Files done, unchanged ones included.
    pub files: u64,
    /// Files known so far: those of the plan, or those counted ahead of it if they are more.
    pub total_files: u64,
    /// Bytes done, unchanged and resumed ones included.
    pub bytes: u64,
    /// Bytes known so far, likewise.
    pub total_bytes: u64,
    /// Bytes moved by this run.
    pub moved_bytes: u64,
    /// Bytes per second over the last seconds.
    pub bytes_per_second: u64,
    /// The link now.
    pub link: LinkSummary,
}

/// The state of a transfer's link. Between disks there are no lanes, and only `window_bytes` is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkSummary {
    /// Lanes: those that are open, or in a [`Summary`] the most that were open.
    pub lanes: usize,
    /// Bytes that may be in flight.
    pub window_bytes: u64,
    /// Shortest RTT.
    pub rtt: Option<Duration>,
    /// How long the first lane took to open.
    pub connect: Option<Duration>,
    /// The network path of the lanes; that of the source's lanes if both sides have one.
    pub path: Option<LinkPath>,
}

/// How a transfer ended: a plain record of counts, as `--json` and `--stats` print them.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Files of the plan that are at their destination now.
    pub files: u64,
    /// Of these, the ones that existed already and were not replaced.
    pub unchanged: u64,
    /// Of these, the ones that replaced another version.
    pub replaced: u64,
    /// Files that were read back and compared.
    pub verified: u64,
    /// Bytes of all files at their destination now.
    pub bytes: u64,
    /// Bytes moved by this run.
    pub moved_bytes: u64,
    /// Bytes that earlier runs had left in part files.
    pub resumed_bytes: u64,
    /// Links made.
    pub links: u64,
    /// Directories made.
    pub directories: u64,
    /// Entries removed from the destination.
    pub removed: u64,
    /// Failures, lack of space among them; each had an [`Event::Failed`].
    pub failed: u64,
    /// Special files and others that were skipped with a warning.
    pub skipped: u64,
    /// Operations that were retried.
    pub retries: u64,
    /// From start to end.
    pub elapsed: Duration,
    /// The link at the end.
    pub link: LinkSummary,
    /// Whether the caller stopped it before its end; a rerun continues.
    pub interrupted: bool,
    /// Whether it ended early for lack of space, which counts as a failure; a rerun continues.
    pub out_of_space: bool,
}

/// The consumer of events. Called from the engine's tasks, one call at a time; it must not block.
#[derive(Clone)]
pub struct EventSink(Arc<dyn Fn(Event) + Send + Sync>);

impl EventSink {
    /// A sink that calls `consume` for each event.
    pub fn new(consume: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(consume))
    }

    /// Sends one event.
    pub fn send(&self, event: Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for EventSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventSink")
    }
}
