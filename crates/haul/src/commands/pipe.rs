//! Transfers from standard input and to standard output.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use haul_engine::budget::LinkBudgets;
use haul_engine::{Job, Summary, transfer_sharing};
use haul_local::PipeStorage;
use haul_storage::{Error, ErrorKind, Location, RelPath, Result, Storage};
use tokio::sync::oneshot;

use crate::backends::Storages;
use crate::exit::{Exit, Stop};
use crate::output::{Printer, human, json};
use crate::report::Report;
use crate::settings::{Resolved, Show};
use crate::signals::Signals;

/// The argument for standard input and output.
pub(crate) const STREAM: &str = "-";

/// Writes the files of these arguments to standard output, one after the other.
pub(crate) async fn to_output(
    arguments: &[OsString],
    storages: &Storages<'_>,
    resolved: Resolved,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let mut failed = false;
    let expanded = storages.expand_each(arguments, |error| {
        failed = true;
        printer.failure(error);
    });
    let files = expanded.await?;
    let exit = print(&files, storages, resolved, printer).await?;
    Ok(if failed && exit == Exit::Done { Exit::Failed } else { exit })
}

async fn print(
    files: &[Location],
    storages: &Storages<'_>,
    resolved: Resolved,
    printer: &Printer,
) -> Result<Exit, Stop> {
    printer.results_aside();
    if printer.is_json() {
        return Err(Stop::Usage(
            "--json and file contents cannot share standard output".to_owned(),
        ));
    }
    if resolved.engine.verify {
        return Err(Stop::Usage("--verify cannot read standard output back".to_owned()));
    }
    if resolved.manifest.is_some() {
        return Err(Stop::Usage(
            "a manifest has no place on standard output; name a directory".to_owned(),
        ));
    }
    // The output takes no space on a disk.
    let mut resolved = resolved;
    (resolved.engine.check_space, resolved.engine.min_free) = (false, None);
    let signals = Signals::listen(printer, "interrupted");
    let cancel = signals.cancel().clone();
    let stdout = duplicate(std::io::stdout())?;
    let storage = PipeStorage::output(stdout, move || cancel.cancel())?;
    // Files of one server share a budget: each continues with the window of the one before.
    let budgets = LinkBudgets::default();
    let (mut failed, mut is_interrupted) = (false, false);
    for location in files {
        is_interrupted |= signals.cancel().is_cancelled();
        if is_interrupted {
            break;
        }
        let (source, path) = match source(location, storages, &signals).await {
            Ok(Some(found)) => found,
            Ok(None) => {
                is_interrupted = true;
                break;
            }
            Err(error) => {
                printer.failure(&error);
                failed = true;
                continue;
            }
        };
        let job = job(source, path, &storage)?;
        let summary = moved(&budgets, job, &resolved, &signals, printer).await?;
        is_interrupted |= summary.interrupted;
        // A reader that closes the output early (`| head`) is not a failure.
        failed |= summary.failed > 0 && !summary.interrupted;
    }
    Ok(match signals.exit() {
        Some(exit) if is_interrupted => exit,
        _ if failed => Exit::Failed,
        _ => Exit::Done,
    })
}

/// Opens a file to print; `None` if it was interrupted while it waited for the writer of a pipe.
async fn source(
    location: &Location,
    storages: &Storages<'_>,
    signals: &Signals,
) -> Result<Option<(Arc<dyn Storage>, RelPath)>> {
    if is_stream(location) {
        let file = tokio::select! {
            opened = open(location) => opened?,
            () = signals.cancel().cancelled() => return Ok(None),
        };
        let source: Arc<dyn Storage> = PipeStorage::input_named(file, location);
        return Ok(Some((source, name("stream")?)));
    }
    let opened = storages.existing(location).await?;
    if opened.is_directory {
        return Err(Error::new(ErrorKind::IsADirectory, "read").at(location));
    }
    Ok(Some((opened.storage, opened.path)))
}

fn job(source: Arc<dyn Storage>, path: RelPath, output: &Arc<PipeStorage>) -> Result<Job> {
    Ok(Job {
        source,
        source_path: path,
        destination: output.clone(),
        destination_path: name("standard output")?,
        expected: None,
    })
}

/// Whether a location is a local pipe or device, or a file of reported length 0, as system files have
/// (`/proc/cpuinfo`).
fn is_stream(location: &Location) -> bool {
    location.as_local().is_some_and(|path| {
        let found = fs::metadata(path);
        found.is_ok_and(|found| !found.is_dir() && (!found.is_file() || found.len() == 0))
    })
}

/// Opens a local file or pipe; opening a named pipe waits for its writer.
async fn open(location: &Location) -> Result<File> {
    let path = location.as_local().map(Path::to_owned).unwrap_or_default();
    let (sender, opened) = oneshot::channel();
    let open = move || drop(sender.send(File::open(path)));
    let at = |error| Error::from_io("open", error).at(location);
    thread::Builder::new().name("open".to_owned()).spawn(open).map_err(at)?;
    opened.await.map_err(|_| Error::new(ErrorKind::Interrupted, "open"))?.map_err(at)
}

/// Stores standard input as a file.
pub(crate) async fn from_input(
    destination: &Location,
    storages: &Storages<'_>,
    resolved: Resolved,
    printer: &Printer,
) -> Result<Exit, Stop> {
    if resolved.manifest.is_some() {
        return Err(Stop::Usage(
            "--manifest needs a source with a name, not standard input".to_owned(),
        ));
    }
    let target = storages.destination(destination, None).await?;
    if target.is_directory || destination.has_trailing_slash() {
        return Err(Stop::Usage(format!(
            "{destination}: standard input has no file name; write DEST as a file: {}/NAME",
            destination.to_string().trim_end_matches('/')
        )));
    }
    let signals = Signals::listen(printer, "interrupted");
    let job = Job {
        source: PipeStorage::input(duplicate(std::io::stdin())?),
        source_path: name("standard input")?,
        destination: target.storage,
        destination_path: target.path,
        expected: None,
    };
    let summary = moved(&LinkBudgets::default(), job, &resolved, &signals, printer).await?;
    let (digest, dry_run) = (resolved.engine.digest, resolved.engine.dry_run);
    if printer.is_json() {
        printer.object(&json::Event::summary(&summary, digest, dry_run));
    } else {
        let line = human::summary(&summary, dry_run, printer.is_verbose());
        printer.ending(line, summary.failed > 0);
    }
    Ok(match signals.exit() {
        Some(exit) if summary.interrupted => exit,
        _ if summary.failed > 0 => Exit::Failed,
        _ => Exit::Done,
    })
}

async fn moved(
    budgets: &LinkBudgets,
    job: Job,
    resolved: &Resolved,
    signals: &Signals,
    printer: &Printer,
) -> Result<Summary, Stop> {
    let base = RelPath::root();
    let show = Show { current: resolved.show.current, ..Show::default() };
    let report = Report::start(printer, base, None, show)
        .map_err(|error| Error::from_io("start a thread", error))?;
    let cancel = signals.cancel().clone();
    let mut settings = resolved.engine.clone();
    settings.shows_current = show.current && printer.can_draw();
    let summary = transfer_sharing(budgets, vec![job], settings, report.sink(), cancel).await;
    drop(report.finish());
    resolved.done.record(&summary);
    Ok(summary)
}

/// Duplicates a stream of this process.
fn duplicate(stream: impl AsFd) -> Result<File> {
    let owned = stream.as_fd().try_clone_to_owned();
    owned.map(File::from).map_err(|error| Error::from_io("open", error))
}

fn name(text: &str) -> Result<RelPath> {
    RelPath::parse(text)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, "open").because(error.to_string()))
}
