//! Selects files by size and modification time in their listing.

use haul_storage::{Entry, Timestamp};

/// Bounds for the files of a transfer, inclusive. A file outside them is not copied, and an existing file of its name
/// in the destination is preserved, even with `delete`. Directories and links are always selected. An unknown size or
/// time counts as within its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Selection {
    /// Size of the smallest file, in bytes.
    pub min_size: Option<u64>,
    /// Size of the largest file, in bytes.
    pub max_size: Option<u64>,
    /// Earliest modification time.
    pub modified_from: Option<Timestamp>,
    /// Latest modification time.
    pub modified_until: Option<Timestamp>,
}

impl Selection {
    /// Whether an entry is selected.
    pub fn takes(&self, entry: &Entry) -> bool {
        if !entry.is_file() {
            return true;
        }
        let size = entry.known_size();
        let time = entry.modified;
        size.zip(self.min_size).is_none_or(|(size, least)| size >= least)
            && size.zip(self.max_size).is_none_or(|(size, most)| size <= most)
            && time.zip(self.modified_from).is_none_or(|(time, from)| time >= from)
            && time.zip(self.modified_until).is_none_or(|(time, until)| time <= until)
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::{EntryKind, RelPath, UNKNOWN_SIZE};

    use super::*;

    fn file(size: u64, seconds: i64) -> Entry {
        let mut entry = Entry::new(RelPath::parse("f").unwrap(), EntryKind::File, size);
        entry.modified = Some(Timestamp { seconds, nanos: 0 });
        entry
    }

    #[test]
    fn sizes_at_the_bounds_are_selected() {
        let bounds = Selection { min_size: Some(10), max_size: Some(20), ..Selection::default() };
        let taken = |size| bounds.takes(&file(size, 0));
        assert_eq!([9, 10, 20, 21].map(taken), [false, true, true, false]);
        assert!(taken(UNKNOWN_SIZE));
    }

    #[test]
    fn times_at_the_bounds_are_selected() {
        let at = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let bounds =
            Selection { modified_from: at(10), modified_until: at(20), ..Selection::default() };
        let taken = |seconds| bounds.takes(&file(0, seconds));
        assert_eq!([9, 10, 20, 21].map(taken), [false, true, true, false]);
        let mut untimed = file(0, 0);
        untimed.modified = None;
        assert!(bounds.takes(&untimed));
    }

    #[test]
    fn directories_and_links_are_always_selected() {
        let none = Selection { min_size: Some(1), max_size: Some(0), ..Selection::default() };
        let path = || RelPath::parse("d").unwrap();
        assert!(none.takes(&Entry::new(path(), EntryKind::Directory, 0)));
        assert!(none.takes(&Entry::new(path(), EntryKind::Symlink(b"t".to_vec()), 0)));
    }
}
