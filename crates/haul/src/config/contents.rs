//! The content of a configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use haul_http::client::Headers;
use haul_storage::Location;

use super::fault::{Section, did_you_mean};
use crate::args::BridgeArg;
use crate::options::Options;

/// The content of a configuration file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// Options of every transfer.
    pub(crate) defaults: Options,
    /// The bridge of spoken codes, in `[defaults]`.
    pub(crate) bridge: Option<BridgeArg>,
    /// Whether to use the local network ([`crate::network_switch`]), in `[defaults]`.
    pub(crate) lan: Option<bool>,
    /// Whether to request port mappings from the router ([`crate::network_switch`]), in `[defaults]`.
    pub(crate) port_mapping: Option<bool>,
    /// Options of `--profile NAME`.
    pub(crate) profile: BTreeMap<String, Options>,
    /// Remotes, used as `NAME:path`.
    pub(crate) remote: BTreeMap<String, Remote>,
    /// All valid values, in order of their lines.
    pub(crate) entries: Vec<Entry>,
    /// The file; `None` if there is none.
    pub(crate) file: Option<PathBuf>,
}

/// A location with a name.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    /// The location in `url`; the path after the colon is appended to it.
    pub(crate) base: Location,
    /// The user name, unless the location has one.
    pub(crate) user: Option<String>,
    /// The port, unless the location has one.
    pub(crate) port: Option<u16>,
    /// A command that prints the password.
    pub(crate) password_command: Option<String>,
    /// Header fields of requests.
    pub(crate) headers: Option<Headers>,
    /// The line of its `[remote.NAME]` header.
    pub(crate) line: usize,
}

/// A value in the file, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: Section,
    pub(crate) key: String,
    pub(crate) line: usize,
    /// The value as text; `None` if it may be a secret.
    pub(crate) shown: Option<String>,
}

impl Config {
    /// The entry of a key, if the file sets it.
    pub(crate) fn entry(&self, section: &Section, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.section == *section && entry.key == key)
    }

    /// The remote `name`.
    ///
    /// # Errors
    /// If there is none. The message suggests a similar name, or lists all.
    pub(crate) fn named(&self, name: &str) -> Result<&Remote, String> {
        self.remote.get(name).ok_or_else(|| {
            let known = self.remote.keys().map(String::as_str);
            let hint = did_you_mean(name, known.clone()).or_else(|| {
                let known: Vec<_> = known.collect();
                (!known.is_empty()).then(|| format!("there are {}", known.join(", ")))
            });
            let hint = hint.unwrap_or_else(|| "haul config add adds one".to_owned());
            format!("the configuration has no remote '{}'\nhint: {hint}", name.escape_debug())
        })
    }
}
