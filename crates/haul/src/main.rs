//! haul: moves large data between any two places as fast as the path between them allows.
//!
//! ```text
//! args (raw) → config, settings, places (resolved) → plan → engine → report → exit status
//! ```

mod args;
mod commands;
mod config;
mod exit;
mod filter;
mod glob;
mod hosts;
mod manifest;
mod moment;
mod options;
mod output;
mod places;
mod plan;
mod report;
mod settings;
mod signals;
mod terminal;
mod units;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use haul_storage::{Error, io_cause, text};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::{Cli, OutputArgs};
use crate::exit::{Exit, Stop};
use crate::output::Printer;

fn main() -> ExitCode {
    let arguments = args::habits::without_partial_progress(env::args_os().collect());
    if let Some(message) = args::habits::stray_value(&arguments) {
        Printer::new(OutputArgs::default()).usage(&message);
        return Exit::Usage.into();
    }
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            match foreign(&error) {
                Some(text) => {
                    // Nothing is left to report it to.
                    drop(write!(io::stderr(), "{text}"));
                }
                None => print(&error),
            }
            return if error.use_stderr() { Exit::Usage } else { Exit::Done }.into();
        }
    };
    let printer = Printer::new(cli.output);
    if let Some(file) = &cli.log_file
        && let Err(error) = printer.log_to(file)
    {
        let cause = io_cause(&error);
        printer.usage(&format!("{}: cannot write the log ({cause})", file.display()));
        return Exit::Usage.into();
    }
    let exit = run(cli, &printer).unwrap_or_else(|stop| match stop {
        Stop::Usage(message) => {
            printer.usage(&message);
            Exit::Usage
        }
        Stop::Failed(error) => {
            printer.failure(&error);
            Exit::Failed
        }
    });
    match (printer.finish(), exit) {
        (false, Exit::Done) => Exit::Failed.into(),
        (_, exit) => exit.into(),
    }
}

/// What to write instead of an option of another tool.
fn foreign(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let option = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(option) => text::line(option).into_owned(),
        _ => return None,
    };
    let hint = args::foreign::hint(&option)?;
    Some(format!("haul: unknown option '{option}'\nhint: {hint}\n"))
}

/// Prints help, or what is wrong with the arguments, which may be names that a shell has found.
fn print(error: &clap::Error) {
    if !error.use_stderr() {
        // A reader who has seen enough of the help is no error.
        drop(error.print());
        return;
    }
    let text = error.to_string();
    let text =
        text.strip_prefix("error: ").map_or_else(|| text.clone(), |text| format!("haul: {text}"));
    let text = text.replace("\n  tip: ", "\nhint: ");
    // Nothing is left to report it to.
    drop(write!(io::stderr(), "{}", text::lines(&text)));
}

fn run(cli: Cli, printer: &Printer) -> Result<Exit, Stop> {
    raise_open_files();
    // The work is done by the engine's and the backends' own threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::from_io("start", error))?;
    runtime.block_on(commands::run(cli, printer))
}

/// Raises the limit of open files as far as the system allows it: every source is an open
/// directory, and the usual 1 024 are from a time when `select` could not count any further.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, what needs more of them says so.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
