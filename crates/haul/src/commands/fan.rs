//! `haul cp` to or from many hosts: opens source and destination for each host, and reports the results.

use std::sync::Arc;

use haul_engine::fan::{FanSettings, FanSummary, Opened, fan_out};
use haul_engine::{Backup, Settings};
use haul_storage::{Error, ErrorKind, Location, RelPath};

use super::receive;
use crate::args::CpArgs;
use crate::backends::Storages;
use crate::exit::{Exit, Stop};
use crate::hosts::{Direction, Many};
use crate::manifest::Manifest;
use crate::output::{Printer, human, json};
use crate::plan::{self, Plan, Sources};
use crate::report::{HostReports, Report};
use crate::settings::{BackupChoice, Resolved};
use crate::signals::Signals;

/// Hosts served at once unless `--fanout` is given; pdsh has the same default (ClusterShell 64).
const FANOUT: usize = 32;

/// What is needed to open source and destination of any host.
struct FanContext<'a> {
    many: &'a Many,
    storages: &'a Storages<'a>,
    resolved: &'a Resolved,
    /// The sources of a copy to many hosts, opened once; `None` for a copy from many hosts.
    sources: Option<&'a Sources>,
    reports: &'a HostReports,
    printer: &'a Printer,
}

/// Runs the transfers of all hosts and reports the results.
pub(crate) async fn run(
    args: &CpArgs,
    many: &Many,
    resolved: Resolved,
    storages: &Storages<'_>,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let resolved = adapted(resolved, printer)?;
    let mut failures = 0;
    let sources = match &many.direction {
        Direction::From(_) => None,
        Direction::To(_) => match opened(args, resolved.engine.dry_run, storages, printer).await? {
            None => return Ok(Exit::Failed),
            sources => sources,
        },
    };
    for error in sources.iter().flat_map(|sources| &sources.failures) {
        printer.failure(error);
        failures += 1;
    }

    let signals = Signals::listen(printer, "interrupted; run the same command again to continue");
    let reports = Arc::new(HostReports::new(many.hosts.clone()));
    let has_manifests = resolved.manifest.is_some();
    let report = Report::start_many(printer, Arc::clone(&reports), has_manifests, resolved.show)
        .map_err(|error| Error::from_io("start a thread", error))?;
    let context = FanContext {
        many,
        storages,
        resolved: &resolved,
        sources: sources.as_ref(),
        reports: &reports,
        printer,
    };
    let settings = FanSettings {
        transfer: resolved.engine.clone(),
        at_once: args.hosts.fanout.map_or(FANOUT, |fanout| fanout.as_usize()),
        fail_fast: args.hosts.fail_fast,
        one_source: sources.is_some(),
    };
    let cancel = signals.cancel().clone();
    let open = |host: usize| open(&context, host);
    let mut summary = fan_out(many.hosts.len(), open, settings, report.fan_sink(), cancel).await;
    report.finish();
    failures += finish_manifests(&reports, resolved.engine.sync, printer).await;
    failures += reports.unopened_sources();
    summary.total.failed += failures;
    resolved.done.record(&summary.total);

    print_summary(&summary, &resolved.engine, printer);
    if resolved.show.stats && !printer.is_json() {
        human::stats(&summary.total).into_iter().for_each(|line| printer.note(line));
    }
    Ok(match signals.exit() {
        Some(exit) if summary.total.interrupted => exit,
        _ if summary.total.failed > 0 || summary.failed_hosts + summary.stopped_hosts > 0 => {
            Exit::Failed
        }
        _ => Exit::Done,
    })
}

/// Adapts the settings to many hosts. Refuses those that haul supports for one host only.
fn adapted(mut resolved: Resolved, printer: &Printer) -> Result<Resolved, Stop> {
    if resolved.manifest.as_ref().is_some_and(|choice| choice.file.is_some()) {
        let message = "many hosts cannot share one manifest: --manifest without a file writes one next to the \
                       files of each";
        return Err(Stop::Usage(message.to_owned()));
    }
    if resolved.rules.list().is_some() {
        let message = "--files-from cannot be used with many hosts: a file missing on one of \
                       them would go unnoticed";
        return Err(Stop::Usage(message.to_owned()));
    }
    if resolved.engine.remove_source {
        let message = "--remove-source-files cannot be used with many hosts; remove the files once every host has them";
        return Err(Stop::Usage(message.to_owned()));
    }
    resolved.engine.shows_current = resolved.show.current && printer.can_draw();
    if let Some(BackupChoice { directory, suffix }) = resolved.backup.take() {
        if directory.is_some() {
            let message = "--backup-dir cannot be used with many hosts; --backup keeps old \
                           versions next to the files";
            return Err(Stop::Usage(message.to_owned()));
        }
        resolved.engine.backup = Some(Backup { base: RelPath::root(), directory: None, suffix });
    }
    Ok(resolved)
}

/// The sources of a copy to many hosts; `None` if they come from a ticket, and the user declines them.
async fn opened(
    args: &CpArgs,
    dry_run: bool,
    storages: &Storages<'_>,
    printer: &Printer,
) -> Result<Option<Sources>, Stop> {
    let locations = args.sources.iter().map(|source| storages.locate(source));
    let locations = locations.collect::<Result<Vec<_>, _>>()?;
    let sources = Sources::open(storages, &locations).await;
    let (to, how) = (args.destination.display(), (args.yes, dry_run));
    let is_confirmed =
        receive::confirm_sources(&sources.paths(), to, how, storages, printer).await?;
    Ok(is_confirmed.then_some(sources))
}

fn print_summary(summary: &FanSummary, settings: &Settings, printer: &Printer) {
    if printer.is_json() {
        printer.object(&json::Event::fan_summary(summary, settings.digest, settings.dry_run));
    } else {
        let line = human::fan_summary(summary, settings.dry_run, printer.is_verbose());
        printer.ending(line, false);
    }
}

/// Opens source and destination of one host, and its manifest.
async fn open(context: &FanContext<'_>, host: usize) -> Result<Opened, Error> {
    let failed = |stop| match stop {
        Stop::Failed(error) => error,
        Stop::Usage(message) => Error::new(ErrorKind::InvalidInput, "copy").because(message),
    };
    let mut plan = plan(context, host).await.map_err(failed)?;
    let Resolved { engine, manifest, asked, .. } = context.resolved;
    asked.warn(&plan.jobs, context.printer);
    let mut filter = engine.filter.clone();
    let manifest = match manifest {
        Some(choice) => Some(Manifest::new(choice, &plan, context.storages).await.map_err(failed)?),
        None => None,
    };
    if let Some(manifest) = &manifest {
        let warn = |location: &str, message: &str| context.printer.warning(location, message);
        filter = manifest.guard(&mut plan.jobs, filter, warn).await;
    }
    let Plan { jobs, base, failures, .. } = plan;
    context.reports.open(host, base, manifest, failures, context.printer);
    Ok(Opened { jobs, filter })
}

async fn plan(context: &FanContext<'_>, host: usize) -> Result<Plan, Stop> {
    let FanContext { many, storages, resolved, sources, .. } = context;
    match (&many.direction, sources) {
        (Direction::To(destinations), Some(sources)) => {
            plan::copy_opened(storages, sources, &destinations[host], &resolved.rules).await
        }
        (Direction::To(destinations), None) => {
            plan::copy(storages, &[], &destinations[host], &resolved.rules).await
        }
        (Direction::From(locations), _) => plan_from(context, &locations[host]).await,
    }
}

/// Plans a copy from one host; `ends` are its sources and the destination. If none of the sources can be opened, the
/// first error is returned, so that opening is retried, or the host counts as failed.
async fn plan_from(
    context: &FanContext<'_>,
    ends: &(Vec<Location>, Location),
) -> Result<Plan, Stop> {
    let (sources, destination) = ends;
    let mut sources = Sources::open(context.storages, sources).await;
    if sources.is_empty() && !sources.failures.is_empty() {
        return Err(sources.failures.swap_remove(0).into());
    }
    let rules = &context.resolved.rules;
    let plan = plan::copy_opened(context.storages, &sources, destination, rules).await?;
    Ok(Plan { failures: sources.failures, ..plan })
}

/// Writes the manifests of all hosts; returns how many could not be written.
async fn finish_manifests(reports: &HostReports, sync: bool, printer: &Printer) -> u64 {
    let mut failures = 0;
    for (host, manifest) in reports.take_manifests() {
        if let Err(error) = manifest.finish(sync).await {
            printer.failure_of(Some(&host), &error);
            failures += 1;
        }
    }
    failures
}
