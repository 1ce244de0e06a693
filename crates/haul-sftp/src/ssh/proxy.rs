//! A host behind a command (ProxyCommand): the command's input and output are the connection, and
//! it is ended with it. What it says on its standard error is kept for the error message.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result};
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::STDERR_KEPT;
use super::transport::link::{self, Link};

/// How long to wait for the last words of a command that has closed its output.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a command says on its standard error.
#[derive(Debug)]
pub struct LastWords {
    heard: Heard,
    hearing: JoinHandle<()>,
}

#[derive(Debug, Clone, Default)]
struct Heard(Arc<Mutex<Vec<u8>>>);

impl LastWords {
    /// What a command that has ended, or is being ended, had to say: in one line, and empty if that
    /// was nothing.
    pub async fn text(mut self) -> String {
        // Somebody whom the command started may keep the pipe open.
        if timeout(LAST_WORDS, &mut self.hearing).await.is_err() {
            self.hearing.abort();
        }
        let bytes = self.heard.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).lines().map(str::trim).collect::<Vec<_>>().join("; ")
    }
}

impl Heard {
    fn add(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = STDERR_KEPT.saturating_sub(kept.len());
        kept.extend(bytes.iter().take(room));
    }
}

/// Starts a command line in the shell. The command is killed when nobody uses the link any more.
///
/// # Errors
/// `Unreachable` if there is no shell to start.
pub fn start(command: &str) -> Result<(Link, LastWords)> {
    // exec, so that what is killed is the command and not only the shell around it.
    let mut shell = Command::new("sh");
    for name in haul_net::secret_variables() {
        shell.env_remove(name);
    }
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
    let heard = Heard::default();
    let ear = heard.clone();
    let hearing = tokio::spawn(async move {
        let mut buffer = [0; 512];
        // It ends with the command; a pipe that cannot be read has nothing more to say.
        while let Ok(length @ 1..) = errors.read(&mut buffer).await {
            ear.add(&buffer[..length]);
        }
    });
    Ok((link::process(input, output, child), LastWords { heard, hearing }))
}
