//! The events and their fields, except those of peers, servers, mounts and the demo, which are defined where they are
//! printed. The modules next to this one fill them in, by subject.

use std::borrow::Cow;

use serde::Serialize;

use super::values::{DigestFields, ErrorFields, LinkPathFields, PathFields};

/// One line of output.
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
    /// A host has sent nothing for a long time.
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
    /// The outcome for one of many hosts; its name is in `host`.
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
        reported: u64,
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
    Path(ConfigFileFields<'a>),
    /// A fault that `haul config check` has found.
    Fault(FaultFields<'a>),
    /// The outcome of connecting to a remote.
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

/// The outcome for one of many hosts.
#[derive(Debug, Serialize)]
pub(crate) struct HostFields<'a> {
    /// `done`, `failed` or `stopped`.
    pub(super) status: &'static str,
    pub(super) files: u64,
    pub(super) unchanged: u64,
    pub(super) bytes: u64,
    pub(super) moved_bytes: u64,
    pub(super) seconds: f64,
    pub(super) bytes_per_second: u64,
    pub(super) failed: u64,
    pub(super) retries: u64,
    /// The message of the first failure.
    pub(super) error: Option<&'a str>,
}

/// The progress of a transfer.
#[derive(Debug, Serialize)]
pub(crate) struct ProgressFields {
    pub(super) phase: &'static str,
    pub(super) seconds: f64,
    pub(super) files: u64,
    pub(super) total_files: u64,
    pub(super) bytes: u64,
    pub(super) total_bytes: u64,
    pub(super) moved_bytes: u64,
    pub(super) bytes_per_second: u64,
    pub(super) lanes: usize,
    pub(super) window_bytes: u64,
    pub(super) rtt_ms: Option<f64>,
    pub(super) link_path: Option<LinkPathFields>,
}

/// One finished entry.
#[derive(Debug, Serialize)]
pub(crate) struct FileFields<'a> {
    #[serde(flatten)]
    pub(super) path: PathFields<'a>,
    pub(super) bytes: u64,
    pub(super) action: &'static str,
    /// Why it was copied or linked.
    pub(super) reason: Option<&'static str>,
    pub(super) resumed_bytes: u64,
    pub(super) digest: Option<DigestFields>,
    pub(super) dry_run: bool,
}

/// One checked file.
#[derive(Debug, Serialize)]
pub(crate) struct CheckFields<'a> {
    #[serde(flatten)]
    pub(super) path: PathFields<'a>,
    pub(super) action: &'static str,
    pub(super) bytes: Option<u64>,
}

/// How a transfer ended.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryFields {
    pub(super) files: u64,
    pub(super) unchanged: u64,
    pub(super) replaced: u64,
    pub(super) verified: u64,
    pub(super) bytes: u64,
    pub(super) moved_bytes: u64,
    pub(super) resumed_bytes: u64,
    pub(super) seconds: f64,
    pub(super) bytes_per_second: u64,
    pub(super) links: u64,
    pub(super) directories: u64,
    pub(super) removed: u64,
    pub(super) skipped: u64,
    pub(super) failed: u64,
    pub(super) retries: u64,
    pub(super) lanes: usize,
    pub(super) window_bytes: u64,
    pub(super) rtt_ms: Option<f64>,
    pub(super) connect_ms: Option<f64>,
    pub(super) link_path: Option<LinkPathFields>,
    pub(super) digest: Option<&'static str>,
    pub(super) interrupted: bool,
    pub(super) dry_run: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) many: Option<ManyFields>,
}

/// Further fields in the summary of a copy to or from many hosts.
#[derive(Debug, Serialize)]
pub(super) struct ManyFields {
    pub(super) hosts: u64,
    pub(super) failed_hosts: u64,
    pub(super) stopped_hosts: u64,
    pub(super) source_bytes: u64,
}

/// How `haul verify` ended.
#[derive(Debug, Serialize)]
pub(crate) struct VerifiedFields {
    pub(super) files: u64,
    pub(super) matched: u64,
    pub(super) reported: u64,
    pub(super) mismatched: u64,
    pub(super) missing: u64,
    pub(super) unreadable: u64,
    pub(super) extra: u64,
    pub(super) malformed: u64,
    pub(super) passed_over: u64,
    pub(super) failed: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) bytes_per_second: u64,
    pub(super) retries: u64,
    pub(super) digest: &'static str,
    pub(super) interrupted: bool,
}

/// One entry of a listing.
#[derive(Debug, Serialize)]
pub(crate) struct EntryFields<'a> {
    #[serde(flatten)]
    pub(super) path: PathFields<'a>,
    pub(super) kind: &'static str,
    /// `null` where the storage does not report it.
    pub(super) size: Option<u64>,
    pub(super) modified: Option<String>,
    pub(super) mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_bytes: Option<String>,
}

/// Something that was removed.
#[derive(Debug, Serialize)]
pub(crate) struct RemovedFields<'a> {
    #[serde(flatten)]
    pub(super) path: PathFields<'a>,
    pub(super) kind: &'static str,
    pub(super) dry_run: bool,
}

/// The size of a directory's content.
#[derive(Debug, Serialize)]
pub(crate) struct UsageFields<'a> {
    #[serde(flatten)]
    pub(super) path: PathFields<'a>,
    pub(super) bytes: u64,
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) others: u64,
    /// Files whose size their server does not report.
    pub(super) unknown: u64,
}

/// A name that differs between two trees.
#[derive(Debug, Serialize)]
pub(crate) struct DifferenceFields<'a> {
    #[serde(flatten)]
    pub(super) path: PathFields<'a>,
    /// `differs`, `missing` or `extra`.
    pub(super) what: &'static str,
    /// The kind of a missing or extra entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<&'static str>,
    /// What differs: `size`, `time`, `content`, `kind` or `target`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
}

/// A remote of the configuration.
#[derive(Debug, Serialize)]
pub(crate) struct RemoteFields<'a> {
    pub(super) name: &'a str,
    pub(super) location: String,
    pub(super) file: String,
    pub(super) line: usize,
}

/// A setting, and where it comes from.
#[derive(Debug, Serialize)]
pub(crate) struct SettingFields<'a> {
    /// `defaults`, `profile.NAME`, `remote.NAME` or `null`.
    pub(crate) section: Option<String>,
    pub(crate) name: &'a str,
    /// `null` if it could be a secret.
    pub(crate) value: Option<&'a str>,
    /// `file`, `ssh_config`, `environment`, `command_line`, `profile` or `default`.
    pub(crate) source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
    /// The variable, the option, or the built-in profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) of: Option<&'a str>,
}

/// The configuration file.
#[derive(Debug, Serialize)]
pub(crate) struct ConfigFileFields<'a> {
    #[serde(flatten)]
    pub(super) path: PathFields<'a>,
    pub(super) exists: bool,
}

/// A fault of the configuration.
#[derive(Debug, Serialize)]
pub(crate) struct FaultFields<'a> {
    pub(super) file: String,
    pub(super) line: Option<usize>,
    pub(super) section: Option<String>,
    pub(super) remote: Option<&'a str>,
    pub(super) key: Option<&'a str>,
    pub(super) message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<&'a str>,
}

/// The outcome of connecting to a remote.
#[derive(Debug, Serialize)]
pub(crate) struct ConnectionFields<'a> {
    pub(crate) remote: &'a str,
    pub(crate) location: String,
    pub(crate) connected: bool,
    /// Whether there is anything at its path; `null` if that is not known.
    pub(crate) exists: Option<bool>,
    pub(crate) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<ErrorFields<'a>>,
}
