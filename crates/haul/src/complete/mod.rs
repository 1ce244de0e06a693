//! Completion of command lines: options, remotes, hosts, and paths on servers.
//!
//! The script that `haul completions` prints calls haul itself for every Tab, with [`VARIABLE`] in its
//! environment. clap completes commands and options; [`locations`] completes locations.

mod bash;
mod cache;
mod hosts;
mod locations;

use std::env;
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

/// Value name of arguments that are names of remotes.
const REMOTE: &str = "REMOTE";

const SHELLS: [&dyn EnvCompleter; 5] = [&Bash, &Elvish, &Fish, &Powershell, &Zsh];

/// zsh loads `_haul` from its `fpath` at the first Tab, runs it, and expects it to complete already.
const AUTOLOADED: &str = "
if [[ $funcstack[1] == _haul ]]; then
    _clap_dynamic_completer_haul \"$@\"
fi
";

/// Prints candidates if a shell has called haul for completion; returns whether it has.
///
/// # Errors
/// The shell is unknown, or has exited.
pub(crate) fn run(arguments: &[OsString]) -> Result<bool, clap::Error> {
    // PowerShell parses candidates as part of its language, and servers choose names: it gets no locations.
    let shell = env::var_os(VARIABLE).unwrap_or_default().to_string_lossy().into_owned();
    let is_powershell = shell.contains("powershell") || shell.contains("pwsh");
    let factory: fn() -> Command = if is_powershell { Cli::command } else { command };
    let environment = CompleteEnv::with_factory(factory).var(VARIABLE).shells(Shells(&SHELLS));
    environment.try_complete(arguments.iter().cloned(), None)
}

/// The script that makes a shell call haul for completion.
///
/// # Errors
/// The shell is not supported.
pub(crate) fn script(shell: Shell) -> io::Result<Vec<u8>> {
    let mut script = Vec::new();
    let name = shell.to_string();
    let shell = SHELLS.iter().find(|known| known.is(&name));
    let shell = shell.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
    shell.write_registration(VARIABLE, "haul", "haul", "haul", &mut script)?;
    if name == "zsh" {
        script.extend_from_slice(AUTOLOADED.as_bytes());
    }
    Ok(script)
}

/// The command line, with completers for locations and remotes.
fn command() -> Command {
    with_completers(Cli::command())
}

fn with_completers(command: Command) -> Command {
    let below: Vec<String> =
        command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command =
        below.iter().fold(command, |command, name| command.mut_subcommand(name, with_completers));
    let positional = command.get_arguments().filter(|argument| argument.is_positional());
    let completed: Vec<(clap::Id, ArgValueCompleter)> = positional
        .filter_map(|argument| {
            let names = argument.get_value_names().unwrap_or_default();
            let completer = names.iter().find_map(|name| match name.as_str() {
                REMOTE => Some(ArgValueCompleter::new(locations::remotes)),
                name if LOCATIONS.contains(&name) => {
                    Some(ArgValueCompleter::new(locations::complete))
                }
                _ => None,
            });
            Some((argument.get_id().clone(), completer?))
        })
        .collect();
    completed.into_iter().fold(command, |command, (id, completer)| {
        command.mut_arg(id, |argument| argument.add(completer))
    })
}
