//! haul's own directories, by the XDG Base Directory Specification. They need not exist. The functions return
//! `None` if neither the variable nor `HOME` is an absolute path: the specification ignores relative ones.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// For the configuration: below `$XDG_CONFIG_HOME` or `~/.config`.
pub(crate) fn config() -> Option<PathBuf> {
    own(env::var_os("XDG_CONFIG_HOME"), ".config")
}

/// For state that outlives a run: below `$XDG_STATE_HOME` or `~/.local/state`.
pub(crate) fn state() -> Option<PathBuf> {
    own(env::var_os("XDG_STATE_HOME"), ".local/state")
}

/// For data that haul can recreate: below `$XDG_CACHE_HOME` or `~/.cache`.
pub(crate) fn cache() -> Option<PathBuf> {
    own(env::var_os("XDG_CACHE_HOME"), ".cache")
}

fn own(set: Option<OsString>, default: &str) -> Option<PathBuf> {
    below(set, env::var_os("HOME"), default)
}

fn below(set: Option<OsString>, home: Option<OsString>, default: &str) -> Option<PathBuf> {
    let absolute =
        |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(set).or_else(|| Some(absolute(home)?.join(default)))?;
    Some(base.join("haul"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, journals of uploads went below a relative `HOME`.
    #[test]
    fn only_absolute_paths_count() {
        let default = Some("/home/ada/.local/state/haul");
        for (set, home, expected) in [
            (Some("/state"), Some("/home/ada"), Some("/state/haul")),
            (Some("/state"), None, Some("/state/haul")),
            (None, Some("/home/ada"), default),
            (Some(""), Some("/home/ada"), default),
            (Some("state"), Some("/home/ada"), default),
            (None, Some("ada"), None),
            (Some("state"), Some(""), None),
            (None, None, None),
        ] {
            let found = below(set.map(OsString::from), home.map(OsString::from), ".local/state");
            assert_eq!(found, expected.map(PathBuf::from), "{set:?} {home:?}");
        }
    }
}
