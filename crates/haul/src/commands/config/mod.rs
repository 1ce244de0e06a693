//! `haul config`: lists, shows, checks and changes the configuration.

mod add;
mod check;
mod connect;
mod defaults;
mod edit;
mod file;
mod list;
mod prompter;
mod remove;
mod show;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::args::{ConfigAction, ConfigArgs};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::{Piece, Printer, json};

/// Runs `haul config`; `named` is the file of `--config`.
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
    let path = file::require_path(named)?.path;
    let bytes = path.as_os_str().as_bytes();
    if printer.is_json() {
        printer.object(&json::Event::path(bytes, path.exists()));
    } else {
        printer.listed(&[Piece::Name(bytes)]);
    }
    Ok(Exit::Done)
}
