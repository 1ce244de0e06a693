//! The form of a split folder: names of its parts, and how it is recognised.

use futures_util::StreamExt as _;
use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, Identity, Range, RelPath, Result, StorageExt as _,
    UNKNOWN_SIZE,
};

use super::Shared;

/// Length of a part in bytes: 4 GiB − 64 KiB, the largest multiple of 64 KiB that FAT32 can hold.
pub const PART_BYTES: u64 = 4_294_901_760;

/// The name of a part: its number with at least two digits.
pub(super) fn part_number_name(number: u64) -> String {
    format!("{number:02}")
}

/// The number of a part with this name.
pub(super) fn number_of(name: &[u8]) -> Option<u64> {
    let number = std::str::from_utf8(name).ok()?.parse().ok()?;
    (part_number_name(number).as_bytes() == name).then_some(number)
}

/// The path of a part in a folder.
pub(super) fn part_path(folder: &RelPath, number: u64) -> RelPath {
    // A name of digits is always valid.
    folder.join(part_number_name(number)).unwrap_or_default()
}

/// Splits a range of a file at the boundaries of parts: number of each part, and the range within
/// it.
pub(super) fn cut(range: Range, part: u64) -> impl Iterator<Item = (u64, Range)> {
    let mut rest = range;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (number, within) = (rest.start() / part, rest.start() % part);
        let (head, tail) = rest.split_at(part - within);
        rest = tail;
        Some((number, Range::new(within, head.len())))
    })
}

/// A complete split folder.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Length of every part but the last.
    pub(super) part: u64,
    /// All parts in order.
    pub(super) parts: Vec<Entry>,
}

impl Layout {
    pub(super) fn size(&self) -> u64 {
        self.parts.iter().map(|part| part.size).sum()
    }

    /// The folder as one file, with time, mode, owner and ID of the first part.
    pub(super) fn entry(&self, path: &RelPath) -> Entry {
        let mut entry = Entry::new(path.clone(), EntryKind::File, self.size());
        if let Some(first) = self.parts.first() {
            entry.modified = first.modified;
            entry.mode = first.mode;
            entry.owner = first.owner;
            entry.id = first.id;
        }
        entry.tag = Some(self.tag());
        entry
    }

    pub(super) fn identity(&self, path: &RelPath) -> Identity {
        self.entry(path).identity()
    }

    /// A tag that differs if any part differs. It is FNV-1a because other runs compare it with
    /// their journals.
    fn tag(&self) -> String {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for part in &self.parts {
            for byte in part.identity().to_string().bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        format!("{}x{hash:016x}", self.parts.len())
    }
}

impl Shared {
    /// The split folder at `path`, or `None` if there is none.
    pub(super) async fn layout(&self, path: &RelPath) -> Result<Option<Layout>> {
        if !self.joins() || path.is_root() {
            return Ok(None);
        }
        // Most directories have no `00`, and end here.
        let first = match self.inner.find(&part_path(path, 0)).await {
            Ok(Some(first)) if first.is_file() && self.is_part_length(first.size) => first,
            // A directory that may not be searched counts as an ordinary one.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
            Err(error) if error.kind() != ErrorKind::NotADirectory => return Err(error),
            _ => return Ok(None),
        };
        let mut parts = Vec::new();
        let mut batches = match self.inner.list(path).await {
            Err(error) if is_gone(&error) => return Ok(None),
            batches => batches?,
        };
        while let Some(batch) = batches.next().await {
            for entry in batch? {
                match number_of(entry.path.name()) {
                    Some(number) if entry.is_file() && entry.size != UNKNOWN_SIZE => {
                        parts.push((number, entry));
                    }
                    _ => return Ok(None),
                }
            }
        }
        parts.sort_unstable_by_key(|(number, _)| *number);
        let contiguous = (0..).zip(&parts).all(|(expected, (number, _))| *number == expected);
        let parts: Vec<_> = parts.into_iter().map(|(_, entry)| entry).collect();
        let part = first.size;
        let Some((last, full)) = parts.split_last() else { return Ok(None) };
        let is_split = contiguous
            && !full.is_empty()
            && full.iter().all(|entry| entry.size == part)
            && (1..=part).contains(&last.size);
        Ok(is_split.then_some(Layout { part, parts }))
    }
}

pub(super) fn is_gone(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_names_have_two_digits_and_more_from_100_on() {
        for (number, name) in [(0, "00"), (7, "07"), (99, "99"), (100, "100"), (1234, "1234")] {
            assert_eq!(part_number_name(number), name);
            assert_eq!(number_of(name.as_bytes()), Some(number));
        }
        for name in ["0", "000", "007", "+1", " 1", "1a", "", ".00.haul-part"] {
            assert_eq!(number_of(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_range_is_split_at_part_boundaries() {
        let cuts: Vec<_> = cut(Range::between(5, 25), 10).collect();
        let expected =
            [(0, Range::between(5, 10)), (1, Range::between(0, 10)), (2, Range::between(0, 5))];
        assert_eq!(cuts, expected);
        assert_eq!(cut(Range::new(10, 0), 10).count(), 0);
    }
}
