//! What the user said about SSH, before any configuration file is read, and who is asked for the
//! rest. The command line fills [`SshOptions`] once; every host of the run shares it.

use std::path::PathBuf;

pub use haul_net::{Nobody, PasswordSource, Prompter, Secret, Waits};

pub use super::pin::Pins;

/// What the user said about SSH (command line, configuration), shared by all hosts.
#[derive(Clone, Debug, Default)]
pub struct SshOptions {
    /// Private key files to try first, in this order (`-i`).
    pub identities: Vec<PathBuf>,
    /// Hosts to go through, `[user@]host[:port],…`, or `none` (`-J`).
    pub jump: Option<String>,
    /// Which configuration files are read (`-F`).
    pub config: ConfigFile,
    /// `Name=value` as in ssh_config(5); these win over the files (`-o`).
    pub options: Vec<String>,
    /// Compress what is sent (`-C`).
    pub compress: bool,
    /// Take and remember the keys of hosts that are not known yet; changed keys are still refused.
    pub accept_new_host_keys: bool,
    /// Where a password comes from without asking. It is for the destination only and is never
    /// shown to a jump host.
    pub password: Option<PasswordSource>,
    /// A directory for what makes the next connection to a server faster, if it may be kept.
    pub memory: Option<PathBuf>,
    /// The host keys that were accepted in this run. Clones share them.
    pub pins: Pins,
    /// Where long waits for a host are reported.
    pub waits: Waits,
}

impl SshOptions {
    /// What a host on the way to the destination gets of it. ssh starts another ssh for that host and
    /// hands on which configuration file is read, and no option or key file of the command line: who
    /// takes any host key of a virtual machine (`-o StrictHostKeyChecking=no`) has not said so of the
    /// bastion before it.
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

/// Which configuration files are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConfigFile {
    /// `~/.ssh/config`, then `/etc/ssh/ssh_config`.
    #[default]
    Default,
    /// None at all.
    None,
    /// This one only; it has to exist.
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
    fn a_password_does_not_show_in_debug_output() {
        let options = SshOptions {
            password: Some(PasswordSource::Secret(Secret::new("hunter2"))),
            ..SshOptions::default()
        };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
