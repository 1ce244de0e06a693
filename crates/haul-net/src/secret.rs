//! Passwords: where they come from, and who is asked for them.

use std::ffi::OsString;
use std::fmt;
use std::process::Stdio;

use async_trait::async_trait;
use haul_storage::Result;
use tokio::process::Command;
use zeroize::Zeroizing;

/// How often a password may be typed for one host, as in ssh (NumberOfPasswordPrompts).
pub const MOST_TYPED: u32 = 3;

/// Shown when a password that was typed is refused and may be typed again, in the words of ssh.
pub const TRY_AGAIN: &str = "Permission denied, please try again.";

/// Where a password comes from without asking anybody.
#[derive(Clone)]
pub enum PasswordSource {
    /// The password itself (from the environment).
    Secret(Secret),
    /// A command line for `sh -c`; the first line that it prints is the password.
    Command(String),
}

impl PasswordSource {
    /// The password.
    ///
    /// # Errors
    /// Why the command printed none, in words.
    pub async fn fetch(&self) -> Result<Secret, String> {
        match self {
            Self::Secret(secret) => Ok(secret.clone()),
            Self::Command(command) => first_line(command).await,
        }
    }
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret(_) => "Secret(***)",
            Self::Command(_) => "Command(***)",
        })
    }
}

/// Variables of the environment in which haul looks for secrets. A child process is started without them,
/// unless it is the user's command that prints a password.
pub fn secret_variables() -> Vec<OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let is_secret = |name: &OsString| {
        let name = name.as_encoded_bytes();
        [&b"HAUL_PASSWORD"[..], b"HAUL_TOKEN"].iter().any(|secret| name.starts_with(secret))
    };
    names.filter(is_secret).collect()
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

/// The first line that a command prints.
async fn first_line(command: &str) -> Result<Secret, String> {
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| format!("password-command cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(format!("password-command failed ({})", output.status));
    }
    let text = Zeroizing::new(output.stdout);
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = std::str::from_utf8(line).map_err(|_| {
        "password-command printed text that is not \
                                                      UTF-8"
    })?;
    if line.is_empty() {
        return Err("password-command printed nothing".to_owned());
    }
    Ok(Secret::new(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_secret_nor_its_source_shows_in_debug_output() {
        let secret = PasswordSource::Secret(Secret::new("hunter2"));
        let command = PasswordSource::Command("echo hunter2".to_owned());
        let shown = format!("{secret:?} {command:?} {:?}", Secret::new("hunter2"));
        assert!(!shown.contains("hunter2"));
    }
}
