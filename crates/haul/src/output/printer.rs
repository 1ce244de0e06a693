//! The one place that writes to the standard streams.
//!
//! Cheap to clone; all clones write to the same streams, a line at a time. A reader of the standard
//! output that goes away (`haul ls | head`) is no error: what would be printed is dropped, and
//! [`Printer::is_closed`] tells those who could stop early.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_storage::Error;
use indicatif::ProgressBar;
use serde::Serialize;

use super::{human, json};
use crate::args::OutputArgs;

/// Writes to the standard streams.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    args: OutputArgs,
    stdout_is_terminal: bool,
    stderr_is_terminal: bool,
    results: Mutex<Results>,
    /// Apart from the results: whoever is told to stop must hear so even while a result waits for
    /// its reader.
    bar: Mutex<Option<ProgressBar>>,
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
    /// A printer that is as talkative as the arguments say.
    pub(crate) fn new(args: OutputArgs) -> Self {
        let results = Results {
            stdout: BufWriter::with_capacity(64 << 10, io::stdout()),
            state: State::Open,
        };
        let shared = Shared {
            args,
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            results: Mutex::new(results),
            bar: Mutex::new(None),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Whether results are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.shared.args.json
    }

    /// Whether nothing but errors is wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.shared.args.quiet
    }

    /// Whether more than usual is wanted.
    pub(crate) fn is_verbose(&self) -> bool {
        self.shared.args.verbose
    }

    /// Whether names have to be escaped because a terminal would act on them.
    pub(crate) fn results_go_to_a_terminal(&self) -> bool {
        self.shared.stdout_is_terminal
    }

    /// Whether progress is wanted.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.shared.args.quiet && !self.shared.args.no_progress
    }

    /// Whether a bar can be drawn: on a terminal where no JSON is printed between its frames.
    pub(crate) fn can_draw(&self) -> bool {
        self.shared.stderr_is_terminal && !(self.is_json() && self.shared.stdout_is_terminal)
    }

    /// Keeps what is printed out of the way of this bar.
    pub(crate) fn set_bar(&self, bar: Option<ProgressBar>) {
        *self.bar() = bar;
    }

    /// Prints a line of a result.
    pub(crate) fn result(&self, line: impl AsRef<[u8]>) {
        self.stdout(line.as_ref(), true);
    }

    /// Prints bytes as they are.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        self.stdout(bytes, false);
    }

    /// Prints an object as a line of JSON.
    pub(crate) fn object(&self, object: &impl Serialize) {
        // Only maps with keys that are no strings and failing writers cannot be serialized.
        if let Ok(line) = serde_json::to_vec(object) {
            self.stdout(&line, true);
        }
    }

    /// Reports a failed operation: as an `error` object, or as `haul: LOCATION: cannot …`.
    pub(crate) fn failure(&self, error: &Error) {
        self.failure_of(None, error);
    }

    /// The same of one of many hosts.
    pub(crate) fn failure_of(&self, host: Option<&str>, error: &Error) {
        if self.is_json() {
            self.object(&json::OfHost::new(host, json::Event::from(error)));
        } else {
            self.error(format_args!("{}{error}", human::prefix(host)));
        }
    }

    /// Reports something worth knowing about a location.
    pub(crate) fn warning(&self, location: &str, message: &str) {
        self.warning_of(None, location, message);
    }

    /// The same of one of many hosts.
    pub(crate) fn warning_of(&self, host: Option<&str>, location: &str, message: &str) {
        if self.is_json() {
            self.object(&json::OfHost::new(host, json::Event::Warning { location, message }));
        } else {
            let prefix = human::prefix(host);
            self.note(format_args!("haul: {prefix}warning: {location}: {message}"));
        }
    }

    /// Prints an error, whatever the arguments say.
    pub(crate) fn error(&self, message: impl Display) {
        self.stderr(&format!("haul: {message}"));
    }

    /// Prints a line for people, unless nothing but errors is wanted.
    pub(crate) fn note(&self, line: impl Display) {
        if !self.is_quiet() {
            self.stderr(&line.to_string());
        }
    }

    /// Whether nobody reads the standard output any longer.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(self.lock().state, State::Open)
    }

    /// Hands on what is buffered.
    pub(crate) fn flush(&self) {
        let mut results = self.lock();
        let outcome = results.stdout.flush();
        results.note_outcome(outcome);
    }

    /// Hands on what is buffered and says whether all results arrived; if not, that is reported.
    pub(crate) fn finish(&self) -> bool {
        self.flush();
        let message = match &self.lock().state {
            State::Failed(error) => format!("standard output: cannot write: {error}"),
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
        // On a terminal both streams are the same screen.
        let outcome = if is_terminal { apart_from(&self.bar(), print) } else { print() };
        results.note_outcome(outcome);
    }

    fn stderr(&self, line: &str) {
        // There is nowhere left to report that the standard error cannot be written to.
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
