//! The space that one file will need.

use haul_storage::{Entry, Medium, Result};

use super::need::Need;
use crate::{Job, Overwrite, Settings};

/// The most data ranges of a file that are summed up.
const DATA_RANGES: usize = 4096;

/// The destination of a file, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct DestinationState<'a> {
    /// The entry that has the file's name.
    pub existing: Option<&'a Entry>,
    /// Bytes that its part file takes up: an earlier run's, or this one's.
    pub part_bytes: u64,
    /// Allocation unit in bytes; 0 if unknown.
    pub block: u64,
}

impl Need {
    /// The need of a file that takes up `stored` bytes; `None` if it is unknown, because something of
    /// unknown size may be removed for it.
    pub fn of(
        settings: &Settings,
        file: &Entry,
        stored: u64,
        state: DestinationState<'_>,
    ) -> Option<Self> {
        let left = i128::from(stored) - i128::from(state.part_bytes);
        let Some(existing) = state.existing else {
            let sum = if settings.existing_only { 0 } else { left };
            return Some(Self { sum, least_old: None });
        };
        if existing.is_dir() {
            return (!settings.delete).then(Self::default);
        }
        let old = match existing.known_size() {
            _ if settings.backup.is_some() || !existing.is_file() => 0,
            Some(size) => size.checked_next_multiple_of(state.block.max(1)).unwrap_or(size),
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
            // Time or content decides. If a shorter file replaces it, space is freed.
            None if existing.size == file.size => Self::default(),
            None => Self { sum: sum.min(0), least_old: None },
        })
    }
}

/// The bytes of a file, without holes where they are known; 0 if its size is unknown.
pub async fn data_bytes(job: &Job, entry: &Entry) -> u64 {
    let Some(bytes) = entry.known_size() else { return 0 };
    // Small files are written whole, zeros included.
    if job.source.capabilities().medium == Medium::Disk
        && bytes > job.source.capabilities().whole_limit
        && let Ok(Some(allocated)) = job.source.allocated(&entry.path).await
    {
        // Preallocated space is copied as a hole.
        let data = if allocated > 0 { data_ranges(job, entry).await.ok() } else { None };
        return bytes.min(allocated).min(data.unwrap_or(allocated));
    }
    bytes
}

/// The bytes of data in a file, at most those of the first [`DATA_RANGES`] ranges.
async fn data_ranges(job: &Job, entry: &Entry) -> Result<u64> {
    let reader = job.source.open(&entry.path).await?;
    let (mut sum, mut at) = (0, 0);
    for _ in 0..DATA_RANGES {
        let Some(data) = reader.next_data(at).await? else { break };
        sum += data.len();
        at = data.end();
    }
    Ok(sum)
}

/// The least bytes that a copy of a file takes: without holes, and divided by its number of hard links if the
/// destination gets those links too.
pub async fn stored(settings: &Settings, job: &Job, entry: &Entry) -> u64 {
    let bytes = data_bytes(job, entry).await;
    let linked = settings.preserve.hard_links && job.destination.capabilities().hard_links;
    if linked { bytes / entry.links.max(1) } else { bytes }
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
        let state = DestinationState { existing: existing.as_ref(), part_bytes: 0, block: 1 };
        Need::of(&settings, &file(bytes), bytes, state).unwrap()
    }

    #[test]
    fn a_file_that_is_replaced_needs_both_versions_until_the_new_one_is_complete() {
        let one = need(Overwrite::Different, 100, Some(90));
        assert_eq!(one.bytes(), 100);
        let mut all = one;
        all.add(need(Overwrite::Different, 100, Some(40)));
        // 10 + 60 more in the end, and the shorter old version exists until then.
        assert_eq!(all.bytes(), 110);
        all.add(need(Overwrite::Different, 0, Some(1000)));
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn files_that_are_unchanged_or_not_replaced_need_nothing() {
        assert_eq!(need(Overwrite::Different, 100, Some(100)).bytes(), 0);
        assert_eq!(need(Overwrite::Never, 100, Some(10)).bytes(), 0);
        assert_eq!(need(Overwrite::Newer, 100, Some(10)).bytes(), 0);
        assert_eq!(need(Overwrite::Always, 100, Some(100)).bytes(), 100);
        assert_eq!(need(Overwrite::Different, 100, None).bytes(), 100);
    }

    #[test]
    fn a_part_file_has_its_space_already() {
        let state = DestinationState { existing: None, part_bytes: 70, block: 4096 };
        assert_eq!(Need::of(&Settings::default(), &file(100), 100, state).unwrap().bytes(), 30);
    }

    #[test]
    fn a_directory_that_will_be_removed_frees_an_unknown_amount() {
        let directory = Entry::new(RelPath::root(), EntryKind::Directory, 0);
        let state = DestinationState { existing: Some(&directory), part_bytes: 0, block: 1 };
        let settings = Settings { delete: true, ..Settings::default() };
        assert_eq!(Need::of(&settings, &file(100), 100, state), None);
        let need = Need::of(&Settings::default(), &file(100), 100, state);
        assert_eq!(need, Some(Need::default()));
    }

    /// Once, a rerun was refused, because the bytes of data were compared with the old length, holes included.
    #[test]
    fn an_existing_file_with_holes_needs_nothing() {
        for overwrite in [Overwrite::Different, Overwrite::Newer] {
            let settings = Settings { overwrite, ..Settings::default() };
            let existing = file(100);
            let state = DestinationState { existing: Some(&existing), part_bytes: 0, block: 1 };
            let need = Need::of(&settings, &file(100), 60, state);
            assert_eq!(need, Some(Need::default()), "{overwrite:?}");
        }
    }
}
