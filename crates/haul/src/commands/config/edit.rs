//! `haul config edit`: the user edits a copy, which replaces the file once it has no faults.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{self, Command};
use std::time::Duration;

use haul_storage::{Error, ErrorKind, without_secrets};
use tempfile::{NamedTempFile, TempPath};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

use super::file;
use super::prompter::Prompter;
use crate::config::{Config, content, replace, sync};
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// The content of a new file.
const TEMPLATE: &str = "\
# Configuration of haul; docs/configuration.md describes it.
#
# [defaults]                        # options of every transfer
# fsync = true
#
# [profile.night]                   # options of --profile night
# bwlimit = \"80mbit\"
#
# [remote.nas]                      # used as nas:PATH
# url = \"sftp://nas.example/volume1\"
# user = \"ada\"
";

/// Runs `haul config edit`.
pub(super) async fn run(named: Option<&Path>, printer: &Printer) -> Result<Exit, Stop> {
    let config_file = file::require_path(named)?;
    let before = content(&config_file.path)?;
    let shown = before.as_deref().unwrap_or(TEMPLATE.as_bytes());
    let copy = copy_of(shown).map_err(|error| Error::from_io("copy the configuration", error))?;
    let prompter = Prompter::find();
    // Ctrl-C is meant for the editor. With this handler it no longer ends haul.
    let mut interrupts = signal(SignalKind::interrupt())
        .map_err(|error| Error::from_io("edit the configuration", error))?;
    loop {
        let opened = open(&copy);
        // Discard a Ctrl-C that was pressed in the editor.
        let _ = timeout(Duration::from_millis(1), interrupts.recv()).await;
        if let Err(stop) = opened {
            // A copy that cannot be read may have been edited.
            let is_changed = content(&copy).map_or(true, |now| now.as_deref() != Some(shown));
            return Err(if is_changed { keep_and_stop(copy, printer, stop) } else { stop });
        }
        let edited = match content(&copy) {
            Ok(Some(edited)) => edited,
            Ok(None) => {
                let error = Error::new(ErrorKind::NotFound, "read the edited copy");
                return Err(error.at(copy.display()).into());
            }
            Err(error) => return Err(keep_and_stop(copy, printer, error.into())),
        };
        if edited == shown {
            printer.note(format!("{}: unchanged", config_file.path.display()));
            return Ok(Exit::Done);
        }
        let text = String::from_utf8_lossy(&edited);
        let (_, faults) = Config::parse(&config_file.path, &text);
        let is_text = edited == text.as_bytes();
        if faults.is_empty() && is_text {
            let written = replace(&config_file.path, before.as_deref(), &text);
            if let Err(error) = written {
                return Err(keep_and_stop(copy, printer, error.into()));
            }
            sync(&config_file.path)?;
            printer.note(format!("{}: written", config_file.path.display()));
            return Ok(Exit::Done);
        }
        faults.iter().for_each(|fault| file::print(fault, printer));
        if !is_text {
            let error = Error::new(ErrorKind::InvalidInput, "read").at(config_file.path.display());
            printer.failure(&error.because("it is not UTF-8"));
        }
        let again = match &prompter {
            Some(prompter) => edits_again(prompter, &mut interrupts).await,
            None => Ok(Some(false)),
        };
        match again {
            Ok(Some(true)) => {}
            Ok(None) => {
                keep(copy, printer);
                // Returning would wait for the thread that reads a line from the terminal.
                process::exit(i32::from(Exit::Interrupted.status()));
            }
            Ok(Some(false)) => {
                keep(copy, printer);
                return Ok(Exit::Failed);
            }
            Err(stop) => return Err(keep_and_stop(copy, printer, stop)),
        }
    }
}

/// Asks the user whether to edit the copy again; `None` after Ctrl-C.
async fn edits_again(prompter: &Prompter, interrupts: &mut Signal) -> Result<Option<bool>, Stop> {
    tokio::select! {
        choice = prompter.agrees("Edit it again", true) => choice.map(Some),
        _ = interrupts.recv() => Ok(None),
    }
}

fn copy_of(content: &[u8]) -> io::Result<TempPath> {
    // Readable by its owner only. The suffix tells editors the language.
    let mut file: NamedTempFile =
        tempfile::Builder::new().prefix("haul-config-").suffix(".toml").tempfile()?;
    file.write_all(content)?;
    Ok(file.into_temp_path())
}

/// Keeps the edited copy and prints its path, so that the user's changes are not lost. If the editor has removed it,
/// there is none.
fn keep(copy: TempPath, printer: &Printer) {
    if !copy.exists() {
        printer.error("the configuration is unchanged; the edited copy is gone");
        return;
    }
    match copy.keep() {
        Ok(path) => printer.error(format!(
            "the configuration is unchanged; the edited copy is kept as {}",
            path.display()
        )),
        Err(error) => {
            printer.failure(
                &Error::from_io("keep the edited copy", error.error).at(error.path.display()),
            );
        }
    }
}

fn keep_and_stop(copy: TempPath, printer: &Printer, stop: Stop) -> Stop {
    keep(copy, printer);
    stop
}

/// Opens a file in the user's editor and waits until the editor ends.
fn open(file: &Path) -> Result<(), Stop> {
    let named = |name| env::var_os(name).filter(|editor| !editor.is_empty());
    let editor = named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".into());
    let failed = |cause: String| {
        Error::new(ErrorKind::Other, "edit the configuration")
            .at(editor.display())
            .because(cause)
            .hinting("VISUAL or EDITOR names the editor")
    };
    // VISUAL and EDITOR may contain options, so the shell splits them, as in git.
    let mut line = editor.clone();
    line.push(" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args([&OsString::from("-c"), &line, &editor]).arg(file);
    let status = without_secrets(&mut shell).status();
    let status = status.map_err(|error| failed(error.to_string()))?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(format!("the editor ended with {status}")).into())
    }
}
