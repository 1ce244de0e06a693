//! Range and precision of the modification times that a storage can hold.

use crate::Timestamp;

/// Precision and range of a storage's times. A time outside of the range becomes the nearest one in it;
/// a time between two steps is rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredTimes {
    /// The step in nanoseconds: 1 on most Linux file systems, 2 000 000 000 on FAT.
    pub step_ns: u64,
    /// The first time of the range.
    pub earliest: Timestamp,
    /// The last time of the range.
    pub latest: Timestamp,
}

impl StoredTimes {
    /// Every time, to the nanosecond.
    pub const ALL: Self =
        Self { step_ns: 1, earliest: Timestamp::EARLIEST, latest: Timestamp::LATEST };

    /// Whole seconds, from `first` to `last`.
    pub const fn seconds(first: i64, last: i64) -> Self {
        Self {
            step_ns: 1_000_000_000,
            earliest: Timestamp { seconds: first, nanos: 0 },
            latest: Timestamp { seconds: last, nanos: 0 },
        }
    }

    /// Every time, in steps of `step_ns` nanoseconds.
    pub const fn in_steps_of(step_ns: u64) -> Self {
        Self { step_ns, ..Self::ALL }
    }

    /// The time that the storage reports after `time` was set.
    #[must_use]
    pub fn stored(&self, time: Timestamp) -> Timestamp {
        self.in_range(time).rounded_down(self.step_ns)
    }

    /// The nearest time in the range.
    #[must_use]
    pub fn in_range(&self, time: Timestamp) -> Timestamp {
        time.max(self.earliest).min(self.latest)
    }

    /// Whether a time, in whole seconds, is in the range.
    pub fn reaches(&self, time: Timestamp) -> bool {
        self.in_range(time).seconds == time.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_moved_into_the_range_and_rounded_down() {
        let sftp = StoredTimes::seconds(0, i64::from(u32::MAX));
        let time = |seconds, nanos| Timestamp { seconds, nanos };
        assert_eq!(sftp.stored(time(-1, 5)), time(0, 0));
        assert_eq!(sftp.stored(time(7, 999_999_999)), time(7, 0));
        assert_eq!(sftp.stored(time(1 << 40, 1)), time(i64::from(u32::MAX), 0));
        assert!(sftp.reaches(time(i64::from(u32::MAX), 999_999_999)));
        assert!(!sftp.reaches(time(-1, 999_999_999)) && !sftp.reaches(time(1 << 32, 0)));
        assert_eq!(StoredTimes::ALL.stored(time(i64::MIN, 1)), time(i64::MIN, 1));
    }
}
