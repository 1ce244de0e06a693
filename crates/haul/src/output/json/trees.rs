//! Events of `rm`, `mv`, `du` and `check`.

use std::time::Duration;

use haul_engine::tree::{Comparison, Totals};
use haul_storage::{Entry, RelPath};

use super::event::{DifferenceFields, Event, RemovedFields, UsageFields};
use super::values::kind_of;

impl<'a> Event<'a> {
    /// An entry that was removed, or would be in a dry run.
    pub(crate) fn removed(entry: &'a Entry, dry_run: bool) -> Self {
        let path = entry.path.as_bytes().into();
        Self::Removed(RemovedFields { path, kind: kind_of(entry), dry_run })
    }

    /// A source that `mv` renamed, or would in a dry run.
    pub(crate) fn renamed(location: &str, dry_run: bool) -> Self {
        Self::Renamed { location: location.to_owned(), dry_run }
    }

    /// The summary of `rm`.
    pub(crate) fn removal(removed: &Totals, failed: u64, dry_run: bool) -> Self {
        Self::Removal {
            removed_files: removed.files,
            removed_directories: removed.directories,
            removed_others: removed.others,
            removed_bytes: removed.bytes,
            failed,
            dry_run,
        }
    }

    /// The totals of a directory (`du`).
    pub(crate) fn measured(name: &'a [u8], totals: &Totals) -> Self {
        Self::Usage(UsageFields {
            path: name.into(),
            bytes: totals.bytes,
            files: totals.files,
            directories: totals.directories,
            others: totals.others,
            unknown: totals.unknown,
        })
    }

    /// A path that differs between two trees (`check`).
    pub(crate) fn difference(
        what: &'static str,
        path: &'a RelPath,
        entry: Option<&Entry>,
        reason: Option<&'static str>,
    ) -> Self {
        let (path, kind) = (path.as_bytes().into(), entry.map(kind_of));
        Self::Difference(DifferenceFields { path, what, kind, reason })
    }

    /// The summary of `check`.
    pub(crate) fn compared(comparison: &Comparison, elapsed: Duration) -> Self {
        Self::Compared {
            same: comparison.same,
            reported: comparison.reported,
            differing: comparison.differing,
            missing: comparison.missing,
            extra: comparison.extra,
            failed: comparison.failed,
            bytes: comparison.bytes,
            seconds: elapsed.as_secs_f64(),
        }
    }
}
