//! Prompts on the terminal: passwords without echo, host keys.
//!
//! Prompts use `/dev/tty`, since standard input and output may be pipes. One prompt is open at a time, even if many
//! hosts connect at once. Prompts and banners contain text from servers, so control characters are escaped here.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};

use async_trait::async_trait;
use haul_sftp::ssh::{Prompter, Secret};
use haul_storage::{Error, Result, text};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// Held while a prompt is open or a notice is printed.
static OPEN_PROMPT: Mutex<()> = Mutex::const_new(());

/// Whether a prompt is open or a notice is printed.
pub(crate) fn is_prompting() -> bool {
    OPEN_PROMPT.try_lock().is_err()
}

/// The controlling terminal of the process, if it has one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terminal {
    /// Suppress notices, which need no response.
    pub(crate) quiet: bool,
}

#[async_trait]
impl Prompter for Terminal {
    async fn secret(&self, prompt: &str) -> Result<Option<Secret>> {
        let prompt = text::lines(prompt).into_owned();
        let read = move || match rpassword::prompt_password(prompt) {
            Ok(text) => Ok(Some(Secret::new(text))),
            Err(error) => none_without_terminal(error),
        };
        blocking(read).await
    }

    async fn visible(&self, prompt: &str) -> Result<Option<String>> {
        let prompt = text::lines(prompt).into_owned();
        blocking(move || visible(&prompt).or_else(none_without_terminal)).await
    }

    async fn notice(&self, text: &str) {
        if self.quiet {
            return;
        }
        let text = text::lines(text.trim_end()).into_owned();
        // Without a terminal no user could read it, which is not an error.
        drop(
            blocking(move || -> io::Result<()> {
                writeln!(OpenOptions::new().write(true).open("/dev/tty")?, "{text}")
            })
            .await,
        );
    }
}

fn visible(prompt: &str) -> io::Result<Option<String>> {
    let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/tty")?;
    write!(terminal, "{prompt}")?;
    terminal.flush()?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line)?;
    let typed = line.trim_end_matches(['\r', '\n']);
    Ok((!line.is_empty()).then(|| typed.to_owned()))
}

/// Turns the error of a missing terminal, or of one that was closed, into `None`: there is no user to prompt.
fn none_without_terminal<T>(error: io::Error) -> io::Result<Option<T>> {
    let absent = matches!(error.raw_os_error(), Some(code) if {
        let errno = rustix::io::Errno::from_raw_os_error(code);
        matches!(errno, rustix::io::Errno::NXIO | rustix::io::Errno::NOENT | rustix::io::Errno::NODEV)
    });
    if absent || error.kind() == io::ErrorKind::UnexpectedEof { Ok(None) } else { Err(error) }
}

/// Runs a prompt on a blocking thread, after all prompts before it.
async fn blocking<T: Send + 'static>(
    prompt: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let turn = OPEN_PROMPT.lock().await;
    let result = spawn_blocking(prompt).await;
    drop(turn);
    let error = |error: io::Error| Error::from_io("ask", error).at("the terminal");
    match result {
        Ok(outcome) => outcome.map_err(error),
        Err(panic) => Err(error(io::Error::other(panic))),
    }
}
