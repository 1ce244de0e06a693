//! `haul config check`.

use std::path::Path;

use futures_util::{StreamExt as _, stream};

use super::connect::{connect, locate};
use super::file;
use crate::args::ConfigCheckArgs;
use crate::backends::Storages;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::{Printer, json};

/// Number of remotes to connect to at the same time.
const SIDE_BY_SIDE: usize = 8;

/// Runs `haul config check`.
pub(super) async fn run(
    args: &ConfigCheckArgs,
    named: Option<&Path>,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let config_file = file::require_path(named)?;
    let (config, faults) = Config::examine(&config_file);
    faults.iter().for_each(|fault| file::print(fault, printer));
    let unreachable = if args.connect { remotes(args, &config, printer).await? } else { 0 };
    let (remotes, profiles) = (config.remote.len(), config.profile.len());
    let file = config_file.path.display();
    if printer.is_json() {
        let faults = faults.len();
        printer.object(&json::Event::Examined { faults, remotes, profiles, unreachable });
    } else if config.file.is_none() && faults.is_empty() {
        printer.note(format!("{file}: not found; the file is optional"));
    } else if faults.is_empty() {
        let count = |count: usize, what: &str| {
            let s = if count == 1 { "" } else { "s" };
            format!("{count} {what}{s}")
        };
        let (remotes, profiles) = (count(remotes, "remote"), count(profiles, "profile"));
        printer.note(format!("{file}: no errors ({remotes}, {profiles})"));
    }
    Ok(if faults.is_empty() && unreachable == 0 { Exit::Done } else { Exit::Failed })
}

/// Connects to each remote; returns how many failed.
async fn remotes(
    args: &ConfigCheckArgs,
    config: &Config,
    printer: &Printer,
) -> Result<usize, Stop> {
    let storages = Storages::for_names(config, &args.connection, printer)?;
    let mut remotes: Vec<_> = config.remote.iter().collect();
    remotes.sort_by_key(|(_, remote)| remote.line);
    let located = remotes.iter().map(|(name, _)| locate(&storages, name.as_str()));
    let located = located.collect::<Result<Vec<_>, _>>()?;
    let tries = located.into_iter().map(|(name, location)| connect(&storages, name, location));
    let mut tries = stream::iter(tries).buffered(SIDE_BY_SIDE);
    let mut failed = 0;
    while let Some(tried) = tries.next().await {
        failed += usize::from(tried.outcome.is_err());
        if printer.is_json() {
            let (location, outcome) = (tried.location.to_string(), tried.outcome.as_ref().copied());
            let seconds = tried.elapsed.as_secs_f64();
            printer.object(&json::Event::connection(tried.name, location, outcome, seconds));
        } else {
            tried.print(printer);
        }
    }
    Ok(failed)
}
