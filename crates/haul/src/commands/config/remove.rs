//! `haul config remove`.

use std::path::Path;

use haul_storage::{Error, ErrorKind};

use super::file;
use crate::args::ConfigRemoveArgs;
use crate::config::edit;
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Runs `haul config remove`.
pub(super) fn run(
    args: &ConfigRemoveArgs,
    named: Option<&Path>,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let config_file = file::require_path(named)?;
    file::change(&config_file, |text, config| {
        config.named(&args.name).map_err(Stop::Usage)?;
        edit::without_remote(text, &args.name).map_err(|cause| {
            let error = Error::new(ErrorKind::Unsupported, "change");
            error.at(config_file.path.display()).because(cause).into()
        })
    })?;
    printer.note(format!("removed '{}' from {}", args.name, config_file.path.display()));
    Ok(Exit::Done)
}
