//! `haul config`: lists, shows, checks and changes the configuration.

mod add;
mod check;
mod connect;
mod edit;
mod list;
mod remove;
mod show;
mod usual;

use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use haul_net::Prompter as _;
use haul_storage::{Error, ErrorKind};

use crate::args::{ConfigAction, ConfigArgs};
use crate::config::{Config, Fault, Faults, Place, content, place};
use crate::exit::{Exit, Stop};
use crate::output::{Piece, Printer, json};
use crate::terminal::Terminal;

/// Runs it; `named` is the file of `--config`.
pub(crate) async fn run(
    args: &ConfigArgs,
    named: Option<&Path>,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let config = || Config::load(named).map_err(|faults| Stop::Usage(faults.to_string()));
    match &args.action {
        ConfigAction::List => Ok(list::run(&config()?, printer)),
        ConfigAction::Show(args) => show::run(args, &config()?, named, printer),
        ConfigAction::Path => path(named, printer),
        ConfigAction::Edit => edit::run(named, printer).await,
        ConfigAction::Check(args) => check::run(args, named, printer).await,
        ConfigAction::Add(args) => Box::pin(add::run(args, named, printer)).await,
        ConfigAction::Remove(args) => remove::run(args, named, printer),
    }
}

fn path(named: Option<&Path>, printer: &Printer) -> Result<Exit, Stop> {
    let path = the_place(named)?.path;
    let bytes = path.as_os_str().as_bytes();
    if printer.is_json() {
        printer.object(&json::Event::path(bytes, path.exists()));
    } else {
        printer.listed(&[Piece::Name(bytes)]);
    }
    Ok(Exit::Done)
}

/// The file, whether it exists or not.
fn the_place(named: Option<&Path>) -> Result<Place, Stop> {
    place(named).ok_or_else(|| {
        Stop::Usage(
            "there is no configuration file: its name is empty, or neither HOME nor XDG_CONFIG_HOME is \
             set\nhint: name one with --config FILE"
                .to_owned(),
        )
    })
}

/// The text of a file that is going to be changed, and what it says; an empty one if there is none.
///
/// # Errors
/// It cannot be read, or has faults: what was meant could not be told.
fn text(place: &Place) -> Result<(Option<String>, Config), Stop> {
    let Some(bytes) = content(&place.path)? else { return Ok((None, Config::default())) };
    let text = String::from_utf8(bytes).map_err(|_| {
        Error::new(ErrorKind::InvalidInput, "read")
            .at(place.path.display())
            .because("it is not UTF-8")
    })?;
    let (config, faults) = Config::parse(&place.path, &text);
    if faults.is_empty() {
        return Ok((Some(text), config));
    }
    Err(Stop::Usage(Faults(faults).to_string()))
}

/// Prints a fault.
fn print(fault: &Fault, printer: &Printer) {
    if printer.is_json() {
        return printer.object(&json::Event::fault(fault));
    }
    match &fault.hint {
        Some(hint) => printer.usage(&format!("{fault}\nhint: {hint}")),
        None => printer.usage(&fault.to_string()),
    }
}

/// The person at the terminal. In a script there are no prompts.
#[derive(Debug)]
struct Person {
    terminal: Terminal,
}

impl Person {
    /// Whoever is there, if anybody is.
    fn find() -> Option<Self> {
        io::stdin().is_terminal().then_some(Self { terminal: Terminal { quiet: false } })
    }

    /// Asks until the answer makes sense; an empty one is `check`ed too.
    ///
    /// # Errors
    /// Nothing is typed any more.
    async fn ask<T>(
        &self,
        question: &str,
        check: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Stop> {
        loop {
            let Some(answer) = self.terminal.visible(&format!("{question}: ")).await? else {
                let error = Error::new(ErrorKind::Interrupted, "ask").at("the terminal");
                return Err(error.because("nothing was typed").into());
            };
            match check(answer.trim()) {
                Ok(answer) => return Ok(answer),
                Err(cause) => self.terminal.notice(&cause).await,
            }
        }
    }

    /// A question that is answered by yes or no; Enter is `usual`.
    async fn agrees(&self, question: &str, usual: bool) -> Result<bool, Stop> {
        let choice = if usual { "yes" } else { "no" };
        let check = |answer: &str| match answer.to_lowercase().as_str() {
            "" => Ok(usual),
            "y" | "yes" => Ok(true),
            "n" | "no" => Ok(false),
            _ => Err("Please type 'yes' or 'no'.".to_owned()),
        };
        self.ask(&format!("{question} (yes/no) [{choice}]"), check).await
    }
}
