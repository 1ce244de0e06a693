//! haul: moves large data between any two locations as fast as the path between them allows.
//!
//! ```text
//! args (raw) → config, settings, backends (resolved) → plan → engine → report → exit status
//! ```

mod args;
mod asked;
mod backends;
mod beside;
mod commands;
mod complete;
mod config;
mod directories;
mod done;
mod exit;
mod filter;
mod glob;
mod hosts;
mod input_list;
mod lan;
mod manifest;
mod moment;
mod network_switch;
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
    match complete::run(&given) {
        Ok(false) => {}
        Ok(true) => return Exit::Done.into(),
        Err(error) => {
            // The shell may have exited.
            drop(error.print());
            return Exit::Usage.into();
        }
    }
    let given = match args::mount_helper::helper(&given) {
        None => given,
        Some(Ok(helper)) if helper.line.is_empty() => return Exit::Done.into(),
        Some(Ok(helper)) => {
            let entered = helper.namespace.as_deref().map_or(Ok(()), commands::enter_namespace);
            if let Err(stop) = entered {
                return ended(&Printer::new(OutputArgs::default()), Err(stop));
            }
            helper.line
        }
        Some(Err(message)) => {
            return ended(&Printer::new(OutputArgs::default()), Err(Stop::Usage(message)));
        }
    };
    let arguments = args::accepted::without_partial_progress(given, args::order::command_at);
    // A guess, for errors before the arguments are parsed.
    let is_json = arguments.iter().take_while(|argument| *argument != "--").any(|a| a == "--json");
    let early = || Printer::new(OutputArgs { json: is_json, ..OutputArgs::default() });
    if let Some(message) = args::accepted::stray_value(&arguments) {
        return ended(&early(), Err(Stop::Usage(message)));
    }
    let cli = match parsed(&arguments) {
        Ok(cli) => cli,
        Err(error) if is_missing_command(&error) && !is_json => {
            // The help goes to standard error: the user did not request it.
            drop(error.print());
            return Exit::Usage.into();
        }
        Err(error) if error.use_stderr() => {
            return ended(&early(), Err(Stop::Usage(misused(&error))));
        }
        Err(help) => {
            // It is not an error if a pager closes the pipe before the end of the help.
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
    let outcome = match commands::background(&cli, &arguments, &printer) {
        Some(outcome) => outcome,
        None => run(cli, &printer),
    };
    ended(&printer, outcome)
}

/// Parses the command line. Options may stand between SOURCE and DEST.
fn parsed(arguments: &[OsString]) -> Result<Cli, clap::Error> {
    let error = match Cli::try_parse_from(arguments) {
        Ok(cli) => return Ok(cli),
        Err(error) => error,
    };
    let is_location = error.kind() == ErrorKind::UnknownArgument
        && matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(word)) if !word.starts_with('-'));
    match args::order::options_first(arguments) {
        // If the reordered line is wrong too, its error is the relevant one.
        Some(ordered) if is_location => Cli::try_parse_from(ordered),
        _ => Err(error),
    }
}

/// Prints the error, if any, and returns the exit status.
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

/// Whether a subcommand is missing, and no option of the same command is given, as in `haul serve`. With an option, the
/// kind is `MissingSubcommand`.
fn is_missing_command(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// The message for invalid arguments. They may be file names that a shell has expanded, so [`Printer::usage`]
/// escapes it.
fn misused(error: &clap::Error) -> String {
    if let Some(message) = foreign(error) {
        return message;
    }
    if is_missing_command(error) || error.kind() == ErrorKind::MissingSubcommand {
        return "a command is missing; --help lists them".to_owned();
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let text = text.trim_end().trim_end_matches("For more information, try '--help'.");
    text.replace("\n\n  tip: ", "\nhint: ").trim_end().to_owned()
}

/// The message for an option of another tool, with the option to use instead.
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
    // One thread suffices: lanes, disk calls and digests have threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::from_io("start", error))?;
    runtime.block_on(commands::run(cli, printer))
}

/// Raises the limit of open files as far as the system allows: every source is an open directory,
/// and the usual limit of 1 024 dates from `select`, which supports no more.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // If it cannot be raised, the operation that needs more files fails with an error of its own.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
