//! `haul demo`.

use crate::args::DemoArgs;
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Runs it.
pub(crate) fn run(_args: &DemoArgs, _printer: &Printer) -> Result<Exit, Stop> {
    Ok(Exit::Failed)
}
