//! The least space that files will take: never more than they really need.

/// The space that some files need, besides what is already allocated for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// New bytes, less those that are freed; it can be negative.
    pub(super) sum: i128,
    /// Bytes of the shortest of the old files. An old version exists until the new one is complete, so the
    /// last one that is replaced needs room for both.
    pub(super) least_old: Option<u64>,
}

impl Need {
    /// Room for `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self { sum: bytes.into(), least_old: None }
    }

    /// Adds another need.
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
