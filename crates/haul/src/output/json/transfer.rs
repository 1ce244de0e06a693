//! JSON events of transfers, `verify` and `ls`, and errors.

use std::time::Duration;

use haul_engine::fan::{FanSummary, HostEnd, HostOutcome};
use haul_engine::verify::VerifySummary;
use haul_engine::{FileEvent, Phase, Progress, Reason, Summary};
use haul_net::Wait;
use haul_storage::{DigestKind, Entry, EntryKind, Error, RelPath};

use super::event::{
    CheckFields, EntryFields, Event, FileFields, HostFields, ManyFields, ProgressFields,
    SummaryFields, VerifiedFields,
};
use super::values::{DigestFields, ErrorFields, LinkPathFields, PathFields, kind_of, ms, seconds};
use crate::output::human;
use crate::units::per_second;

impl<'a> Event<'a> {
    /// A finished file or other entry; `path` is relative to DEST.
    pub(crate) fn file(event: &FileEvent, path: &'a RelPath) -> Self {
        Self::File(FileFields {
            path: path.as_bytes().into(),
            bytes: event.bytes,
            action: event.action.name(),
            reason: event.reason.map(Reason::name),
            resumed_bytes: event.resumed_bytes,
            digest: event.digest.as_ref().map(DigestFields::from),
            dry_run: event.dry_run,
        })
    }

    /// A usage error. In `message`, a hint may follow the text in a line that begins with `hint: `.
    pub(crate) fn usage(message: &'a str) -> Self {
        let (message, hint) = match message.split_once("\nhint: ") {
            Some((message, hint)) => (message, Some(hint)),
            None => (message, None),
        };
        let (location, operation) = ("", "");
        let (kind, message) = ("usage".to_owned(), message.to_owned());
        Self::Error(ErrorFields { location, operation, kind, message, hint })
    }

    /// An operation that will be retried after `pause`.
    pub(crate) fn retry(error: &'a Error, attempt: u32, pause: Duration) -> Self {
        Self::Retry { attempt, pause_ms: ms(pause), error: error.into() }
    }

    /// A host that has not responded for a long time.
    pub(crate) fn waiting(wait: &'a Wait) -> Self {
        let Wait { host, what, waited } = wait;
        Self::Waiting { location: host, what, seconds: waited.as_secs_f64() }
    }

    /// The result of a transfer.
    pub(crate) fn summary(summary: &Summary, digest: Option<DigestKind>, dry_run: bool) -> Self {
        Self::Summary(SummaryFields::new(summary, digest, dry_run))
    }

    /// The result of a copy to or from many hosts.
    pub(crate) fn fan_summary(all: &FanSummary, digest: Option<DigestKind>, dry_run: bool) -> Self {
        let FanSummary { hosts, failed_hosts, stopped_hosts, source_bytes, .. } = *all;
        let many = Some(ManyFields { hosts, failed_hosts, stopped_hosts, source_bytes });
        let fields = SummaryFields::new(&all.total, digest, dry_run);
        Self::Summary(SummaryFields { many, ..fields })
    }

    /// The result for one of many hosts. `error` is its first failure, `failed` their number.
    pub(crate) fn host(end: &HostEnd, failed: u64, error: Option<&'a str>) -> Self {
        let none = &Summary::default();
        let (summary, status) = match &end.outcome {
            HostOutcome::Moved(summary) if failed > 0 => (&**summary, "failed"),
            HostOutcome::Moved(summary) if summary.interrupted => (&**summary, "stopped"),
            HostOutcome::Moved(summary) => (&**summary, "done"),
            HostOutcome::Unopened(_) => (none, "failed"),
            HostOutcome::NotBegun => (none, "stopped"),
        };
        Self::Host(HostFields {
            status,
            files: summary.files,
            unchanged: summary.unchanged,
            bytes: summary.bytes,
            moved_bytes: summary.moved_bytes,
            seconds: seconds(end.elapsed),
            bytes_per_second: per_second(summary.moved_bytes, end.elapsed),
            failed,
            retries: summary.retries,
            error,
        })
    }

    /// A file checked by `verify`.
    pub(crate) fn check(path: &'a RelPath, action: &'static str, bytes: Option<u64>) -> Self {
        Self::Check(CheckFields { path: path.as_bytes().into(), action, bytes })
    }

    /// The result of `verify`.
    pub(crate) fn verified(summary: &VerifySummary, kind: DigestKind, elapsed: Duration) -> Self {
        let VerifySummary { matched, mismatched, missing, unreadable, extra, malformed, .. } =
            *summary;
        let listed_nothing = u64::from(summary.lists_nothing());
        Self::Verified(VerifiedFields {
            files: matched + mismatched + missing + unreadable,
            matched,
            reported: summary.reported,
            mismatched,
            missing,
            unreadable,
            extra,
            malformed,
            passed_over: summary.skipped,
            failed: mismatched + missing + unreadable + extra + malformed + listed_nothing,
            bytes: summary.bytes,
            seconds: seconds(elapsed),
            bytes_per_second: per_second(summary.bytes, elapsed),
            retries: summary.retries,
            digest: kind.name(),
            interrupted: summary.interrupted,
        })
    }

    /// An entry of a listing. `path` is relative to the listed directory; an entry that is listed itself has the path
    /// or the name of its location.
    pub(crate) fn entry(entry: &'a Entry, path: &'a [u8]) -> Self {
        let target = match &entry.kind {
            EntryKind::Symlink(target) => Some(PathFields::from(target.as_slice())),
            _ => None,
        };
        let (target, target_bytes) =
            target.map_or((None, None), |target| (Some(target.path), target.path_bytes));
        Self::Entry(EntryFields {
            path: path.into(),
            kind: kind_of(entry),
            size: entry.known_size(),
            modified: entry.modified.map(|time| human::utc(time, true)),
            mode: entry.mode.map(|mode| format!("{mode:04o}")),
            target,
            target_bytes,
        })
    }
}

impl SummaryFields {
    fn new(summary: &Summary, digest: Option<DigestKind>, dry_run: bool) -> Self {
        Self {
            files: summary.files,
            unchanged: summary.unchanged,
            replaced: summary.replaced,
            verified: summary.verified,
            bytes: summary.bytes,
            moved_bytes: summary.moved_bytes,
            resumed_bytes: summary.resumed_bytes,
            seconds: seconds(summary.elapsed),
            bytes_per_second: per_second(summary.moved_bytes, summary.elapsed),
            links: summary.links,
            directories: summary.directories,
            removed: summary.removed,
            skipped: summary.skipped,
            failed: summary.failed,
            retries: summary.retries,
            lanes: summary.link.lanes,
            window_bytes: summary.link.window_bytes,
            rtt_ms: summary.link.rtt.map(ms),
            connect_ms: summary.link.connect.map(ms),
            link_path: summary.link.path.map(LinkPathFields::from),
            digest: digest.map(DigestKind::name),
            interrupted: summary.interrupted,
            dry_run,
            many: None,
        }
    }
}

impl From<&Progress> for Event<'_> {
    fn from(progress: &Progress) -> Self {
        Self::Progress(ProgressFields {
            phase: match progress.phase {
                Phase::Planning => "planning",
                Phase::Moving => "moving",
                Phase::Ended => "ended",
            },
            seconds: seconds(progress.elapsed),
            files: progress.files,
            total_files: progress.total_files,
            bytes: progress.bytes,
            total_bytes: progress.total_bytes,
            moved_bytes: progress.moved_bytes,
            bytes_per_second: progress.bytes_per_second,
            lanes: progress.link.lanes,
            window_bytes: progress.link.window_bytes,
            rtt_ms: progress.link.rtt.map(ms),
            link_path: progress.link.path.map(LinkPathFields::from),
        })
    }
}

impl<'a> From<&'a Error> for Event<'a> {
    fn from(error: &'a Error) -> Self {
        Self::Error(error.into())
    }
}
