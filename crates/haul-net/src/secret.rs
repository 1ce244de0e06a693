//! Passwords and tokens: their sources, and the interface for prompts.

use std::fmt;
use std::process::Stdio;

use async_trait::async_trait;
use haul_storage::Result;
use tokio::process::Command;
use zeroize::Zeroizing;

/// Maximum number of password prompts for one host: the default of ssh (`NumberOfPasswordPrompts`).
pub const MAX_PROMPTS: u32 = 3;

/// Shown before another prompt if a typed password was refused; the same text as in ssh.
pub const TRY_AGAIN: &str = "Permission denied, please try again.";

/// A source of a password, or of the token of a web server, other than a prompt.
#[derive(Clone)]
pub enum PasswordSource {
    /// The password or token itself (from the environment).
    Secret(Secret),
    /// A command line for `sh -c`; the first line that it prints is the password.
    Command(String),
}

impl PasswordSource {
    /// Gets the password or token.
    ///
    /// # Errors
    /// If the command cannot be started, fails, or prints no password or one that is not UTF-8; the reason as text.
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

/// A password, passphrase or token. Its memory is wiped when it is dropped, and it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes over the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Prompts the user. Implemented by the program for a terminal, and by tests.
#[async_trait]
pub trait Prompter: Send + Sync + fmt::Debug {
    /// Prompts for a secret, which is not shown while it is typed. `None` if there is no user, or input has ended.
    ///
    /// # Errors
    /// If the terminal cannot be read.
    async fn secret(&self, prompt: &str) -> Result<Option<Secret>>;

    /// Prompts for a text that may be visible. `None` as in [`Prompter::secret`].
    ///
    /// # Errors
    /// If the terminal cannot be read.
    async fn visible(&self, prompt: &str) -> Result<Option<String>>;

    /// Shows a message of a server or of haul, such as a banner, or that a new host key was accepted.
    async fn notice(&self, text: &str);
}

/// A prompter without a user: every prompt returns `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrompter;

#[async_trait]
impl Prompter for NoPrompter {
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
    if text.is_empty() {
        return Err("password-command printed nothing".to_owned());
    }
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line =
        std::str::from_utf8(line).map_err(|_| "password-command printed text that is not UTF-8")?;
    if line.is_empty() {
        return Err("the first line that password-command printed is empty".to_owned());
    }
    Ok(Secret::new(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_contains_neither_secrets_nor_password_commands() {
        let secret = PasswordSource::Secret(Secret::new("hunter2"));
        let command = PasswordSource::Command("echo hunter2".to_owned());
        let shown = format!("{secret:?} {command:?} {:?}", Secret::new("hunter2"));
        assert!(!shown.contains("hunter2"));
    }
    /// Formerly, a command that printed an empty line first was reported to have printed nothing.
    #[tokio::test]
    async fn only_the_first_line_of_a_password_command_is_used() {
        let first = async |command: &str| PasswordSource::Command(command.to_owned()).fetch().await;
        assert_eq!(first("printf 'hunter2\\r\\nmore\\n'").await, Ok(Secret::new("hunter2")));
        assert_eq!(first("true").await.unwrap_err(), "password-command printed nothing");
        for command in ["echo", "printf '\\r\\n'", "printf '\\nhunter2\\n'"] {
            let error = first(command).await.unwrap_err();
            assert_eq!(error, "the first line that password-command printed is empty", "{command}");
        }
    }
}
