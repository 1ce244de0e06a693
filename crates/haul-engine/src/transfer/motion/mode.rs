//! How a file is moved, as follows from the capabilities of both storages and from the settings.

use std::time::Duration;

use haul_storage::{Capabilities, DigestKind, Medium, ReadAt};

/// How a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// By ranges of the length that suits the link.
    Ranges,
    /// By ranges that are as long as possible: starting one is expensive.
    Long,
    /// From its beginning to its end, in one read.
    Whole,
}

impl Reads {
    /// How a file of a storage with these capabilities is read.
    pub fn from(capabilities: &Capabilities, reader: &dyn ReadAt) -> Self {
        match capabilities {
            Capabilities { ranged_reads: false, .. } => Self::Whole,
            _ if !reader.is_ranged() => Self::Whole,
            Capabilities { long_reads: true, .. } => Self::Long,
            _ => Self::Ranges,
        }
    }
}

/// How a file is moved.
#[derive(Debug, Clone)]
pub struct Mode {
    /// How its source is read.
    pub reads: Reads,
    /// Whether the destination is on a disk or behind a link.
    pub destination: Medium,
    /// Whether its length is unknown until its end: then it is one read, and restarts if that breaks.
    pub is_endless: bool,
    /// Whether the destination takes bytes only in order.
    pub writes_in_order: bool,
    /// Blocks are joined to this many bytes for a write; 0 if any size will do. Not for streamed reads.
    pub write_bytes: u64,
    /// The digest that is computed of it.
    pub digest: Option<DigestKind>,
    /// Whether ranges are copied without passing through this process, as long as that works.
    pub direct: bool,
    /// Whether written ranges are recorded in a journal.
    pub journal: bool,
    /// Without a journal, and with [`Reads::Ranges`]: whether permits are kept until the end of the file.
    pub keeps_permits: bool,
    /// The most retries in a row without progress, and the pause before the first.
    pub retries: (u32, Duration),
}

impl Mode {
    /// Whether bytes have to pass in order: then no range is taken over, and there is one long read at a
    /// time.
    pub fn is_in_order(&self) -> bool {
        self.writes_in_order || self.digest == Some(DigestKind::Sha256)
    }

    /// Whether a read is streamed: several of its blocks are written at once.
    pub fn is_streamed(&self) -> bool {
        self.reads != Reads::Ranges
    }
}
