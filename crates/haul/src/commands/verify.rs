//! `haul verify`: checks files against their manifest.

use crate::args::VerifyArgs;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Runs it.
pub(crate) async fn run(
    _args: &VerifyArgs,
    _config: &Config,
    _printer: &Printer,
) -> Result<Exit, Stop> {
    Ok(Exit::Failed)
}
