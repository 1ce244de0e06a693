//! What a configuration file says.

use std::collections::BTreeMap;
use std::path::PathBuf;

use haul_http::client::Headers;
use haul_storage::Location;

use super::fault::{Section, did_you_mean};
use crate::options::Options;

/// What the file says.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// Options of every transfer.
    pub(crate) defaults: Options,
    /// Options of `--profile NAME`.
    pub(crate) profile: BTreeMap<String, Options>,
    /// What `NAME:path` means.
    pub(crate) remote: BTreeMap<String, Remote>,
    /// Every value that is right, by line.
    pub(crate) entries: Vec<Entry>,
    /// The file; `None` if there is none.
    pub(crate) file: Option<PathBuf>,
}

/// A location with a name.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    /// What its `url` means; the path after the colon goes below it.
    pub(crate) base: Location,
    /// As whom, unless the location says it.
    pub(crate) user: Option<String>,
    /// Port, unless the location says it.
    pub(crate) port: Option<u16>,
    /// A command that prints the password.
    pub(crate) password_command: Option<String>,
    /// Header fields of requests.
    pub(crate) headers: Option<Headers>,
    /// The line of its header.
    pub(crate) line: usize,
}

/// A value in the file, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) section: Section,
    pub(crate) key: String,
    pub(crate) line: usize,
    /// The value for people; `None` if it could be a secret.
    pub(crate) shown: Option<String>,
}

impl Config {
    /// What the file has for a key.
    pub(crate) fn entry(&self, section: &Section, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.section == *section && entry.key == key)
    }

    /// A remote.
    ///
    /// # Errors
    /// There is none of that name; with a hint at similar ones.
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
