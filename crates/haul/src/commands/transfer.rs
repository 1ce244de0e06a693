//! Runs a planned transfer, for `cp`, `sync` and `mv`: manifest, report, signals, and the last line.

use haul_engine::Summary;
use haul_storage::{Error, ErrorKind};

use crate::backends::Storages;
use crate::exit::{Exit, Stop};
use crate::manifest::Manifest;
use crate::output::{Printer, human, json};
use crate::plan::Plan;
use crate::report::Report;
use crate::settings::Resolved;
use crate::signals::Signals;

/// The result of a transfer.
pub(crate) struct TransferResult {
    pub(crate) exit: Exit,
    /// `failed` includes failures before and after the engine's part.
    pub(crate) summary: Summary,
}

/// Runs the transfer and reports its result.
pub(crate) async fn run(
    mut plan: Plan,
    resolved: Resolved,
    storages: &Storages<'_>,
    printer: &Printer,
) -> Result<TransferResult, Stop> {
    let mut settings = resolved.engine;
    settings.backup = resolved.backup.map(|backup| plan.backup(backup)).transpose()?;
    settings.count_ahead = !settings.dry_run && (printer.shows_progress() || printer.is_json());
    settings.shows_current = resolved.show.current && printer.can_draw();
    let (digest, dry_run, sync) = (settings.digest, settings.dry_run, settings.sync);
    resolved.asked.warn(&plan.jobs, printer);
    // Also in a dry run, which must exclude the same files.
    let manifest = match resolved.manifest {
        Some(choice) => Some(Manifest::new(&choice, &plan, storages).await?),
        None => None,
    };
    if let Some(manifest) = &manifest {
        let warn = |location: &str, message: &str| printer.warning(location, message);
        settings.filter = manifest.guard(&mut plan.jobs, settings.filter, warn).await;
    }
    let mut failures = plan.failures;
    for error in &failures {
        printer.failure(error);
    }

    let signals = Signals::listen(printer, "interrupted; run the same command again to continue");
    let report = Report::start(printer, plan.base, manifest, resolved.show)
        .map_err(|error| Error::from_io("start a thread", error))?;
    let cancel = signals.cancel().clone();
    let mut summary = haul_engine::transfer(plan.jobs, settings, report.sink(), cancel).await;
    if let Some(manifest) = report.finish()
        && let Err(error) = manifest.finish(sync).await
    {
        printer.failure(&error);
        failures.push(error);
    }
    let ended_early = summary.interrupted || summary.out_of_space;
    if !ended_early {
        for path in resolved.rules.missing() {
            let error = Error::new(ErrorKind::NotFound, "copy")
                .at(path.escape_ascii())
                .because("listed in --files-from, but not in the source");
            printer.failure(&error);
            failures.push(error);
        }
    }
    summary.failed += failures.len() as u64;
    resolved.done.record(&summary);

    if printer.is_json() {
        printer.object(&json::Event::summary(&summary, digest, dry_run));
    } else {
        let line = human::summary(&summary, dry_run, printer.is_verbose());
        printer.ending(line, summary.failed > 0);
        if resolved.show.stats {
            human::stats(&summary).into_iter().for_each(|line| printer.note(line));
        }
    }
    let exit = match signals.exit() {
        Some(exit) if summary.interrupted => exit,
        _ if summary.failed > 0 => Exit::Failed,
        _ => Exit::Done,
    };
    Ok(TransferResult { exit, summary })
}
