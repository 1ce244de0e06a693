//! Commands that are not measured: they succeed, or say why not.

use std::io;
use std::process::{Command, Stdio};

/// Runs a command that has to succeed; returns what it printed. The error has its last words.
pub(crate) fn must_run(command: &mut Command) -> io::Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name}: {}", said.trim())))
}
