//! What was uploaded, to recognize it on the server until the server has reported its version.

use bytes::Bytes;
use haul_storage::{Capabilities, Entry, Timestamp};

/// What was sent to the server from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) size: u64,
    /// Time of modification.
    pub(super) modified: Option<Timestamp>,
    /// The BLAKE3 digest of content that was sent in one request.
    pub(super) digest: Option<blake3::Hash>,
}

impl Sent {
    /// Whether it is what the server has, by the entry there; `None` if the content has to be compared.
    pub(super) fn is(&self, existing: &Entry, can: &Capabilities) -> Option<bool> {
        if !existing.is_file() || existing.size != self.size {
            return Some(false);
        }
        let stored_time = self.modified.map(|time| can.stored_times.stored(time));
        if can.times && stored_time.is_some() {
            return Some(existing.modified == stored_time);
        }
        // Without a digest, it counts as another one.
        self.digest.is_none().then_some(false)
    }

    /// Whether this content was sent.
    pub(super) fn has(&self, content: &Bytes) -> bool {
        self.digest == Some(blake3::hash(content))
    }
}
