//! What was uploaded, to recognize it on the server as long as that has not reported its version.

use bytes::Bytes;
use haul_storage::{Capabilities, Entry, Timestamp};

/// What was sent to the server from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) size: u64,
    /// Time of modification.
    pub(super) modified: Option<Timestamp>,
    /// The BLAKE3 digest of a content that was sent at once.
    pub(super) digest: Option<blake3::Hash>,
}

impl Sent {
    /// Whether it is what the server has, as far as its entry tells; `None` if only the content can tell.
    pub(super) fn is(&self, there: &Entry, can: &Capabilities) -> Option<bool> {
        if !there.is_file() || there.size != self.size {
            return Some(false);
        }
        let kept = self.modified.map(|time| can.kept_times.kept(time));
        if can.times && kept.is_some() {
            return Some(there.modified == kept);
        }
        // Without a digest, it counts as another one.
        self.digest.is_none().then_some(false)
    }

    /// Whether it has this content.
    pub(super) fn has(&self, content: &Bytes) -> bool {
        self.digest == Some(blake3::hash(content))
    }
}
