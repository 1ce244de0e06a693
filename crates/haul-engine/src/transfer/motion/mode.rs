//! How a file is moved: what follows from what both storages can do and from what was asked for.

use std::time::Duration;

use haul_storage::{Capabilities, DigestKind, Medium, ReadAt};

/// How a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// By ranges that are as long as is good for the link.
    Ranges,
    /// By ranges that are as long as can be: beginning one is dear.
    Long,
    /// From its beginning to its end.
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
    /// What lies before the destination.
    pub destination: Medium,
    /// Whether its length is not known before its end: it is one read, which begins anew when it breaks.
    pub is_endless: bool,
    /// Whether the destination takes bytes from the first to the last only.
    pub writes_in_order: bool,
    /// Bytes that are worth a write.
    pub write_bytes: u64,
    /// The digest that is made of it.
    pub digest: Option<DigestKind>,
    /// Whether ranges are copied without passing through here, as long as that works.
    pub direct: bool,
    /// Whether what is written is recorded in a journal.
    pub journal: bool,
    /// Without a journal: whether permits are kept until the end of the file.
    pub keeps_permits: bool,
    /// At most so many retries in a row without progress, the first after such a pause.
    pub retries: (u32, Duration),
}

impl Mode {
    /// Whether bytes have to pass in order: then ranges are neither taken over nor long ones read side by side.
    pub fn is_in_order(&self) -> bool {
        self.writes_in_order || self.digest == Some(DigestKind::Sha256)
    }

    /// Whether a part of a source comes in one read, of which several blocks are written at once.
    pub fn is_streamed(&self) -> bool {
        self.reads != Reads::Ranges
    }
}
