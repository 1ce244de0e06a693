//! Runs auxiliary commands, which are not measured and must succeed.

use std::io;
use std::process::{Command, Stdio};

/// Runs a command without standard input and returns its standard output.
///
/// # Errors
/// If the command cannot be started or fails; the message has its standard error.
pub(crate) fn must_run(command: &mut Command) -> io::Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::other(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name}: {}", errors.trim())))
}
