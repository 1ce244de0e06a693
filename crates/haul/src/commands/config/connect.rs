//! Connects to a remote, to check its settings.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, Location};

use crate::backends::Storages;
use crate::exit::Stop;
use crate::output::Printer;
use crate::units::duration;

/// The result of an attempt to connect to a remote.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub(super) name: &'a str,
    pub(super) location: Location,
    /// Whether its path exists.
    pub(super) outcome: Result<bool, Error>,
    pub(super) elapsed: Duration,
}

/// The location of a remote. A command locates all its remotes before it connects to the first, so that an
/// ambiguous `HAUL_PASSWORD` is refused rather than sent to it.
pub(super) fn locate<'a>(
    storages: &Storages<'_>,
    name: &'a str,
) -> Result<(&'a str, Location), Stop> {
    Ok((name, storages.locate(&OsString::from(format!("{name}:")))?))
}

/// Connects to a remote and signs in.
pub(super) async fn connect<'a>(
    storages: &Storages<'_>,
    name: &'a str,
    location: Location,
) -> Attempt<'a> {
    let began = Instant::now();
    let outcome = match storages.existing(&location).await {
        Ok(_) => Ok(true),
        // The host has responded that the path does not exist: the settings work.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    Attempt { name, location, outcome, elapsed: began.elapsed() }
}

impl Attempt<'_> {
    /// Prints the result as text.
    pub(super) fn print(&self, printer: &Printer) {
        let Self { name, location, outcome, elapsed } = self;
        let is_local = matches!(location, Location::Local(_));
        match outcome {
            Ok(true) if is_local => printer.result(format!("{name}: found ({location})")),
            Ok(true) => {
                printer.result(format!("{name}: connected in {} ({location})", duration(*elapsed)));
            }
            Ok(false) if is_local => {
                printer.result(format!("{name}: the path does not exist yet ({location})"));
            }
            Ok(false) => printer.result(format!(
                "{name}: connected in {}, and the path does not exist yet ({location})",
                duration(*elapsed)
            )),
            Err(error) => printer.failure_of(Some(name), error),
        }
    }
}
