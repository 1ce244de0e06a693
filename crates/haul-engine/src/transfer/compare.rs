//! Whether a file that is there already is the one that is wanted.

use haul_storage::{Entry, KeptTimes};

use crate::Overwrite;

/// What to do with an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Put the source in its place.
    Replace,
    /// It is the same.
    Keep,
    /// It may differ, but is not to be touched.
    Leave,
}

/// Compares a source with the file at its destination. The source's time is taken as the destination keeps it
/// (`None` if it keeps none), and both as exactly as the coarser side keeps them.
pub fn verdict(
    how: Overwrite,
    source: &Entry,
    source_step_ns: u64,
    existing: &Entry,
    kept: Option<KeptTimes>,
) -> Verdict {
    let rounded = source.modified.zip(existing.modified).zip(kept);
    let rounded = rounded.map(|((source, existing), kept)| {
        let step_ns = source_step_ns.max(kept.step_ns);
        (kept.kept(source).rounded_down(step_ns), existing.rounded_down(step_ns))
    });
    match how {
        Overwrite::Always => Verdict::Replace,
        Overwrite::Never => Verdict::Leave,
        Overwrite::Newer => match rounded {
            Some((source, existing)) if source > existing => Verdict::Replace,
            _ => Verdict::Leave,
        },
        Overwrite::Different => {
            let same_time = rounded.is_none_or(|(source, existing)| source == existing);
            if source.size == existing.size && same_time { Verdict::Keep } else { Verdict::Replace }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::{EntryKind, RelPath, Timestamp};

    fn file(size: u64, seconds: i64, nanos: u32) -> Entry {
        let mut entry = Entry::new(RelPath::parse("f").unwrap(), EntryKind::File, size);
        entry.modified = Some(Timestamp { seconds, nanos });
        entry
    }

    fn judge(how: Overwrite, source: &Entry, existing: &Entry, precision_ns: u64) -> Verdict {
        verdict(how, source, 1, existing, Some(KeptTimes::in_steps_of(precision_ns)))
    }

    #[test]
    fn a_destination_that_differs_is_replaced_also_when_it_is_longer_or_newer() {
        let source = file(10, 100, 0);
        let judge = |existing| judge(Overwrite::Different, &source, &existing, 1);
        assert_eq!(judge(file(10, 100, 0)), Verdict::Keep);
        assert_eq!(judge(file(20, 100, 0)), Verdict::Replace);
        assert_eq!(judge(file(10, 200, 0)), Verdict::Replace);
        assert_eq!(judge(file(10, 100, 1)), Verdict::Replace);
    }

    #[test]
    fn a_time_that_fat_has_rounded_is_the_same_time() {
        let verdict =
            judge(Overwrite::Different, &file(10, 101, 5), &file(10, 100, 0), 2_000_000_000);
        assert_eq!(verdict, Verdict::Keep);
    }

    #[test]
    fn newer_replaces_only_what_is_older() {
        let source = file(10, 100, 0);
        assert_eq!(judge(Overwrite::Newer, &source, &file(9, 99, 0), 1), Verdict::Replace);
        assert_eq!(judge(Overwrite::Newer, &source, &file(9, 100, 0), 1), Verdict::Leave);
        assert_eq!(judge(Overwrite::Newer, &source, &file(9, 101, 0), 1), Verdict::Leave);
    }

    #[test]
    fn never_leaves_and_always_replaces() {
        let (source, other) = (file(10, 100, 0), file(11, 101, 0));
        assert_eq!(judge(Overwrite::Never, &source, &other, 1), Verdict::Leave);
        assert_eq!(judge(Overwrite::Always, &source, &source, 1), Verdict::Replace);
    }
}
