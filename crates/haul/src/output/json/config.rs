//! Events of `haul config`.

use haul_storage::Error;
use serde::Serialize;

use super::{ErrorFields, Event, PathFields};
use crate::config::Fault;

/// A remote of the configuration.
#[derive(Debug, Serialize)]
pub(crate) struct RemoteFields<'a> {
    name: &'a str,
    location: String,
    file: String,
    line: usize,
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
pub(crate) struct PlaceFields<'a> {
    #[serde(flatten)]
    path: PathFields<'a>,
    exists: bool,
}

/// A fault of the configuration.
#[derive(Debug, Serialize)]
pub(crate) struct FaultFields<'a> {
    file: String,
    line: Option<usize>,
    section: Option<String>,
    remote: Option<&'a str>,
    key: Option<&'a str>,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
}

/// How connecting to a remote ended.
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

impl<'a> Event<'a> {
    /// A remote, and the line of its header.
    pub(crate) fn remote(name: &'a str, location: String, file: String, line: usize) -> Self {
        Self::Remote(RemoteFields { name, location, file, line })
    }

    /// The configuration file.
    pub(crate) fn path(path: &'a [u8], exists: bool) -> Self {
        Self::Path(PlaceFields { path: path.into(), exists })
    }

    /// A fault.
    pub(crate) fn fault(fault: &'a Fault) -> Self {
        let section = fault.section.name();
        Self::Fault(FaultFields {
            file: fault.file.display().to_string(),
            line: fault.line,
            section: (!section.is_empty()).then_some(section),
            remote: fault.section.remote(),
            key: fault.key.as_deref(),
            message: &fault.cause,
            hint: fault.hint.as_deref(),
        })
    }

    /// How connecting to a remote ended: whether there is something, or why it failed.
    pub(crate) fn connection(
        remote: &'a str,
        location: String,
        outcome: Result<bool, &'a Error>,
        seconds: f64,
    ) -> Self {
        let (connected, exists) = (outcome.is_ok(), outcome.ok());
        let error = outcome.err().map(ErrorFields::from);
        Self::Connection(ConnectionFields { remote, location, connected, exists, seconds, error })
    }
}
