//! `haul mv`: renames, or copies, verifies and removes.

use haul_engine::Job;
use haul_engine::tree::{Side, remove_moved};
use haul_storage::{Error, ErrorKind, Location, RelPath, Result, StorageExt as _};

use super::transfer;
use crate::args::{MvArgs, TransferArgs};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::options::{OverwriteArg, PreserveArg};
use crate::output::{Printer, json};
use crate::places::{Places, expected_lanes};
use crate::signals::Signals;
use crate::units::Switch;
use crate::{plan, settings};

/// Runs it.
pub(crate) async fn run(args: &MvArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let mut options = args.options.clone();
    options.preserve = options.preserve.or(Some(PreserveArg::ALL));
    options.verify = options.verify.or(Some(Switch(true)));
    // What a file of the same size and time holds is not known, and the source will be removed.
    options.overwrite = options.overwrite.or(Some(OverwriteArg::Always));
    let transfer = TransferArgs { options, dry_run: args.dry_run, ..TransferArgs::default() };
    let resolved = settings::resolve(&transfer, config).map_err(Stop::Usage)?;
    if !resolved.rules.is_empty() {
        let message = "the configuration includes or excludes files, and mv moves all of them; \
                       use haul cp and haul rm, or a --profile without filters";
        return Err(Stop::Usage(message.to_owned()));
    }
    let lanes = expected_lanes(&resolved.engine);
    let (block_size, split) = (resolved.engine.block_size, resolved.split);
    let places = Places::new(config, block_size, split, &args.remote, printer, lanes);
    let sources = places.expand_all(&args.sources).await?;
    let sources: Vec<_> = sources.into_iter().map(Location::without_trailing_slash).collect();
    let destination = places.locate(&args.destination)?;
    let into = sources.len() > 1
        || destination.has_trailing_slash()
        || places.destination(&destination, None).await?.is_directory;

    let (mut rest, mut failed) = (Vec::new(), false);
    for source in sources {
        match renamed(&places, &source, &destination, into, args.dry_run).await {
            Ok(true) if printer.is_json() => {
                printer.object(&json::Event::renamed(&source.to_string(), args.dry_run));
            }
            Ok(true) if printer.is_verbose() || args.dry_run && !printer.is_quiet() => {
                let word = if args.dry_run { "would move" } else { "moved" };
                printer.result(format!("{word} {source}"));
            }
            Ok(true) => {}
            Ok(false) => rest.push(source),
            Err(error) => {
                failed = true;
                printer.failure(&error);
            }
        }
    }
    let exit = if rest.is_empty() {
        Exit::Done
    } else {
        copied(&places, &rest, &destination, resolved, printer).await?
    };
    Ok(if failed && exit == Exit::Done { Exit::Failed } else { exit })
}

/// Copies, and removes what was copied if nothing failed.
async fn copied(
    places: &Places<'_>,
    sources: &[Location],
    destination: &Location,
    resolved: settings::Resolved,
    printer: &Printer,
) -> Result<Exit, Stop> {
    for source in sources {
        // A link is moved, not what it points to; it has no bytes that a copy could follow.
        let (_, entry) = places.itself(source).await?;
        if !entry.is_dir() && !entry.is_file() {
            return Err(Error::new(ErrorKind::Unsupported, "move")
                .at(source)
                .because(
                    "it is neither a file nor a directory, and can only be renamed on its own disk",
                )
                .into());
        }
    }
    let plan = plan::copy(places, sources, destination, &resolved.rules).await?;
    let jobs = plan.jobs.clone();
    let dry_run = resolved.engine.dry_run;
    let exit = transfer::run(plan, resolved, places, printer).await?;
    if exit != Exit::Done || dry_run {
        return Ok(exit);
    }
    let signals = Signals::listen(printer, "interrupted; what was not removed is at both places");
    let mut clean = true;
    // Nothing failed and nothing is filtered, so there is a job for each source.
    for (job, source) in jobs.iter().zip(sources) {
        clean &= removed(places, job, source, &signals, printer).await?;
    }
    Ok(match signals.exit() {
        Some(exit) => exit,
        None if clean => Exit::Done,
        None => Exit::Failed,
    })
}

async fn removed(
    places: &Places<'_>,
    job: &Job,
    source: &Location,
    signals: &Signals,
    printer: &Printer,
) -> Result<bool, Stop> {
    let copy = Side { storage: &*job.destination, top: &job.destination_path };
    let report = |error: Error| printer.failure(&error);
    // A directory was opened as a root, which cannot be removed: it has a name in the one above it.
    let (place, _) = places.itself(source).await?;
    let source = Side { storage: &*place.storage, top: &place.path };
    Ok(remove_moved(source, copy, signals.cancel(), report).await)
}

/// Renames a source, if both places are on one server or disk and nothing has the new name.
async fn renamed(
    places: &Places<'_>,
    source: &Location,
    destination: &Location,
    into: bool,
    dry_run: bool,
) -> Result<bool> {
    let Some((directory, name)) = source.split_name() else {
        return Err(Error::new(ErrorKind::InvalidInput, "move")
            .at(source)
            .because("it has no name of its own; name the directory, or what is in it"));
    };
    // It is there, or an error.
    places.itself(source).await?;
    let Some((target_directory, target_name)) = (match into {
        true => Some((destination.clone(), name.clone())),
        false => destination.split_name(),
    }) else {
        return Ok(false);
    };
    let Some((common, from, to)) = places.common(&directory, &target_directory).await? else {
        return Ok(false);
    };
    let invalid = |error: haul_storage::RelPathError| {
        Error::new(ErrorKind::InvalidInput, "move").at(source).because(error.to_string())
    };
    let from: RelPath = from.join(&name).map_err(invalid)?;
    let to: RelPath = to.join(&target_name).map_err(invalid)?;
    if common.storage.find(&to).await?.is_some() {
        return Ok(false);
    }
    if dry_run {
        return Ok(true);
    }
    // Another file system below the same directory, a server that does not rename: it is copied.
    Ok(common.storage.rename(&from, &to).await.is_ok())
}
