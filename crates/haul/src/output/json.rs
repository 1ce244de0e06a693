//! Events as JSON, one object a line; `event` says which.
//!
//! Names: JSON is Unicode and file names are bytes, so `path` has every invalid byte replaced by
//! U+FFFD, and only then there is `path_bytes`, the exact name in hexadecimal. Sizes are bytes,
//! times seconds, unless the name says otherwise. New fields may come; these stay. Characters that
//! would steer a terminal are written as `\u` escapes.

mod config;
mod trees;

use std::borrow::Cow;
use std::time::Duration;

use haul_engine::digest::Digest;
use haul_engine::fan::{FanSummary, HostEnd, HostOutcome};
use haul_engine::verify::VerifySummary;
use haul_engine::{FileEvent, Phase, Progress, Reason, Summary};
use haul_net::Wait;
use haul_storage::text::steers_a_terminal;
use haul_storage::{DigestKind, Entry, EntryKind, Error, ErrorKind, RelPath};
use serde::Serialize;

pub(crate) use self::config::SettingFields;
use self::config::{ConnectionFields, FaultFields, PlaceFields, RemoteFields};
use self::trees::{DifferenceFields, RemovedFields, UsageFields};
use super::human;
use crate::units::per_second;

/// One line.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Event<'a> {
    /// The totals are known.
    Plan {
        files: u64,
        bytes: u64,
    },
    Progress(ProgressFields),
    File(FileFields<'a>),
    /// One checked file of `haul verify`.
    #[serde(rename = "file")]
    Check(CheckFields<'a>),
    Retry {
        attempt: u32,
        pause_ms: f64,
        #[serde(flatten)]
        error: ErrorFields<'a>,
    },
    /// A host that has sent nothing for long.
    Waiting {
        location: &'a str,
        #[serde(rename = "for")]
        what: &'a str,
        seconds: f64,
    },
    Warning {
        location: &'a str,
        message: &'a str,
    },
    Error(ErrorFields<'a>),
    Summary(SummaryFields),
    /// How it ended for one of many hosts; its name is in `host`.
    Host(HostFields<'a>),
    /// The end of `haul verify`.
    #[serde(rename = "summary")]
    Verified(VerifiedFields),
    /// One line of `haul ls`.
    Entry(EntryFields<'a>),
    /// Something that `haul rm` removed, or would remove.
    Removed(RemovedFields<'a>),
    /// A source that `haul mv` renamed, or would rename.
    Renamed {
        location: String,
        dry_run: bool,
    },
    /// The end of `haul rm`.
    #[serde(rename = "summary")]
    Removal {
        removed_files: u64,
        removed_directories: u64,
        removed_others: u64,
        removed_bytes: u64,
        failed: u64,
        dry_run: bool,
    },
    /// One line of `haul du`.
    Usage(UsageFields<'a>),
    /// One line of `haul check`.
    Difference(DifferenceFields<'a>),
    /// The end of `haul check`.
    #[serde(rename = "summary")]
    Compared {
        same: u64,
        differing: u64,
        missing: u64,
        extra: u64,
        failed: u64,
        bytes: u64,
        seconds: f64,
    },
    /// A remote of `haul config list`.
    Remote(RemoteFields<'a>),
    /// A setting of `haul config list` and `haul config show`.
    Setting(SettingFields<'a>),
    /// The file of `haul config path`.
    Path(PlaceFields<'a>),
    /// A fault that `haul config check` has found.
    Fault(FaultFields<'a>),
    /// How connecting to a remote ended.
    Connection(ConnectionFields<'a>),
    /// The end of `haul config check`.
    #[serde(rename = "summary")]
    Examined {
        faults: usize,
        remotes: usize,
        profiles: usize,
        unreachable: usize,
    },
}

/// A line that is about one of many hosts, or about none of them.
#[derive(Debug, Serialize)]
pub(crate) struct OfHost<'a> {
    #[serde(flatten)]
    event: Event<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
}

impl<'a> OfHost<'a> {
    /// `event` of the host of this name.
    pub(crate) fn new(host: Option<&'a str>, event: Event<'a>) -> Self {
        Self { event, host }
    }
}

/// How it ended for one of many hosts.
#[derive(Debug, Serialize)]
pub(crate) struct HostFields<'a> {
    /// `done`, `failed` or `stopped`.
    status: &'static str,
    files: u64,
    unchanged: u64,
    bytes: u64,
    moved_bytes: u64,
    seconds: f64,
    bytes_per_second: u64,
    failed: u64,
    retries: u64,
    /// The first failure, in words.
    error: Option<&'a str>,
}

/// Where a transfer stands.
#[derive(Debug, Serialize)]
pub(crate) struct ProgressFields {
    phase: &'static str,
    seconds: f64,
    files: u64,
    total_files: u64,
    bytes: u64,
    total_bytes: u64,
    moved_bytes: u64,
    bytes_per_second: u64,
    lanes: usize,
    window_bytes: u64,
    rtt_ms: Option<f64>,
}

/// One finished entry.
#[derive(Debug, Serialize)]
pub(crate) struct FileFields<'a> {
    #[serde(flatten)]
    path: PathFields<'a>,
    bytes: u64,
    action: &'static str,
    /// Why it was copied or linked.
    reason: Option<&'static str>,
    resumed_bytes: u64,
    digest: Option<DigestFields>,
    dry_run: bool,
}

/// One checked file.
#[derive(Debug, Serialize)]
pub(crate) struct CheckFields<'a> {
    #[serde(flatten)]
    path: PathFields<'a>,
    action: &'static str,
    bytes: Option<u64>,
}

/// A digest with its function.
#[derive(Debug, Serialize)]
struct DigestFields {
    kind: &'static str,
    hex: String,
}

/// A name, without loss.
#[derive(Debug, Serialize)]
struct PathFields<'a> {
    path: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

/// A failed operation.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorFields<'a> {
    location: &'a str,
    operation: &'a str,
    kind: String,
    message: String,
    /// What can be done about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

/// How a transfer ended.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryFields {
    files: u64,
    unchanged: u64,
    replaced: u64,
    verified: u64,
    bytes: u64,
    moved_bytes: u64,
    resumed_bytes: u64,
    seconds: f64,
    bytes_per_second: u64,
    links: u64,
    directories: u64,
    removed: u64,
    skipped: u64,
    failed: u64,
    retries: u64,
    lanes: usize,
    window_bytes: u64,
    rtt_ms: Option<f64>,
    connect_ms: Option<f64>,
    digest: Option<&'static str>,
    interrupted: bool,
    dry_run: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    many: Option<ManyFields>,
}

/// What the end of a copy to or from many hosts says besides.
#[derive(Debug, Serialize)]
struct ManyFields {
    hosts: u64,
    failed_hosts: u64,
    stopped_hosts: u64,
    source_bytes: u64,
}

/// How a check ended.
#[derive(Debug, Serialize)]
pub(crate) struct VerifiedFields {
    files: u64,
    matched: u64,
    mismatched: u64,
    missing: u64,
    unreadable: u64,
    extra: u64,
    malformed: u64,
    passed_over: u64,
    failed: u64,
    bytes: u64,
    seconds: f64,
    bytes_per_second: u64,
    retries: u64,
    digest: &'static str,
    interrupted: bool,
}

/// One entry of a listing.
#[derive(Debug, Serialize)]
pub(crate) struct EntryFields<'a> {
    #[serde(flatten)]
    path: PathFields<'a>,
    kind: &'static str,
    /// `null` where the storage does not report it.
    size: Option<u64>,
    modified: Option<String>,
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
}

impl<'a> Event<'a> {
    /// One finished entry, `path` being its name below DEST.
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

    /// Wrong usage: the message, and behind `hint: ` what to write.
    pub(crate) fn usage(message: &'a str) -> Self {
        let (message, hint) = match message.split_once("\nhint: ") {
            Some((message, hint)) => (message, Some(hint)),
            None => (message, None),
        };
        let (location, operation) = ("", "");
        let (kind, message) = ("usage".to_owned(), message.to_owned());
        Self::Error(ErrorFields { location, operation, kind, message, hint })
    }

    /// An operation that is going to be tried again.
    pub(crate) fn retry(error: &'a Error, attempt: u32, pause: Duration) -> Self {
        Self::Retry { attempt, pause_ms: ms(pause), error: error.into() }
    }

    /// A host that has sent nothing for long.
    pub(crate) fn waiting(wait: &'a Wait) -> Self {
        let Wait { host, what, waited } = wait;
        Self::Waiting { location: host, what, seconds: waited.as_secs_f64() }
    }

    /// How a transfer ended.
    pub(crate) fn summary(summary: &Summary, digest: Option<DigestKind>, dry_run: bool) -> Self {
        Self::Summary(SummaryFields::new(summary, digest, dry_run))
    }

    /// How a copy to or from many hosts ended.
    pub(crate) fn fan_summary(all: &FanSummary, digest: Option<DigestKind>, dry_run: bool) -> Self {
        let FanSummary { hosts, failed_hosts, stopped_hosts, source_bytes, .. } = *all;
        let many = Some(ManyFields { hosts, failed_hosts, stopped_hosts, source_bytes });
        let fields = SummaryFields::new(&all.total, digest, dry_run);
        Self::Summary(SummaryFields { many, ..fields })
    }

    /// How it ended for one of many hosts. `error` is the first of its failures, and `failed` how
    /// many there were.
    pub(crate) fn host(end: &HostEnd, failed: u64, error: Option<&'a str>) -> Self {
        let none = Summary::default();
        let (summary, status) = match &end.outcome {
            HostOutcome::Moved(summary) if failed > 0 => (summary, "failed"),
            HostOutcome::Moved(summary) if summary.interrupted => (summary, "stopped"),
            HostOutcome::Moved(summary) => (summary, "done"),
            HostOutcome::Unopened(_) => (&none, "failed"),
            HostOutcome::NotBegun => (&none, "stopped"),
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

    /// One checked file.
    pub(crate) fn check(path: &'a RelPath, action: &'static str, bytes: Option<u64>) -> Self {
        Self::Check(CheckFields { path: path.as_bytes().into(), action, bytes })
    }

    /// How a check ended.
    pub(crate) fn verified(summary: &VerifySummary, kind: DigestKind, elapsed: Duration) -> Self {
        let VerifySummary { matched, mismatched, missing, unreadable, extra, malformed, .. } =
            *summary;
        let listed_nothing = u64::from(summary.lists_nothing());
        Self::Verified(VerifiedFields {
            files: matched + mismatched + missing + unreadable,
            matched,
            mismatched,
            missing,
            unreadable,
            extra,
            malformed,
            passed_over: summary.passed_over,
            failed: mismatched + missing + unreadable + extra + malformed + listed_nothing,
            bytes: summary.bytes,
            seconds: seconds(elapsed),
            bytes_per_second: per_second(summary.bytes, elapsed),
            retries: summary.retries,
            digest: kind.name(),
            interrupted: summary.interrupted,
        })
    }

    /// One entry of a listing, `path` being its name below what is listed.
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

fn kind_of(entry: &Entry) -> &'static str {
    match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink(_) => "symlink",
        EntryKind::Special(_) => "special",
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
            lanes: summary.lanes,
            window_bytes: summary.window_bytes,
            rtt_ms: summary.rtt.map(ms),
            connect_ms: summary.connect.map(ms),
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
            lanes: progress.lanes,
            window_bytes: progress.window_bytes,
            rtt_ms: progress.rtt.map(ms),
        })
    }
}

impl<'a> From<&'a Error> for Event<'a> {
    fn from(error: &'a Error) -> Self {
        Self::Error(error.into())
    }
}

impl<'a> From<&'a Error> for ErrorFields<'a> {
    fn from(error: &'a Error) -> Self {
        Self {
            location: error.location(),
            operation: error.operation(),
            kind: kind_name(error.kind()),
            message: error.cause(),
            hint: error.hint(),
        }
    }
}

impl<'a> From<&'a [u8]> for PathFields<'a> {
    fn from(path: &'a [u8]) -> Self {
        let path_bytes = std::str::from_utf8(path).is_err().then(|| hex(path));
        Self { path: String::from_utf8_lossy(path), path_bytes }
    }
}

impl From<&Digest> for DigestFields {
    fn from(digest: &Digest) -> Self {
        Self { kind: digest.kind.name(), hex: digest.to_string() }
    }
}

/// `NotFound` as `not_found`; the kinds are an open list, so their names are taken as they are.
fn kind_name(kind: ErrorKind) -> String {
    let mut name = String::new();
    for letter in format!("{kind:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

/// The version of the objects. It grows when a field changes its meaning or goes; fields are added without.
const SCHEMA: u32 = 1;

/// The first object of a stream, with the version of all of them.
pub(crate) fn with_schema(line: &str) -> String {
    line.replacen('{', &format!("{{\"schema\":{SCHEMA},"), 1)
}

/// A line of JSON whose strings steer no terminal. serde_json escapes C0 controls only.
pub(crate) fn harmless(line: &str) -> Cow<'_, str> {
    if !line.contains(steers_a_terminal) {
        return Cow::Borrowed(line);
    }
    let mut harmless = String::with_capacity(line.len() + 16);
    for c in line.chars() {
        // All of them are in the basic plane, and outside of strings there are none.
        if steers_a_terminal(c) {
            harmless.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            harmless.push(c);
        }
    }
    Cow::Owned(harmless)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn seconds(time: Duration) -> f64 {
    ms(time) / 1000.0
}

/// Milliseconds with microseconds as decimals: more digits are noise.
fn ms(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(event: &Event<'_>) -> String {
        serde_json::to_string(event).unwrap()
    }

    #[test]
    fn a_name_that_is_not_text_is_kept_without_loss() {
        let entry = Entry::new(RelPath::root(), EntryKind::File, 3);
        let name = line(&Event::entry(&entry, b"a\xff"));
        assert!(name.contains(r#""path":"a�","path_bytes":"61ff""#), "{name}");
        let name = line(&Event::entry(&entry, b"a"));
        assert!(name.starts_with(r#"{"event":"entry","path":"a","kind":"file""#), "{name}");
        assert!(!name.contains("path_bytes"), "{name}");
    }

    #[test]
    fn a_line_steers_no_terminal_and_says_the_same() {
        let entry = Entry::new(RelPath::root(), EntryKind::File, 3);
        let path = "a\u{7f}\u{9b}2J\u{202e}gpj.exe\u{1b}";
        let line = line(&Event::entry(&entry, path.as_bytes()));
        let harmless = harmless(&line);
        assert!(harmless.contains(r"a\u007f\u009b2J\u202egpj.exe\u001b"), "{harmless}");
        let parsed: serde_json::Value = serde_json::from_str(&harmless).unwrap();
        assert_eq!(parsed["path"], path);
    }

    #[test]
    fn an_error_says_where_what_and_why() {
        let error = Error::new(ErrorKind::NotFound, "open").at("x/y");
        assert_eq!(
            line(&Event::from(&error)),
            r#"{"event":"error","location":"x/y","operation":"open","kind":"not_found","message":"not found"}"#
        );
    }
}
