//! SSH options of the user, before any SSH configuration file is read. All hosts of a run have the same options, except
//! for the password; jump hosts have fewer.

use std::path::PathBuf;

pub use haul_net::{NoPrompter, PasswordSource, Prompter, Secret, Waits};

pub use super::pin::Pins;

/// SSH options of the user (command line, configuration of haul).
#[derive(Clone, Debug, Default)]
pub struct SshOptions {
    /// Private key files to try first, in this order (`-i`).
    pub identities: Vec<PathBuf>,
    /// Jump hosts, `[user@]host[:port],…`, or `none` (`-J`).
    pub jump: Option<String>,
    /// The configuration files to read (`-F`).
    pub config: ConfigFile,
    /// `Name=value` as in ssh_config(5); these override the files (`-o`).
    pub options: Vec<String>,
    /// Compress connections (`-C`).
    pub compress: bool,
    /// Accept and remember the keys of unknown hosts; changed keys are still refused.
    pub accept_new_host_keys: bool,
    /// The source of a password, instead of a prompt. The password is for the destination only and is never sent to a
    /// jump host.
    pub password: Option<PasswordSource>,
    /// A directory for a cache of server properties that make the next connection faster; `None` for no cache.
    pub memory: Option<PathBuf>,
    /// The host keys that were accepted in this run. Clones share them.
    pub pins: Pins,
    /// Where long waits for a host are reported.
    pub waits: Waits,
}

impl SshOptions {
    /// The options that apply to jump hosts. As in ssh, which starts another ssh for a jump host, the configuration
    /// files are the same, but `-o`, `-i`, `-C`, `-J` and the password do not apply: a user who accepts any host key of
    /// a virtual machine (`-o StrictHostKeyChecking=no`) does not mean the bastion in front of it. Acceptance of new
    /// host keys (`accept_new_host_keys`) applies to jump hosts too.
    #[must_use]
    pub fn for_jump_host(&self) -> Self {
        Self {
            config: self.config.clone(),
            accept_new_host_keys: self.accept_new_host_keys,
            memory: self.memory.clone(),
            pins: self.pins.clone(),
            waits: self.waits.clone(),
            ..Self::default()
        }
    }
}

/// The configuration files to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConfigFile {
    /// `~/.ssh/config`, then `/etc/ssh/ssh_config`.
    #[default]
    Default,
    /// No file.
    None,
    /// Only this file, which must exist.
    Path(PathBuf),
}

impl From<&str> for ConfigFile {
    /// The argument of `-F`: a path, or `none`.
    fn from(argument: &str) -> Self {
        if argument.eq_ignore_ascii_case("none") {
            Self::None
        } else {
            Self::Path(PathBuf::from(argument))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_does_not_contain_the_password() {
        let options = SshOptions {
            password: Some(PasswordSource::Secret(Secret::new("hunter2"))),
            ..SshOptions::default()
        };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
