//! `haul cat`: prints files from any location, in order and at the speed of the link.

use super::pipe;
use crate::args::{CatArgs, TransferArgs};
use crate::backends::Storages;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::settings;

/// Runs `haul cat`.
pub(crate) async fn run(args: &CatArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let mut resolved = settings::resolve(&TransferArgs::default(), config).map_err(Stop::Usage)?;
    // The configuration may set these, but output can neither be read back nor hold a manifest.
    resolved.manifest = None;
    resolved.engine.verify = false;
    let storages = Storages::for_transfer(config, &resolved, &args.remote, printer)?;
    pipe::to_output(&args.files, &storages, resolved, printer).await
}
