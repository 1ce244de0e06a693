//! The configuration file that a `haul config` command reads or changes, and its faults.

use std::path::Path;

use haul_storage::{Error, ErrorKind};

use crate::config::{Config, ConfigPath, Fault, Faults, config_path, content, replace, sync};
use crate::exit::Stop;
use crate::output::{Printer, json};

/// The path of the configuration file, which need not exist.
///
/// # Errors
/// If there is no path, as [`config_path`] describes.
pub(super) fn require_path(named: Option<&Path>) -> Result<ConfigPath, Stop> {
    config_path(named).ok_or_else(|| {
        Stop::Usage(
            "there is no configuration file: its name is empty, or neither HOME nor XDG_CONFIG_HOME is \
             set to an absolute path\nhint: name one with --config FILE"
                .to_owned(),
        )
    })
}

/// The text of a file that is going to be changed, and the configuration in it; `None` and an empty configuration
/// if the file does not exist.
///
/// # Errors
/// If the file cannot be read or has faults: a faulty file is not changed, since its meaning is unclear.
pub(super) fn text(file: &ConfigPath) -> Result<(Option<String>, Config), Stop> {
    let Some(bytes) = content(&file.path)? else { return Ok((None, Config::default())) };
    let text = String::from_utf8(bytes).map_err(|_| {
        Error::new(ErrorKind::InvalidInput, "read")
            .at(file.path.display())
            .because("it is not UTF-8")
    })?;
    let (config, faults) = Config::parse(&file.path, &text);
    if faults.is_empty() {
        return Ok((Some(text), config));
    }
    Err(Stop::Usage(Faults(faults).to_string()))
}

/// Changes the file, and returns its new text. `edit` gets the current text and its configuration and returns the
/// new text; it is called again if another program has changed the file meanwhile.
///
/// # Errors
/// Those of [`text()`] and of `edit`, those of [`sync`], and if the file cannot be written.
pub(super) fn change(
    file: &ConfigPath,
    edit: impl Fn(&str, &Config) -> Result<String, Stop>,
) -> Result<String, Stop> {
    loop {
        let (before, config) = text(file)?;
        let edited = edit(before.as_deref().unwrap_or_default(), &config)?;
        match replace(&file.path, before.as_deref().map(str::as_bytes), &edited) {
            Err(error) if error.kind() == ErrorKind::Changed => {}
            written => {
                written.and_then(|()| sync(&file.path))?;
                return Ok(edited);
            }
        }
    }
}

/// Prints a fault.
pub(super) fn print(fault: &Fault, printer: &Printer) {
    if printer.is_json() {
        printer.log(&format!("haul: {fault}"));
        if let Some(hint) = &fault.hint {
            printer.log(&format!("hint: {hint}"));
        }
        return printer.object(&json::Event::fault(fault));
    }
    match &fault.hint {
        Some(hint) => printer.usage(&format!("{fault}\nhint: {hint}")),
        None => printer.usage(&fault.to_string()),
    }
}
