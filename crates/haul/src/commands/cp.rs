//! `haul cp`: copies files and trees.

use super::{fan, pipe, transfer};
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
    if args.destination == pipe::STREAM {
        let files = places.expand_all(&args.sources).await?;
        return pipe::to_output(&files, &places, resolved, printer).await;
    }
    if args.sources.iter().any(|source| source == pipe::STREAM) {
        if args.sources.len() > 1 {
            let message = "standard input ('-') is copied alone; write ./- for a file of that name";
            return Err(Stop::Usage(message.to_owned()));
        }
        let destination = places.locate(&args.destination)?;
        return pipe::from_input(&destination, &places, resolved, printer).await;
    }
    let sources = places.expand_all(&args.sources).await?;
    let destination = places.locate(&args.destination)?;
    let plan = plan::copy(&places, &sources, &destination, &resolved.rules).await?;
    Ok(transfer::run(plan, resolved, &places, printer).await?.exit)
}
