//! `haul sync`: makes one directory like another.

use super::nesting::refuse_nested;
use super::{receive, transfer};
use crate::args::SyncArgs;
use crate::backends::Storages;
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::output::Printer;
use crate::settings::Resolved;
use crate::{plan, settings};

/// Runs `haul sync`.
pub(crate) async fn run(args: &SyncArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let mut resolved = settings::resolve(&args.transfer, config).map_err(Stop::Usage)?;
    resolved.engine.delete = args.delete;
    resolved.engine.delete_limit = args.max_delete.map(|limit| limit.0);
    resolved.engine.delete_from_empty = args.delete_from_empty;
    resolved.engine.ignore_errors = args.ignore_errors;
    let done = resolved.done.clone();
    done.after(Box::pin(synced(args, resolved, config, printer)).await, printer)
}

async fn synced(
    args: &SyncArgs,
    resolved: Resolved,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let storages = Storages::for_transfer(config, &resolved, &args.remote, printer)?;
    let source = storages.locate(&args.source)?;
    let destination = storages.locate(&args.destination)?;
    let plan = plan::sync(&storages, &source, &destination).await?;
    if let Some(job) = plan.jobs.first().filter(|_| args.delete && !resolved.engine.dry_run) {
        let ends = (&source, &destination);
        refuse_nested(&storages, ends, job, &resolved.engine.filter).await?;
    }
    let how = (args.yes, resolved.engine.dry_run);
    if !receive::confirm(&plan, &destination, how, &storages, printer).await? {
        return Ok(Exit::Failed);
    }
    Ok(transfer::run(plan, resolved, &storages, printer).await?.exit)
}
