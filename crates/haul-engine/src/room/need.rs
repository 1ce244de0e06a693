//! The least space that files are going to take: never more than they really need.

use haul_storage::Entry;

use crate::{Overwrite, Settings};

/// What some files need, besides what is allocated for them already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Need {
    /// New bytes, less those that are freed. All in all it can be less than nothing.
    sum: i128,
    /// The shortest of the old files. The old version is there until the new one is complete, so the last one that is
    /// replaced needs room for both.
    least_old: Option<u64>,
}

/// What is known of the destination of a file.
#[derive(Debug, Clone, Copy)]
pub struct There<'a> {
    /// What has its name.
    pub existing: Option<&'a Entry>,
    /// Bytes that its part file takes up: an earlier run's, or this one's.
    pub part_bytes: u64,
    /// Unit in which files get space.
    pub block: u64,
}

impl Need {
    /// Room for so many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { sum: bytes.into(), least_old: None }
    }

    /// The need of a file that takes up `stored` bytes; `None` if it cannot be told, because there is something in the
    /// way that will be removed.
    pub fn of(settings: &Settings, file: &Entry, stored: u64, there: There<'_>) -> Option<Self> {
        let left = i128::from(stored) - i128::from(there.part_bytes);
        let Some(existing) = there.existing else {
            let sum = if settings.existing_only { 0 } else { left };
            return Some(Self { sum, least_old: None });
        };
        if existing.is_dir() {
            return (!settings.delete).then(Self::default);
        }
        let old = match existing.known_size() {
            _ if settings.backup.is_some() || !existing.is_file() => 0,
            Some(size) => size.checked_next_multiple_of(there.block.max(1)).unwrap_or(size),
            None => return None,
        };
        let differs = !existing.is_file() || existing.size != file.size;
        let is_replaced = match settings.overwrite {
            Overwrite::Always => Some(true),
            Overwrite::Never => Some(false),
            Overwrite::Different if differs => Some(true),
            Overwrite::Different | Overwrite::Newer => None,
        };
        let sum = left - i128::from(old);
        Some(match is_replaced {
            Some(true) => Self { sum, least_old: Some(old) },
            Some(false) => Self::default(),
            // Its time or its content decides. If it is replaced by less, space is freed.
            None if existing.size == file.size => Self::default(),
            None => Self { sum: sum.min(0), least_old: None },
        })
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

#[cfg(test)]
mod tests {
    use haul_storage::{EntryKind, RelPath};

    use super::*;

    fn file(size: u64) -> Entry {
        Entry::new(RelPath::root(), EntryKind::File, size)
    }

    fn need(overwrite: Overwrite, bytes: u64, old: Option<u64>) -> Need {
        let settings = Settings { overwrite, ..Settings::default() };
        let existing = old.map(file);
        let there = There { existing: existing.as_ref(), part_bytes: 0, block: 1 };
        Need::of(&settings, &file(bytes), bytes, there).unwrap()
    }

    #[test]
    fn a_file_that_is_replaced_needs_both_versions_until_the_new_one_is_complete() {
        let one = need(Overwrite::Different, 100, Some(90));
        assert_eq!(one.bytes(), 100);
        let mut all = one;
        all.add(need(Overwrite::Different, 100, Some(40)));
        // 10 + 60 more in the end, and the shorter old one is there until then.
        assert_eq!(all.bytes(), 110);
        all.add(need(Overwrite::Different, 0, Some(1000)));
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn what_is_unchanged_or_left_alone_needs_nothing() {
        assert_eq!(need(Overwrite::Different, 100, Some(100)).bytes(), 0);
        assert_eq!(need(Overwrite::Never, 100, Some(10)).bytes(), 0);
        assert_eq!(need(Overwrite::Newer, 100, Some(10)).bytes(), 0);
        assert_eq!(need(Overwrite::Always, 100, Some(100)).bytes(), 100);
        assert_eq!(need(Overwrite::Different, 100, None).bytes(), 100);
    }

    #[test]
    fn a_part_file_has_its_space_already() {
        let there = There { existing: None, part_bytes: 70, block: 4096 };
        assert_eq!(Need::of(&Settings::default(), &file(100), 100, there).unwrap().bytes(), 30);
    }

    #[test]
    fn a_directory_that_will_be_removed_frees_an_unknown_amount() {
        let directory = Entry::new(RelPath::root(), EntryKind::Directory, 0);
        let there = There { existing: Some(&directory), part_bytes: 0, block: 1 };
        let settings = Settings { delete: true, ..Settings::default() };
        assert_eq!(Need::of(&settings, &file(100), 100, there), None);
        let need = Need::of(&Settings::default(), &file(100), 100, there);
        assert_eq!(need, Some(Need::default()));
    }

    /// A rerun was refused, because the data was compared with the old length.
    #[test]
    fn a_file_with_holes_that_is_there_needs_nothing() {
        for overwrite in [Overwrite::Different, Overwrite::Newer] {
            let settings = Settings { overwrite, ..Settings::default() };
            let existing = file(100);
            let there = There { existing: Some(&existing), part_bytes: 0, block: 1 };
            let need = Need::of(&settings, &file(100), 60, there);
            assert_eq!(need, Some(Need::default()), "{overwrite:?}");
        }
    }
}
