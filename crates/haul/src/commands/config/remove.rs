//! `haul config remove`.

use std::path::Path;

use haul_storage::{Error, ErrorKind};

use super::file;
use crate::args::ConfigRemoveArgs;
use crate::config::{edit, replace};
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Runs it.
pub(super) fn run(
    args: &ConfigRemoveArgs,
    named: Option<&Path>,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let config_file = file::require_path(named)?;
    let (text, config) = file::text(&config_file)?;
    config.named(&args.name).map_err(Stop::Usage)?;
    let text = text.unwrap_or_default();
    let edited = edit::without_remote(&text, &args.name).map_err(|cause| {
        Error::new(ErrorKind::Unsupported, "change").at(config_file.path.display()).because(cause)
    })?;
    replace(&config_file.path, Some(text.as_bytes()), &edited)?;
    printer.note(format!("removed '{}' from {}", args.name, config_file.path.display()));
    Ok(Exit::Done)
}
