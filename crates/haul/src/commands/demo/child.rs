//! This program as a child process, observed through its `--json` output.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, without_secrets};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::interrupt::interrupted;
use crate::exit::Stop;
use crate::output::Printer;
use crate::signals::Signals;

/// The longest delay until a signal is noticed.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a child may take to end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Interval between checks whether a child has ended.
const TICK: Duration = Duration::from_millis(10);

/// The end of the error message for a link that the destination cannot store.
const NO_LINKS: &str = "the destination has no symbolic links";

/// When a child ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// By itself.
    End,
    /// By kill -9, once it has moved this many bytes, unless it ends before.
    Bytes(u64),
}

/// The result of a child, from its events.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Files that it finished.
    pub(super) files: u64,
    /// Bytes of those files, or more if its progress reports more.
    pub(super) bytes: u64,
    /// Whether it ended by itself.
    pub(super) completed: bool,
    finished: u64,
    summary: Value,
    errors: Vec<String>,
    /// Whether nothing failed but links.
    only_links: bool,
    status: ExitStatus,
}

/// A running child.
pub(super) struct Child {
    process: std::process::Child,
    lines: Receiver<String>,
}

impl Child {
    /// Starts it. On a terminal it shows its own progress.
    pub(super) fn start(
        words: &[&str],
        paths: &[&OsStr],
        home: &Path,
        printer: &Printer,
    ) -> Result<Self, Stop> {
        Self::spawn(command(words, paths, home, printer)?)
    }

    /// Starts a [`command`].
    pub(super) fn spawn(mut command: Command) -> Result<Self, Stop> {
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(not_started)?;
        let (sender, lines) = sync_channel(1024);
        if let Some(stdout) = process.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { process, lines })
    }

    /// Reads its output until it ends or, by `until`, is killed.
    pub(super) fn run(mut self, until: Until, signals: &Signals) -> Result<Outcome, Stop> {
        let mut outcome = Outcome::default();
        loop {
            if signals.cancel().is_cancelled() {
                return Err(interrupted());
            }
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => outcome.on_line(&line),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if let Until::Bytes(limit) = until
                && outcome.bytes >= limit
                && outcome.summary.is_null()
            {
                self.kill();
                return Ok(outcome);
            }
        }
        let failed = |error| Error::from_io("wait", error).at("haul");
        outcome.status = self.process.wait().map_err(failed)?;
        outcome.completed = true;
        Ok(outcome)
    }

    /// Reads its output until an event of this type arrives. If the child ends first, returns the cause.
    pub(super) fn reach(
        &mut self,
        event: &str,
        signals: &Signals,
    ) -> Result<Result<(), String>, Stop> {
        let mut outcome = Outcome::default();
        loop {
            if signals.cancel().is_cancelled() {
                return Err(interrupted());
            }
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    outcome.on_line(&line);
                    let object: Value = serde_json::from_str(&line).unwrap_or_default();
                    if object["event"] == event {
                        return Ok(Ok(()));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let cause = outcome.errors.pop();
                    return Ok(Err(cause.unwrap_or_else(|| "it has ended".to_owned())));
                }
            }
        }
    }

    /// Ends it by SIGTERM, and waits at most [`GRACE`]. If a signal may have reached it already (`is_signalled`), it
    /// first gets the same time to end by itself: a second signal would end it at once.
    pub(super) fn terminate(&mut self, is_signalled: bool) {
        if is_signalled && self.ends_within(GRACE) {
            return;
        }
        if let Ok(None) = self.process.try_wait() {
            // It may end at this moment.
            _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        }
        self.ends_within(GRACE);
    }

    fn ends_within(&mut self, time: Duration) -> bool {
        let started = Instant::now();
        loop {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return true;
            }
            if started.elapsed() > time {
                return false;
            }
            thread::sleep(TICK);
        }
    }

    fn kill(&mut self) {
        // Errors are ignored: it may have ended in the meantime, and either way it is gone after this.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The command that starts this program, with a home directory of its own.
pub(super) fn command(
    words: &[&str],
    paths: &[&OsStr],
    home: &Path,
    printer: &Printer,
) -> Result<Command, Stop> {
    let program = std::env::current_exe().map_err(not_started)?;
    let mut command = Command::new(program);
    command.args(words);
    if !printer.shows_progress() || printer.is_json() {
        command.arg("--no-progress");
    }
    // The demo neither depends on the user's configuration and keys, nor leaves anything in the
    // home directory.
    command.arg("--").args(paths).env("HAUL_CONFIG", "").env("HOME", home);
    for name in ["XDG_STATE_HOME", "SSH_AUTH_SOCK", "NETRC"] {
        command.env_remove(name);
    }
    without_secrets(&mut command);
    // The servers are on this machine, where a proxy cannot reach them.
    command.env("NO_PROXY", "*").env("no_proxy", "*");
    command.env("HAUL_LAN", "no").env("HAUL_PORT_MAPPING", "no");
    Ok(command)
}

fn not_started(error: io::Error) -> Error {
    Error::from_io("start", error).at("haul")
}

/// No child outlives the demo.
impl Drop for Child {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            self.kill();
        }
    }
}

impl Outcome {
    /// Drops errors about links that the destination cannot store; returns how many there were.
    pub(super) fn without_links(&mut self) -> usize {
        let all = self.errors.len();
        self.errors.retain(|error| !error.ends_with(NO_LINKS));
        let links = all - self.errors.len();
        self.only_links = links > 0 && self.errors.is_empty() && self.status.code() == Some(1);
        links
    }

    /// Its summary, if it succeeded, or if nothing failed but links ([`Self::without_links`]).
    pub(super) fn succeeded(&self, step: &'static str, path: &Path) -> Result<&Value, Stop> {
        if (self.status.success() || self.only_links) && self.errors.is_empty() {
            return Ok(&self.summary);
        }
        let cause = match self.errors.first() {
            Some(first) if self.errors.len() == 1 => first.clone(),
            Some(first) => format!("{first} (and {} more)", self.errors.len() - 1),
            None => self.status.to_string(),
        };
        Err(Error::new(ErrorKind::Other, step).at(path.display()).because(cause).into())
    }

    fn on_line(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Value>(line) else { return };
        let count = |name: &str| event[name].as_u64().unwrap_or_default();
        match event["event"].as_str() {
            Some("progress") => self.bytes = self.bytes.max(count("bytes")),
            Some("file") => {
                self.files += 1;
                self.finished += count("bytes");
                // Progress events are rarer, but also count partial files.
                self.bytes = self.bytes.max(self.finished);
            }
            Some("error") => {
                let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
                self.errors.push(format!("{}: {}", text("location"), text("message")));
            }
            Some("summary") => {
                self.files = count("files");
                self.bytes = count("bytes");
                self.summary = event;
            }
            _ => {}
        }
    }
}
