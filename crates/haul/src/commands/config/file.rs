//! The file that is about to be read or changed, and what is wrong in it.

use std::path::Path;

use haul_storage::{Error, ErrorKind};

use crate::config::{Config, Fault, Faults, Place, content, place};
use crate::exit::Stop;
use crate::output::{Printer, json};

/// The file, whether it exists or not.
pub(super) fn the_place(named: Option<&Path>) -> Result<Place, Stop> {
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
pub(super) fn text(place: &Place) -> Result<(Option<String>, Config), Stop> {
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
pub(super) fn print(fault: &Fault, printer: &Printer) {
    if printer.is_json() {
        return printer.object(&json::Event::fault(fault));
    }
    match &fault.hint {
        Some(hint) => printer.usage(&format!("{fault}\nhint: {hint}")),
        None => printer.usage(&fault.to_string()),
    }
}
