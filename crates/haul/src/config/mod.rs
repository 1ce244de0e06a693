//! The configuration file: `haul/config.toml`.
//!
//! ```toml
//! [defaults]
//! bwlimit = "80mbit"
//!
//! [profile.night]
//! profile = "aggressive"
//! exclude = ["*.tmp"]
//!
//! [remote.nas]
//! url = "sftp://nas.example/volume1"
//! user = "ada"
//! password-command = "pass show nas"
//! ```
//!
//! An unknown key or an invalid value is an error that names file, line, section and key: a misspelt `fsync` must not
//! silently have no effect. `haul config check` prints all errors, other commands the first one.

mod contents;
pub(crate) mod edit;
mod fault;
mod file;
mod read;

use std::path::Path;

pub(crate) use self::contents::{Config, Entry, Remote};
pub(crate) use self::fault::{Fault, Faults, Section};
pub(crate) use self::file::{ConfigPath, NamedBy, config_path, content, replace, sync, target};
pub(crate) use self::read::{check_name, location, option_names, user_name};

impl Config {
    /// Loads the configuration from [`config_path`]. The default file need not exist.
    ///
    /// # Errors
    /// The faults of the file.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Faults> {
        let Some(file) = config_path(named) else { return Ok(Self::default()) };
        let (config, faults) = Self::examine(&file);
        if faults.is_empty() { Ok(config) } else { Err(Faults(faults)) }
    }

    /// The valid part of a file, and all its faults.
    pub(crate) fn examine(file: &ConfigPath) -> (Self, Vec<Fault>) {
        let cannot_read = |cause: String| {
            let file = file.path.clone();
            let (line, section, key, hint) = (None, Section::Top, None, None);
            let cause = format!("cannot read ({cause})");
            (Self::default(), vec![Fault { file, line, section, key, cause, hint }])
        };
        let bytes = match content(&file.path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) if file.named_by == NamedBy::Default => return (Self::default(), Vec::new()),
            Ok(None) => return cannot_read("not found".to_owned()),
            Err(error) => return cannot_read(error.cause()),
        };
        match String::from_utf8(bytes) {
            Ok(text) => Self::parse(&file.path, &text),
            Err(_) => cannot_read("it is not UTF-8".to_owned()),
        }
    }

    /// Like [`examine`](Self::examine), for a text that was read from `file`.
    pub(crate) fn parse(file: &Path, text: &str) -> (Self, Vec<Fault>) {
        let (mut config, faults) = read::read(file, text);
        config.file = Some(file.to_owned());
        (config, faults)
    }

    /// For tests: a configuration from a text without faults.
    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        let (config, faults) = Self::parse(Path::new("c.toml"), text);
        assert!(faults.is_empty(), "{faults:?}");
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{OrAuto, Switch};

    #[test]
    fn values_have_the_same_syntax_as_on_the_command_line() {
        let config = Config::of(
            "[defaults]\nlanes = 4\nwindow = \"auto\"\nfsync = true\npreserve = [\"mode\", \
             \"times\"]\nexclude = [\"*.o\"]\n[profile.night]\nprofile = \"safe\"\n",
        );
        assert_eq!(config.defaults.lanes.unwrap().0.unwrap().0, 4);
        assert_eq!(config.defaults.window, Some(OrAuto(None)));
        assert_eq!(config.defaults.fsync, Some(Switch(true)));
        assert!(config.defaults.preserve.unwrap().mode);
        assert_eq!(config.defaults.exclude.len(), 1);
        assert_eq!(config.profile["night"].profile.as_deref(), Some("safe"));
    }

    #[test]
    fn entries_have_line_and_value_but_no_secrets() {
        let config = Config::of(
            "[defaults]\nretries = 3 # times\n\n[remote.a]\nurl = \"https://h/x?signature=1\"\n\
             user = 'ada'\npassword-command = \"echo geheim\"\n",
        );
        let entry = |section: Section, key: &str| {
            let entry = config.entry(&section, key).unwrap();
            (entry.line, entry.shown.clone())
        };
        let remote = || Section::Remote("a".to_owned());
        assert_eq!(entry(Section::Defaults, "retries"), (2, Some("3".to_owned())));
        assert_eq!(entry(remote(), "url"), (5, Some("https://h/x?…".to_owned())));
        assert_eq!(entry(remote(), "user"), (6, Some("ada".to_owned())));
        assert_eq!(entry(remote(), "password-command"), (7, None));
        assert_eq!(config.remote["a"].line, 4);
    }

    #[test]
    fn the_first_fault_is_printed_with_a_hint_how_to_list_all() {
        let (_, faults) = Config::parse(Path::new("c.toml"), "[defaults]\nfsnyc = true\nx = 1\n");
        assert_eq!(
            Faults(faults).to_string(),
            "c.toml:2: [defaults] fsnyc: unknown key\nhint: did you mean 'fsync'?; haul config check \
             lists all 2 errors"
        );
    }

    #[test]
    fn the_error_for_an_unknown_remote_suggests_known_ones() {
        let config = Config::of("[remote.nas]\nurl = \"/x\"\n[remote.cloud]\nurl = \"/y\"\n");
        let error = config.named("naas").unwrap_err();
        assert!(error.ends_with("no remote 'naas'\nhint: did you mean 'nas'?"), "{error}");
        let error = config.named("x").unwrap_err();
        assert!(error.ends_with("hint: there are cloud, nas"), "{error}");
    }
}
