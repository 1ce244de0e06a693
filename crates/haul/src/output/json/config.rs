//! Events of `haul config`.

use haul_storage::Error;

use super::event::{ConfigFileFields, ConnectionFields, Event, FaultFields, RemoteFields};
use super::values::ErrorFields;
use crate::config::Fault;

impl<'a> Event<'a> {
    /// A remote, and the line of its header.
    pub(crate) fn remote(name: &'a str, location: String, file: String, line: usize) -> Self {
        Self::Remote(RemoteFields { name, location, file, line })
    }

    /// The configuration file.
    pub(crate) fn path(path: &'a [u8], exists: bool) -> Self {
        Self::Path(ConfigFileFields { path: path.into(), exists })
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

    /// The outcome of connecting to a remote: whether its path exists, or the error.
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
