//! What the window may not go beyond.

use crate::{Auto, Settings, WindowProfile};

/// What the window may not go beyond. A fixed number is taken as it is and not searched for.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Lanes open at once. A fixed number still gives way to a server that refuses.
    pub lanes: Auto<usize>,
    /// Bytes in flight; a fixed number is cut to `memory`.
    pub window: Auto<u64>,
    /// Bytes of a range.
    pub chunk: Auto<u64>,
    /// Files in flight at once.
    pub files: Auto<usize>,
    /// The most bytes in flight, whatever else is said. Less than 64 KiB counts as 64 KiB.
    pub memory: u64,
    /// The most lanes that the storage can have; 0 counts as 1, and 64 is the most.
    pub max_lanes: usize,
    /// How boldly to open.
    pub profile: WindowProfile,
}

impl Limits {
    /// Those of a transfer, on storages that can have `max_lanes` lanes; `None` is 64.
    pub fn of(settings: &Settings, max_lanes: Option<usize>) -> Self {
        Self {
            lanes: settings.lanes,
            window: settings.window,
            chunk: settings.chunk,
            files: settings.files,
            memory: settings.memory,
            max_lanes: max_lanes.unwrap_or(64),
            profile: settings.profile,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(&Settings::default(), None)
    }
}
