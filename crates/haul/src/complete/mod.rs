//! Completion of command lines: options, remotes, hosts, and paths on servers.
//!
//! The script that `haul completions` prints calls haul itself for every Tab, with [`VARIABLE`] in its
//! environment. clap completes commands and options; [`locations`] completes locations.

mod bash;
mod cache;
mod hosts;
mod locations;

use std::ffi::OsString;
use std::io;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::{CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Shells, Zsh};

use self::bash::Bash;
use crate::args::Cli;

/// Set by the scripts; its value is the shell.
pub(crate) const VARIABLE: &str = "HAUL_COMPLETE";

/// Value names of the arguments that are locations.
const LOCATIONS: [&str; 4] = ["SOURCE", "DEST", "LOCATION", "FILE"];

const SHELLS: [&dyn EnvCompleter; 5] = [&Bash, &Elvish, &Fish, &Powershell, &Zsh];

/// Answers a shell, if it is one that asks. Whether it was.
///
/// # Errors
/// The shell is unknown, or has gone.
pub(crate) fn answer(arguments: &[OsString]) -> Result<bool, clap::Error> {
    let environment = CompleteEnv::with_factory(command).var(VARIABLE).shells(Shells(&SHELLS));
    environment.try_complete(arguments.iter().cloned(), None)
}

/// The script that makes a shell ask.
///
/// # Errors
/// None: it is made in memory.
pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let name = shell.to_string();
    let shell = SHELLS.iter().find(|known| known.is(&name));
    let shell = shell.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    shell.write_registration(VARIABLE, "haul", "haul", "haul", &mut script)?;
    Ok(script)
}

/// The command line, with what completes its locations.
fn command() -> Command {
    let command = Cli::command();
    let names: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| command.mut_subcommand(name, with_locations))
}

fn with_locations(command: Command) -> Command {
    let is_location = |argument: &clap::Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        argument.is_positional() && names.iter().any(|name| LOCATIONS.contains(&name.as_str()))
    };
    let ids: Vec<clap::Id> =
        command.get_arguments().filter(|a| is_location(a)).map(|a| a.get_id().clone()).collect();
    ids.iter().fold(command, |command, id| {
        command.mut_arg(id, |argument| argument.add(ArgValueCompleter::new(locations::complete)))
    })
}
