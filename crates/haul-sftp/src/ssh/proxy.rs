//! Connections through a command (ProxyCommand). The command's standard input and output are the connection, and the
//! command is killed with it. Its standard error is stored for error messages.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result, without_secrets};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::STDERR_LIMIT;
use super::transport::link::{self, Link};

/// How long to wait for the end of a command's standard error.
const STDERR_WAIT: Duration = Duration::from_secs(1);

/// The standard error of a command.
#[derive(Debug)]
pub struct StderrCapture {
    captured: Captured,
    reading: JoinHandle<()>,
}

#[derive(Debug, Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl StderrCapture {
    /// The standard error of a command that has ended or is being killed, joined to one line; empty if there was none.
    pub async fn text(mut self) -> String {
        // A process that the command has started may keep the pipe open.
        if timeout(STDERR_WAIT, &mut self.reading).await.is_err() {
            self.reading.abort();
        }
        let bytes = self.captured.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).lines().map(str::trim).collect::<Vec<_>>().join("; ")
    }
}

impl Captured {
    fn add(&self, bytes: &[u8]) {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = STDERR_LIMIT.saturating_sub(stored.len());
        stored.extend(bytes.iter().take(room));
    }
}

/// Starts a command line in a shell. The command is killed when the link is dropped.
///
/// # Errors
/// `Unreachable` if the shell cannot be started.
pub fn start(command: &str) -> Result<(Link, StderrCapture)> {
    // With `exec` the command replaces the shell, so that it is the process that is killed.
    let mut shell = Command::new("sh");
    without_secrets(shell.as_std_mut());
    let mut child = shell
        .arg("-c")
        .arg(format!("exec {command}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            Error::new(ErrorKind::Unreachable, "start the ProxyCommand").with_source(error)
        })?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(input), Some(output), Some(mut errors)) = pipes else {
        return Err(Error::new(ErrorKind::Unreachable, "start the ProxyCommand"));
    };
    let captured = Captured::default();
    let capture = captured.clone();
    let reading = tokio::spawn(async move {
        let mut buffer = [0; 512];
        // Ends with the command, or if the pipe cannot be read.
        while let Ok(length @ 1..) = errors.read(&mut buffer).await {
            capture.add(&buffer[..length]);
        }
    });
    Ok((link::process(input, output, child), StderrCapture { captured, reading }))
}
