//! haul: moves large data between any two places as fast as the path between them allows.
//!
//! ```text
//! args (raw) → config, settings, backends (resolved) → plan → engine → report → exit status
//! ```

mod args;
mod backends;
mod beside;
mod commands;
mod complete;
mod config;
mod done;
mod exit;
mod filter;
mod glob;
mod hosts;
mod input_list;
mod manifest;
mod moment;
mod options;
mod output;
mod plan;
mod profiles;
mod report;
mod settings;
mod signals;
mod terminal;
mod units;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use haul_storage::{Error, io_cause, text};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::{Cli, OutputArgs};
use crate::exit::{Exit, Stop};
use crate::output::Printer;

fn main() -> ExitCode {
    let given: Vec<OsString> = env::args_os().collect();
    match complete::answer(&given) {
        Ok(false) => {}
        Ok(true) => return Exit::Done.into(),
        Err(error) => {
            // The shell may have gone.
            drop(error.print());
            return Exit::Usage.into();
        }
    }
    let arguments = args::accepted::without_partial_progress(given);
    // As far as that is known before they are understood.
    let is_json = arguments.iter().take_while(|argument| *argument != "--").any(|a| a == "--json");
    let early = || Printer::new(OutputArgs { json: is_json, ..OutputArgs::default() });
    if let Some(message) = args::accepted::stray_value(&arguments) {
        return ended(&early(), Err(Stop::Usage(message)));
    }
    let cli = match parsed(&arguments) {
        Ok(cli) => cli,
        Err(error) if is_missing_command(&error) && !is_json => {
            // The help goes to standard error: it is not what was asked for.
            drop(error.print());
            return Exit::Usage.into();
        }
        Err(error) if error.use_stderr() => {
            return ended(&early(), Err(Stop::Usage(misused(&error))));
        }
        Err(help) => {
            // A reader who has seen enough of the help is no error.
            drop(help.print());
            return Exit::Done.into();
        }
    };
    let printer = Printer::new(cli.output);
    if let Some(file) = &cli.log_file
        && let Err(error) = printer.log_to(file)
    {
        let cause = io_cause(&error);
        let message = format!("{}: cannot write the log ({cause})", file.display());
        return ended(&printer, Err(Stop::Usage(message)));
    }
    let outcome = run(cli, &printer);
    ended(&printer, outcome)
}

/// The command line. Options may stand between SOURCE and DEST.
fn parsed(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let error = match Cli::try_parse_from(arguments) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    let is_location = error.kind() == ErrorKind::UnknownArgument
        && matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
    match args::order::options_first(arguments) {
        // What is wrong with a line in the right order is what the user has to know.
        Some(ordered) if is_location => Cli::try_parse_from(ordered),
        _ => Err(error),
    }
}

/// Reports how it ended.
fn ended(printer: &Printer, outcome: Result<Exit, Stop>) -> ExitCode {
    let exit = outcome.unwrap_or_else(|stop| match stop {
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

/// Whether a command of commands stands alone, such as `haul serve`.
fn is_missing_command(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What is wrong with the arguments, which may be names that a shell has found.
fn misused(error: &clap::Error) -> String {
    if let Some(message) = foreign(error) {
        return message;
    }
    if is_missing_command(error) {
        return "a command is missing; --help lists them".to_owned();
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.trim_end().trim_end_matches("For more information, try '--help'.");
    text.replace("\n\n  tip: ", "\nhint: ").trim_end().to_owned()
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
    Some(format!("unknown option '{option}'\nhint: {hint}"))
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
