//! The limits of the window.

use crate::{Auto, Settings, WindowProfile};

/// Maximum number of lanes, whatever the profile and the storage.
pub(super) const MOST_LANES: usize = 64;

/// Limits of the window. Values that are `Fixed` are used as given instead of being determined by measuring.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open lanes. Fewer are used if the server refuses some, even of a fixed number.
    pub lanes: Auto<usize>,
    /// Bytes in flight; a fixed number is limited to `memory`.
    pub window: Auto<u64>,
    /// Length of a range in bytes.
    pub chunk: Auto<u64>,
    /// Files in flight at once.
    pub files: Auto<usize>,
    /// Maximum bytes in flight, regardless of the other limits; at least 64 KiB.
    pub memory: u64,
    /// Maximum lanes of the storage, clamped to 1..=64.
    pub max_lanes: usize,
    /// How fast the window grows, and the most lanes and files if these are not fixed.
    pub profile: WindowProfile,
}

impl Limits {
    /// The limits of a transfer. `max_lanes` is the smallest lane limit of the storages; `None` is 64.
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

    /// Maximum number of lanes: the caller's, or the profile's, but no more than the storage allows.
    pub fn most_lanes(&self) -> usize {
        let most = self.max_lanes.clamp(1, MOST_LANES);
        let of_profile = match self.profile {
            WindowProfile::Safe => 4,
            WindowProfile::Default => 32,
            WindowProfile::Aggressive => MOST_LANES,
        };
        self.lanes.fixed().map_or(of_profile, |lanes| lanes.max(1)).min(most)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::of(&Settings::default(), None)
    }
}
