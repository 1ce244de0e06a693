//! Decides whether an existing file is up to date.

use haul_storage::{Entry, StoredTimes};

use crate::{Compare, Overwrite, Reason};

/// What to do with an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Replace it by the source, for this reason.
    Replace(Reason),
    /// It is up to date.
    Keep,
    /// It may differ, but must not be touched.
    Leave,
}

/// Compares a source with the file at its destination. With [`Overwrite::Different`], digests of one kind that both
/// were listed with decide instead of times. The source's time is compared as the destination would store it, with the
/// precision of the coarser side. Contents are not read: with [`Compare::Content`], `Keep` means that the
/// sizes allow equality. `sets_times`: whether the destination's times are those of the source, and not
/// those of the uploads.
pub fn verdict(
    (how, compare): (Overwrite, Compare),
    source: &Entry,
    source_step_ns: u64,
    existing: &Entry,
    stored_times: StoredTimes,
    sets_times: bool,
) -> Verdict {
    let rounded = source.modified.zip(existing.modified).map(|(source, existing)| {
        let step_ns = source_step_ns.max(stored_times.step_ns);
        (stored_times.stored(source).rounded_down(step_ns), existing.rounded_down(step_ns))
    });
    // Where times cannot be set, the existing file has the time of its upload: a source that was modified
    // later differs.
    let same_time = |(source, existing)| match sets_times {
        true => source == existing,
        false => source <= existing,
    };
    match how {
        Overwrite::Always => Verdict::Replace(Reason::Always),
        Overwrite::Never => Verdict::Leave,
        Overwrite::Newer => match rounded {
            Some((source, existing)) if source > existing => Verdict::Replace(Reason::Time),
            _ => Verdict::Leave,
        },
        Overwrite::Different => {
            let by_time = || rounded.is_none_or(same_time);
            let by_digest = source.same_content(existing);
            let sizes = source.known_size().zip(existing.known_size());
            // A size that is unknown shows nothing, so the time does.
            let times_count =
                compare == Compare::SizeAndTime || compare == Compare::Size && sizes.is_none();
            let same_time = !times_count || by_digest.unwrap_or_else(by_time);
            let same_size =
                sizes.map_or(rounded.is_some(), |(source, existing)| source == existing);
            match (same_size, same_time) {
                (true, true) => Verdict::Keep,
                (true, false) if by_digest == Some(false) => Verdict::Replace(Reason::Content),
                (true, false) => Verdict::Replace(Reason::Time),
                (false, _) => Verdict::Replace(Reason::Size),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::{Digest, DigestKind, EntryKind, RelPath, Timestamp};

    const BY_TIME: Verdict = Verdict::Replace(Reason::Time);

    fn file(size: u64, seconds: i64, nanos: u32) -> Entry {
        let mut entry = Entry::new(RelPath::parse("f").unwrap(), EntryKind::File, size);
        entry.modified = Some(Timestamp { seconds, nanos });
        entry
    }

    fn judge(how: Overwrite, source: &Entry, existing: &Entry, precision_ns: u64) -> Verdict {
        let how = (how, Compare::SizeAndTime);
        verdict(how, source, 1, existing, StoredTimes::in_steps_of(precision_ns), true)
    }

    #[test]
    fn a_destination_that_differs_is_replaced_even_if_it_is_longer_or_newer() {
        let source = file(10, 100, 0);
        let judge = |existing| judge(Overwrite::Different, &source, &existing, 1);
        assert_eq!(judge(file(10, 100, 0)), Verdict::Keep);
        assert_eq!(judge(file(20, 100, 0)), Verdict::Replace(Reason::Size));
        assert_eq!(judge(file(10, 200, 0)), Verdict::Replace(Reason::Time));
        assert_eq!(judge(file(10, 100, 1)), Verdict::Replace(Reason::Time));
    }

    #[test]
    fn a_time_rounded_by_fat_counts_as_equal() {
        let verdict =
            judge(Overwrite::Different, &file(10, 101, 5), &file(10, 100, 0), 2_000_000_000);
        assert_eq!(verdict, Verdict::Keep);
    }

    /// Once, a changed file of the same length was never sent to Apache, where times cannot be set.
    #[test]
    fn where_times_cannot_be_set_a_source_that_is_newer_than_its_upload_differs() {
        let seconds = StoredTimes::in_steps_of(1_000_000_000);
        let judge = |how, source, existing| {
            verdict((how, Compare::SizeAndTime), &source, 1, &existing, seconds, false)
        };
        let uploaded = || file(10, 100, 0);
        assert_eq!(judge(Overwrite::Different, file(10, 99, 0), uploaded()), Verdict::Keep);
        assert_eq!(judge(Overwrite::Different, file(10, 100, 7), uploaded()), Verdict::Keep);
        assert_eq!(judge(Overwrite::Different, file(10, 101, 0), uploaded()), BY_TIME);
        assert_eq!(
            judge(Overwrite::Different, file(11, 99, 0), uploaded()),
            Verdict::Replace(Reason::Size)
        );
        assert_eq!(judge(Overwrite::Newer, file(10, 101, 0), uploaded()), BY_TIME);
        assert_eq!(judge(Overwrite::Newer, file(10, 99, 0), uploaded()), Verdict::Leave);
        let mut untimed = uploaded();
        untimed.modified = None;
        assert_eq!(judge(Overwrite::Different, file(10, 101, 0), untimed), Verdict::Keep);
    }

    #[test]
    fn a_source_of_unknown_length_is_unchanged_only_if_its_time_is_equal() {
        let unknown = |seconds| file(haul_storage::UNKNOWN_SIZE, seconds, 0);
        let judge = |source| judge(Overwrite::Different, &source, &file(10, 100, 0), 1);
        assert_eq!(judge(unknown(100)), Verdict::Keep);
        assert_eq!(judge(unknown(101)), BY_TIME);
        let mut untimed = unknown(100);
        untimed.modified = None;
        assert_eq!(judge(untimed), Verdict::Replace(Reason::Size));
        // Formerly, it never counted as changed by size alone.
        let by_size = |source| {
            let how = (Overwrite::Different, Compare::Size);
            verdict(how, &source, 1, &file(10, 100, 0), StoredTimes::in_steps_of(1), true)
        };
        assert_eq!((by_size(unknown(100)), by_size(unknown(101))), (Verdict::Keep, BY_TIME));
        assert_eq!(by_size(file(10, 101, 0)), Verdict::Keep);
    }

    #[test]
    fn newer_replaces_only_older_files() {
        let source = file(10, 100, 0);
        assert_eq!(judge(Overwrite::Newer, &source, &file(9, 99, 0), 1), BY_TIME);
        assert_eq!(judge(Overwrite::Newer, &source, &file(9, 100, 0), 1), Verdict::Leave);
        assert_eq!(judge(Overwrite::Newer, &source, &file(9, 101, 0), 1), Verdict::Leave);
    }

    #[test]
    fn never_leaves_and_always_replaces() {
        let (source, other) = (file(10, 100, 0), file(11, 101, 0));
        assert_eq!(judge(Overwrite::Never, &source, &other, 1), Verdict::Leave);
        let always = judge(Overwrite::Always, &source, &source, 1);
        assert_eq!(always, Verdict::Replace(Reason::Always));
    }

    #[test]
    fn digests_of_one_kind_decide_before_times_do() {
        let with = |seconds, kind, content: &[u8]| {
            let mut file = file(10, seconds, 0);
            file.digest = Some(Digest::of(kind, content));
            file
        };
        let source = with(100, DigestKind::Sha256, b"a");
        let judge = |existing| judge(Overwrite::Different, &source, &existing, 1);
        assert_eq!(judge(with(200, DigestKind::Sha256, b"a")), Verdict::Keep);
        let other = with(100, DigestKind::Sha256, b"b");
        assert_eq!(judge(other.clone()), Verdict::Replace(Reason::Content));
        // Without digests of the same kind, times decide.
        assert_eq!(judge(with(200, DigestKind::Blake3, b"a")), BY_TIME);
        assert_eq!(judge(file(10, 100, 0)), Verdict::Keep);
        // Digests do not decide where only sizes are compared.
        let by_size = (Overwrite::Different, Compare::Size);
        let stored_times = StoredTimes::in_steps_of(1);
        assert_eq!(verdict(by_size, &source, 1, &other, stored_times, true), Verdict::Keep);
        let mut longer = source.clone();
        longer.size = 11;
        assert_eq!(judge(longer), Verdict::Replace(Reason::Size));
    }

    #[test]
    fn times_do_not_count_where_sizes_or_contents_are_compared() {
        let (source, existing) = (file(10, 100, 0), file(10, 200, 0));
        for compare in [Compare::Size, Compare::Content] {
            let how = (Overwrite::Different, compare);
            let verdict =
                |existing| verdict(how, &source, 1, existing, StoredTimes::in_steps_of(1), true);
            assert_eq!(verdict(&existing), Verdict::Keep);
            assert_eq!(verdict(&file(9, 100, 0)), Verdict::Replace(Reason::Size));
        }
    }
}
