//! What the user said about SSH, before any configuration file is read, and who is asked for the
//! rest. The command line fills [`SshOptions`] once; every host of the run shares it.

use std::fmt;
use std::path::PathBuf;

use async_trait::async_trait;
use haul_storage::Result;
use zeroize::Zeroizing;

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

/// Where a password comes from without asking anybody.
#[derive(Clone)]
pub enum PasswordSource {
    /// The password itself (from the environment).
    Secret(Secret),
    /// A command line for `sh -c`; the first line that it prints is the password.
    Command(String),
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret(***)",
            Self::Command(_) => "Command(***)",
        })
    }
}

/// A password or passphrase. Its memory is wiped when it is dropped, and it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes over the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for whoever has to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Asks the person at the terminal. The program implements it; tests do too.
#[async_trait]
pub trait Prompter: Send + Sync + fmt::Debug {
    /// Asks for something that is not shown while it is typed. `None`: nobody is there, or they
    /// have given up.
    ///
    /// # Errors
    /// Those of reading from the terminal.
    async fn secret(&self, prompt: &str) -> Result<Option<Secret>>;

    /// Asks for something that may be seen. `None` as in [`Prompter::secret`].
    ///
    /// # Errors
    /// Those of reading from the terminal.
    async fn visible(&self, prompt: &str) -> Result<Option<String>>;

    /// Shows what a server or haul has to say: banners, a new host key that was taken.
    async fn notice(&self, text: &str);
}

/// Nobody to ask: every question gets no answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

#[async_trait]
impl Prompter for Nobody {
    async fn secret(&self, _prompt: &str) -> Result<Option<Secret>> {
        Ok(None)
    }

    async fn visible(&self, _prompt: &str) -> Result<Option<String>> {
        Ok(None)
    }

    async fn notice(&self, _text: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_secret_nor_its_source_shows_in_debug_output() {
        let options = SshOptions {
            password: Some(PasswordSource::Secret(Secret::new("hunter2"))),
            ..SshOptions::default()
        };
        assert!(!format!("{options:?}").contains("hunter2"));
        let command = PasswordSource::Command("echo hunter2".to_owned());
        assert!(!format!("{command:?} {:?}", Secret::new("hunter2")).contains("hunter2"));
    }
}
