//! The ranges that a part file holds from earlier runs, and the source that they belong to.

use std::fmt;

use crate::{Identity, RangeSet, Writes};

/// A source and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceVersion {
    /// Its location, as shown to users.
    pub name: String,
    /// Its version, which has to distinguish versions of the same length
    /// ([`Identity::distinguishes_versions`]).
    pub identity: Identity,
}

/// The text by which journals identify a source: equal texts are equal sources.
impl fmt::Display for SourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.name, self.identity)
    }
}

/// What a part file holds from earlier runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Held {
    /// The writer keeps no record, so a later run does not learn what the part file holds.
    #[default]
    Unrecorded,
    /// Ranges that earlier runs have written and recorded for the same source; often none.
    Ranges(RangeSet),
    /// A part file was found and emptied, because it cannot be resumed; the reason, for users.
    StartedOver(String),
}

impl Held {
    /// What a part file of `length` bytes holds of the recorded `ranges`.
    pub fn of(mut ranges: RangeSet, length: u64, writes: Writes) -> Self {
        if writes == Writes::InOrder {
            // Bytes in flight when the connection broke are recorded but not in the part file, which is complete up
            // to its length.
            ranges.remove(crate::Range::between(length, u64::MAX));
        }
        match ranges.iter().last() {
            Some(last) if last.end() > length => Self::StartedOver(format!(
                "it has {length} bytes, its journal records at least {}",
                last.end()
            )),
            _ => Self::Ranges(ranges),
        }
    }

    /// Whether the writer keeps records.
    pub const fn is_recorded(&self) -> bool {
        !matches!(self, Self::Unrecorded)
    }

    /// The ranges that need not be written again.
    pub fn ranges(&self) -> RangeSet {
        match self {
            Self::Ranges(ranges) => ranges.clone(),
            Self::Unrecorded | Self::StartedOver(_) => RangeSet::new(),
        }
    }
}
