//! `haul cp`: copies files and trees.

use super::{fan, transfer};
use crate::args::CpArgs;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::places::{Places, expected_lanes};
use crate::{hosts, plan, settings};

/// Runs it.
pub(crate) async fn run(args: &CpArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let resolved = settings::resolve(&args.transfer, config).map_err(Stop::Usage)?;
    let lanes = expected_lanes(&resolved.engine);
    let (block_size, split) = (resolved.engine.block_size, resolved.split);
    let places = Places::new(config, block_size, split, &args.remote, printer, lanes);
    if let Some(many) = hosts::find(args, &places)? {
        return fan::run(args, &many, resolved, &places, printer).await;
    }
    let sources = args.sources.iter().map(|source| places.locate(source));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    let destination = places.locate(&args.destination)?;
    let plan = plan::copy(&places, &sources, &destination, &resolved.rules).await?;
    transfer::run(plan, resolved, &places, printer).await
}
