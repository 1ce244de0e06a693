//! Prints results and messages on the standard streams. Only the content of files that are copied to `-` or printed by
//! `haul cat`, the bars of [`super::progress`], and what clap prints (help, candidates for completion) bypass it.
//!
//! Cheap to clone; all clones write to the same streams, a line at a time. It is not an error if the
//! reader of standard output exits (`haul ls | head`): further output is dropped, and callers that
//! could stop early check [`Printer::is_closed`].
//!
//! Servers choose names and messages, so control characters are escaped here
//! ([`haul_storage::text`]), on both streams. That includes files, because a user may show them on a
//! terminal later. Two outputs are exact: names that `ls`, `du`, `check` and `config path` write to a file or pipe, for
//! programs, and JSON, in which the same characters are written as `\u` escapes.

use std::borrow::Cow;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use haul_net::Wait;
use haul_storage::{Error, io_cause, text};
use indicatif::ProgressBar;
use serde::Serialize;

use super::color::{self, Tint};
use super::{human, json};
use crate::args::OutputArgs;

/// Writes to the standard streams.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    shared: Arc<Shared>,
}

/// A piece of a line of a listing.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece<'a> {
    /// haul's own words.
    Text(&'a str),
    /// A name, in the bytes that the storage returned.
    Name(&'a [u8]),
}

#[derive(Debug)]
struct Shared {
    args: OutputArgs,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    has_color: bool,
    results: Mutex<Results>,
    /// Locked apart from the results: messages, such as that after Ctrl-C, must be printed even
    /// while a result waits for its reader.
    bar: Mutex<Option<ProgressBar>>,
    /// Whether standard output carries the content of files.
    results_aside: AtomicBool,
    /// Whether an object was printed.
    has_object: AtomicBool,
    log: OnceLock<Mutex<File>>,
}

#[derive(Debug)]
struct Results {
    stdout: BufWriter<Stdout>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    ReaderGone,
    Failed(io::Error),
}

impl Printer {
    /// A printer with the verbosity, the format and the colours of the arguments.
    pub(crate) fn new(args: OutputArgs) -> Self {
        let results = Results {
            stdout: BufWriter::with_capacity(64 << 10, io::stdout()),
            state: State::Open,
        };
        let shared = Shared {
            args,
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            has_color: color::is_wanted(args.color),
            results: Mutex::new(results),
            bar: Mutex::new(None),
            results_aside: AtomicBool::new(false),
            has_object: AtomicBool::new(false),
            log: OnceLock::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Appends messages, and the lines passed to [`Printer::log`], to a file from now on.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub(crate) fn log_to(&self, file: &Path) -> io::Result<()> {
        let file = File::options().append(true).create(true).open(file)?;
        self.shared.log.get_or_init(|| Mutex::new(file));
        Ok(())
    }

    /// Whether there is a log.
    pub(crate) fn has_log(&self) -> bool {
        self.shared.log.get().is_some()
    }

    /// Appends a line to the log, if there is one.
    pub(crate) fn log(&self, line: &str) {
        let Some(log) = self.shared.log.get() else { return };
        let mut line = format!("{} {}", human::now(), text::line(line));
        line.push('\n');
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        // Errors are ignored: a full disk must not stop a copy to another one.
        drop(log.write_all(line.as_bytes()));
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.shared.args.json
    }

    /// Whether only errors are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.shared.args.quiet
    }

    /// Whether details are printed.
    pub(crate) fn is_verbose(&self) -> bool {
        self.shared.args.verbose
    }

    /// Whether progress is wanted.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.shared.args.quiet && !self.shared.args.no_progress
    }

    /// Whether a bar can be drawn: on a terminal where no JSON is printed between its frames.
    pub(crate) fn can_draw(&self) -> bool {
        self.shared.stderr_is_terminal
            && !color::is_dumb()
            && !(self.is_json() && self.shared.stdout_is_terminal)
    }

    /// Whether the standard error gets colours.
    pub(crate) fn has_color(&self) -> bool {
        self.shared.has_color
    }

    /// Rings the bell of the terminal, if there is one.
    pub(crate) fn bell(&self) {
        if self.shared.stderr_is_terminal {
            // Errors are ignored: the terminal may be gone.
            apart_from(&self.bar(), || drop(io::stderr().lock().write_all(b"\x07")));
        }
    }

    /// Prints results to standard error from now on: standard output carries the content of files.
    pub(crate) fn results_aside(&self) {
        self.shared.results_aside.store(true, Ordering::Relaxed);
    }

    /// Sets the bar that is suspended while anything else is printed.
    pub(crate) fn set_bar(&self, bar: Option<ProgressBar>) {
        *self.bar() = bar;
    }

    /// Prints a line of a result.
    pub(crate) fn result(&self, line: impl AsRef<str>) {
        if self.shared.results_aside.load(Ordering::Relaxed) {
            return self.note(line.as_ref());
        }
        self.stdout(text::line(line.as_ref()).as_bytes(), true);
    }

    /// Prints a line of a listing, in which names are escaped for a terminal and exact for a program.
    pub(crate) fn listed(&self, line: &[Piece<'_>]) {
        let mut bytes = Vec::new();
        for piece in line {
            match piece {
                Piece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
                Piece::Name(name) if self.shared.stdout_is_terminal => {
                    bytes.extend_from_slice(text::name(name).to_string().as_bytes());
                }
                Piece::Name(name) => bytes.extend_from_slice(name),
            }
        }
        self.stdout(&bytes, true);
    }

    /// Prints bytes as they are.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        self.stdout(bytes, false);
    }

    /// Prints an object as a line of JSON.
    pub(crate) fn object(&self, object: &impl Serialize) {
        // Serializing fails only for maps with keys that are not strings, and for failing writers.
        if let Ok(line) = serde_json::to_string(object) {
            let is_first = !self.shared.has_object.swap(true, Ordering::Relaxed);
            let line = if is_first { json::with_schema(&line) } else { line };
            self.stdout(json::harmless(&line).as_bytes(), true);
        }
    }

    /// Reports a failed operation: as an `error` object, or as `haul: LOCATION: cannot …`.
    pub(crate) fn failure(&self, error: &Error) {
        self.failure_of(None, error);
    }

    /// The same for one of many hosts.
    pub(crate) fn failure_of(&self, host: Option<&str>, error: &Error) {
        if self.is_json() {
            self.log(&format!("haul: {}{error}", human::prefix(host)));
            if let Some(hint) = error.hint() {
                self.log(&format!("hint: {hint}"));
            }
            self.object(&json::OfHost::new(host, json::Event::from(error)));
        } else {
            self.error(format_args!("{}{error}", human::prefix(host)));
            if let Some(hint) = error.hint() {
                self.hint(hint);
            }
        }
    }

    /// Reports something worth knowing about a location.
    pub(crate) fn warning(&self, location: &str, message: &str) {
        self.warning_of(None, location, message);
    }

    /// The same for one of many hosts.
    pub(crate) fn warning_of(&self, host: Option<&str>, location: &str, message: &str) {
        if self.is_json() {
            self.log(&format!("haul: {}warning: {location}: {message}", human::prefix(host)));
            self.object(&json::OfHost::new(host, json::Event::Warning { location, message }));
            // The next output, which would flush it, may be far off.
            self.flush();
        } else {
            let prefix = human::prefix(host);
            self.note(format_args!("haul: {prefix}warning: {location}: {message}"));
        }
    }

    /// Reports a long wait for a host.
    pub(crate) fn waiting(&self, wait: &Wait) {
        if self.is_json() {
            self.log(&human::waiting(wait));
            if self.is_quiet() {
                return;
            }
            self.object(&json::Event::waiting(wait));
            // The next output, which would flush it, may be far off.
            self.flush();
        } else {
            self.note(human::waiting(wait));
        }
    }

    /// Prints an error, whatever the verbosity.
    pub(crate) fn error(&self, message: impl Display) {
        self.log(&format!("haul: {message}"));
        self.stderr(&text::line(&format!("haul: {message}")), true);
    }

    /// Prints a hint about the previous error.
    fn hint(&self, hint: &str) {
        self.log(&format!("hint: {hint}"));
        self.stderr(&text::line(&format!("hint: {hint}")), true);
    }

    /// Prints a fault of the arguments or the configuration; the message may have several lines.
    pub(crate) fn usage(&self, message: &str) {
        let text = text::lines(&format!("haul: {message}")).into_owned();
        text.split('\n').for_each(|line| self.log(line));
        // On a standard output that is for file contents, no object is expected.
        if self.is_json() && !self.shared.results_aside.load(Ordering::Relaxed) {
            self.object(&json::Event::usage(message));
            return;
        }
        text.split('\n').for_each(|line| self.stderr(line, true));
    }

    /// Prints a line on standard error, unless only errors are printed.
    pub(crate) fn note(&self, line: impl Display) {
        self.log(&line.to_string());
        if !self.is_quiet() {
            self.stderr(&text::line(&line.to_string()), false);
        }
    }

    /// Prints the summary of a command; `failed`: the line begins with the failures, which are coloured.
    pub(crate) fn ending(&self, line: impl Display, failed: bool) {
        let line = line.to_string();
        if !failed || !self.has_color() {
            return self.note(line);
        }
        self.log(&line);
        if !self.is_quiet() {
            let line = text::line(&line);
            let end = line.find(';').unwrap_or(line.len());
            let painted = Tint::Failure.paint(&line[..end]);
            self.stderr(&format!("{painted}{}", &line[end..]), true);
        }
    }

    /// Whether standard output can no longer be written to.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(self.lock().state, State::Open)
    }

    /// Flushes standard output.
    pub(crate) fn flush(&self) {
        let mut results = self.lock();
        let outcome = results.stdout.flush();
        results.note_outcome(outcome);
    }

    /// Flushes standard output. Returns false if results could not be written, and reports why.
    pub(crate) fn finish(&self) -> bool {
        self.flush();
        let message = match &self.lock().state {
            State::Failed(error) => format!("standard output: cannot write ({})", io_cause(error)),
            State::Open | State::ReaderGone => return true,
        };
        self.error(message);
        false
    }

    fn stdout(&self, bytes: &[u8], line: bool) {
        let mut results = self.lock();
        if !matches!(results.state, State::Open) {
            return;
        }
        let is_terminal = self.shared.stdout_is_terminal;
        let mut print = || {
            results.stdout.write_all(bytes)?;
            if line {
                results.stdout.write_all(b"\n")?;
            }
            if is_terminal { results.stdout.flush() } else { Ok(()) }
        };
        // On a terminal the bar is on the same screen.
        let outcome = if is_terminal { apart_from(&self.bar(), print) } else { print() };
        results.note_outcome(outcome);
    }

    fn stderr(&self, line: &str, is_failure: bool) {
        let line = match self.has_color() {
            true => Cow::Owned(color::line(line, is_failure)),
            false => Cow::Borrowed(line),
        };
        // If standard error cannot be written to, there is nowhere left to report it.
        apart_from(&self.bar(), || drop(writeln!(io::stderr().lock(), "{line}")));
    }

    fn bar(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        self.shared.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Results> {
        self.shared.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Results {
    fn note_outcome(&mut self, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.state = State::ReaderGone;
            }
            Err(error) => self.state = State::Failed(error),
        }
    }
}

fn apart_from<T>(bar: &Option<ProgressBar>, print: impl FnOnce() -> T) -> T {
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}
