//! Connects to a remote, to see whether its settings are right.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, Location};

use crate::backends::Places;
use crate::exit::Stop;
use crate::output::Printer;
use crate::units::duration;

/// A remote that was connected to.
#[derive(Debug)]
pub(super) struct Tried<'a> {
    pub(super) name: &'a str,
    pub(super) location: Location,
    /// Whether anything is at its path.
    pub(super) outcome: Result<bool, Error>,
    pub(super) took: Duration,
}

/// A remote with its location: all of a command are found before the first is connected to, so that it is known
/// which of them a password is for.
pub(super) fn locate<'a>(places: &Places<'_>, name: &'a str) -> Result<(&'a str, Location), Stop> {
    Ok((name, places.locate(&OsString::from(format!("{name}:")))?))
}

/// Connects to a remote and signs in.
pub(super) async fn connect<'a>(
    places: &Places<'_>,
    name: &'a str,
    location: Location,
) -> Tried<'a> {
    let began = Instant::now();
    let outcome = match places.existing(&location).await {
        Ok(_) => Ok(true),
        // The host has said so.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    };
    Tried { name, location, outcome, took: began.elapsed() }
}

impl Tried<'_> {
    /// Prints how it ended, for people.
    pub(super) fn print(&self, printer: &Printer) {
        let Self { name, location, outcome, took } = self;
        let is_local = matches!(location, Location::Local(_));
        match outcome {
            Ok(true) if is_local => printer.result(format!("{name}: found ({location})")),
            Ok(true) => {
                printer.result(format!("{name}: connected in {} ({location})", duration(*took)));
            }
            Ok(false) if is_local => {
                printer.result(format!("{name}: the path does not exist yet ({location})"));
            }
            Ok(false) => printer.result(format!(
                "{name}: connected in {}, and the path does not exist yet ({location})",
                duration(*took)
            )),
            Err(error) => printer.failure_of(Some(name), error),
        }
    }
}
