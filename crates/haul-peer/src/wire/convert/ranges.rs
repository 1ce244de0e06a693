//! Ranges, sets of them, and what a part file holds.

use haul_storage::{Held, Range, RangeSet};

use super::super::messages::{self, held::State};
use super::{WireError, clipped};

/// Maximum number of ranges in one message: even with the longest varints, they fit.
pub const RANGES_MAX: usize = 8192;

impl From<Range> for messages::Range {
    fn from(range: Range) -> Self {
        Self { start: range.start(), length: range.len() }
    }
}

impl TryFrom<messages::Range> for Range {
    type Error = WireError;

    fn try_from(range: messages::Range) -> Result<Self, WireError> {
        match range.start.checked_add(range.length) {
            Some(end) => Ok(Self::between(range.start, end)),
            None => Err(WireError::Invalid("range")),
        }
    }
}

/// The first [`RANGES_MAX`] ranges. Those beyond are not sent: for what a part file holds, that only means that they
/// are written again.
impl From<&RangeSet> for messages::Ranges {
    fn from(ranges: &RangeSet) -> Self {
        let mut end = 0;
        let steps = ranges.iter().take(RANGES_MAX).flat_map(|range| {
            let gap = range.start() - end;
            end = range.end();
            [gap, range.len()]
        });
        Self { steps: steps.collect() }
    }
}

impl TryFrom<messages::Ranges> for RangeSet {
    type Error = WireError;

    fn try_from(ranges: messages::Ranges) -> Result<Self, WireError> {
        let (pairs, rest) = ranges.steps.as_chunks::<2>();
        if pairs.len() > RANGES_MAX {
            return Err(WireError::TooMany);
        }
        if !rest.is_empty() {
            return Err(WireError::Invalid("set of ranges"));
        }
        let mut result = Self::new();
        let mut end: u64 = 0;
        for [gap, length] in pairs {
            let next =
                end.checked_add(*gap).and_then(|start| Some((start, start.checked_add(*length)?)));
            let Some((start, next)) = next else { return Err(WireError::Invalid("set of ranges")) };
            result.insert(Range::between(start, next));
            end = next;
        }
        Ok(result)
    }
}

impl From<&Held> for messages::Held {
    fn from(held: &Held) -> Self {
        Self {
            state: Some(match held {
                Held::Unrecorded => State::Unrecorded(messages::Empty {}),
                Held::Ranges(ranges) => State::Ranges(ranges.into()),
                Held::StartedOver(reason) => State::StartedOver(clipped(reason)),
            }),
        }
    }
}

/// A case of a later version becomes `Unrecorded`.
impl TryFrom<messages::Held> for Held {
    type Error = WireError;

    fn try_from(held: messages::Held) -> Result<Self, WireError> {
        Ok(match held.state {
            None | Some(State::Unrecorded(_)) => Self::Unrecorded,
            Some(State::Ranges(ranges)) => Self::Ranges(ranges.try_into()?),
            Some(State::StartedOver(reason)) => Self::StartedOver(clipped(&reason)),
        })
    }
}
