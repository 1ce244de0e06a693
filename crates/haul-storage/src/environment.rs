//! The environment of child processes.

use std::ffi::OsString;
use std::process::Command;

/// The environment variables that may contain secrets for haul.
pub fn secret_variables() -> Vec<OsString> {
    let names = std::env::vars_os().map(|(name, _)| name);
    let is_secret = |name: &OsString| {
        let name = name.as_encoded_bytes();
        let secrets = [&b"HAUL_PASSWORD"[..], b"HAUL_TOKEN", b"HAUL_TICKET", b"HAUL_BRIDGE_TOKEN"];
        secrets.iter().any(|secret| name.starts_with(secret))
    };
    names.filter(is_secret).collect()
}

/// Hides [`secret_variables`] from a program to be started. Every program is started without them, except haul itself
/// and commands that print a password.
pub fn without_secrets(command: &mut Command) -> &mut Command {
    secret_variables().into_iter().fold(command, Command::env_remove)
}
