//! The least space that files are going to take: never more than they really need.

/// What some files need, besides what is allocated for them already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// New bytes, less those that are freed. All in all it can be less than nothing.
    pub(super) sum: i128,
    /// The shortest of the old files. The old version is there until the new one is complete, so the last one that is
    /// replaced needs room for both.
    pub(super) least_old: Option<u64>,
}

impl Need {
    /// Room for so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { sum: bytes.into(), least_old: None }
    }

    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.least_old = match (self.least_old, other.least_old) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, other) => one.or(other),
        };
    }

    /// Bytes that have to be free.
    pub fn bytes(&self) -> u64 {
        let most = self.sum + i128::from(self.least_old.unwrap_or(0));
        u64::try_from(most.max(0)).unwrap_or(u64::MAX)
    }
}
