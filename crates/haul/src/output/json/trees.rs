//! Events of `rm`, `du` and `check`.

use std::time::Duration;

use haul_engine::tree::{Comparison, Totals};
use haul_storage::{Entry, RelPath};
use serde::Serialize;

use super::{Event, PathFields, kind_of};

/// Something that was removed.
#[derive(Debug, Serialize)]
pub(crate) struct RemovedFields<'a> {
    #[serde(flatten)]
    path: PathFields<'a>,
    kind: &'static str,
    dry_run: bool,
}

/// What a directory holds.
#[derive(Debug, Serialize)]
pub(crate) struct UsageFields<'a> {
    #[serde(flatten)]
    path: PathFields<'a>,
    bytes: u64,
    files: u64,
    directories: u64,
    others: u64,
    /// Files whose size their server does not report.
    unknown: u64,
}

/// A name that differs between two trees.
#[derive(Debug, Serialize)]
pub(crate) struct DifferenceFields<'a> {
    #[serde(flatten)]
    path: PathFields<'a>,
    /// `differs`, `missing` or `extra`.
    what: &'static str,
    /// Of what one side lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// What differs: `size`, `time`, `content`, `kind` or `target`.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl<'a> Event<'a> {
    /// An entry that was removed, or would be.
    pub(crate) fn removed(entry: &'a Entry, dry_run: bool) -> Self {
        let path = entry.path.as_bytes().into();
        Self::Removed(RemovedFields { path, kind: kind_of(entry), dry_run })
    }

    /// A source that was renamed, or would be.
    pub(crate) fn renamed(location: &str, dry_run: bool) -> Self {
        Self::Renamed { location: location.to_owned(), dry_run }
    }

    /// How a removal ended.
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

    /// What a directory holds.
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

    /// A name that differs between two trees.
    pub(crate) fn difference(
        what: &'static str,
        path: &'a RelPath,
        entry: Option<&Entry>,
        reason: Option<&'static str>,
    ) -> Self {
        let (path, kind) = (path.as_bytes().into(), entry.map(kind_of));
        Self::Difference(DifferenceFields { path, what, kind, reason })
    }

    /// How a comparison ended.
    pub(crate) fn compared(comparison: &Comparison, elapsed: Duration) -> Self {
        Self::Compared {
            same: comparison.same,
            differing: comparison.differing,
            missing: comparison.missing,
            extra: comparison.extra,
            failed: comparison.failed,
            bytes: comparison.bytes,
            seconds: elapsed.as_secs_f64(),
        }
    }
}
