//! `haul mv`: renames, or copies, verifies and removes.
//!
//! ```text
//! refuse sources with equal names → rename on one disk or server, unless the new name exists
//!   → the others: check that they can be moved; prompt if they come from a ticket
//!   → note what gets a new name, so that a rerun continues
//!   → transfer, which removes each file once its copy is complete
//!   → remove the directories that are empty now
//! ```

use std::collections::HashSet;

use haul_engine::tree::{Marker, UnfinishedMove, remove_emptied};
use haul_engine::{Cancel, Job, Preserve, fold_name};
use haul_storage::{Entry, Error, ErrorKind, Location, RelPath, Result, StorageExt as _};

use super::nesting::levels_up;
use super::receive;
use super::transfer::{self, TransferResult};
use crate::args::{MvArgs, TransferArgs};
use crate::backends::{OpenedPath, Storages};
use crate::config::Config;
use crate::exit::{Exit, Stop};
use crate::options::{Options, OverwriteArg, PreserveArg, SplitArg};
use crate::output::{Printer, json};
use crate::settings::Resolved;
use crate::units::Switch;
use crate::{plan, settings};

/// Runs `haul mv`.
pub(crate) async fn run(args: &MvArgs, config: &Config, printer: &Printer) -> Result<Exit, Stop> {
    let resolved = resolve(args, config)?;
    let done = resolved.done.clone();
    done.after(Box::pin(moved(args, resolved, config, printer)).await, printer)
}

async fn moved(
    args: &MvArgs,
    resolved: Resolved,
    config: &Config,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let storages = Storages::for_transfer(config, &resolved, &args.remote, printer)?;
    let destination = storages.locate(&args.destination)?;
    let sources = storages.expand_all(&args.sources).await?;
    let sources: Vec<_> = sources.into_iter().map(Location::without_trailing_slash).collect();
    let into = match &sources[..] {
        [source] if !destination.has_trailing_slash() => {
            let target = storages.destination(&destination, None).await?;
            target.is_directory && !is_begun(&storages, source, &target).await?
        }
        _ => true,
    };
    let alike = check_names(&sources)?;

    let (mut rest, mut failed) = (Vec::new(), false);
    for source in sources {
        // A manifest needs the content to be read, and only a copy can handle names that the destination may
        // treat as equal.
        let renames = resolved.manifest.is_none() && !alike;
        let outcome = match renames {
            true => renamed(&storages, &source, &destination, into, &resolved, args.dry_run).await,
            false => named(&source).map(|_| false),
        };
        match outcome {
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
        let how = (into, args.yes);
        Box::pin(copied(&storages, &rest, &destination, how, resolved, printer)).await?
    };
    Ok(if failed && exit == Exit::Done { Exit::Failed } else { exit })
}

fn resolve(args: &MvArgs, config: &Config) -> Result<Resolved, Stop> {
    // Equal size and time do not prove equal content, and the source will be removed.
    let defaults = Options {
        preserve: Some(PreserveArg::ALL),
        verify: Some(Switch(true)),
        overwrite: Some(OverwriteArg::Always),
        ..Options::default()
    };
    let transfer = TransferArgs {
        options: args.options.clone(),
        dry_run: args.dry_run,
        ..TransferArgs::default()
    };
    let mut resolved = settings::resolve_with(&transfer, config, &defaults).map_err(Stop::Usage)?;
    resolved.engine.remove_source = true;
    if resolved.rules.is_empty() {
        return Ok(resolved);
    }
    let message = "the configuration includes or excludes files, and mv moves all of them; \
                   use haul cp and haul rm, or a --profile without filters";
    Err(Stop::Usage(message.to_owned()))
}

/// Refuses two sources with the same name, one of which would replace the other. Returns whether any two
/// names would collide on a destination that ignores case or normalises characters.
fn check_names(sources: &[Location]) -> Result<bool, Stop> {
    let (mut names, mut folded) = (HashSet::new(), HashSet::new());
    let mut alike = false;
    for source in sources {
        let name = source.base_name();
        if !names.insert(name) {
            return Err(Stop::Usage(format!(
                "{source}: another source has the name {} too, and one would replace the other",
                name.escape_ascii()
            )));
        }
        alike |= !folded.insert(fold_name(name));
    }
    Ok(alike)
}

/// The parent directory of a source, and its name in it.
fn named(source: &Location) -> Result<(Location, Vec<u8>)> {
    source.split_name().ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "move")
            .at(source)
            .because("it is a root, '.' or '..'; write the directory's name, or what is in it")
    })
}

/// Copies the sources that cannot be renamed; each file is removed once its copy is complete.
async fn copied(
    storages: &Storages<'_>,
    sources: &[Location],
    destination: &Location,
    (into, yes): (bool, bool),
    resolved: Resolved,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let dry_run = resolved.engine.dry_run;
    for source in sources {
        check_movable(storages, source, destination, dry_run).await?;
    }
    let plan = plan::moving(storages, sources, destination, &resolved.rules, into).await?;
    if !receive::confirm(&plan, destination, (yes, dry_run), storages, printer).await? {
        return Ok(Exit::Failed);
    }
    let new_name = plan.jobs.first().filter(|_| !into && !dry_run).cloned();
    if let Some(job) = &new_name {
        begin(job, &resolved.engine.preserve).await?;
    }
    let TransferResult { mut exit, summary } =
        transfer::run(plan, resolved, storages, printer).await?;
    if dry_run || summary.interrupted {
        return Ok(exit);
    }
    for source in sources {
        // A directory was opened as a root, which cannot be removed: open it by its name in its parent.
        let (opened, entry) = match storages.itself(source).await {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        if !entry.is_dir() {
            continue;
        }
        let report = |error: Error| printer.failure(&error);
        let left = remove_emptied(&*opened.storage, entry, &Cancel::default(), report).await;
        if left.failed && exit == Exit::Done {
            exit = Exit::Failed;
        }
        let Some(example) = left.example else { continue };
        // Files that failed or were skipped have been reported.
        if summary.failed + summary.skipped == 0 {
            let example = opened.storage.location().display(&example.path);
            let cause = format!("it is not empty: {example} was not moved");
            printer.failure(&Error::new(ErrorKind::NotEmpty, "remove").at(source).because(cause));
        }
        if exit == Exit::Done && summary.skipped == 0 {
            exit = Exit::Failed;
        }
    }
    if let Some(job) = new_name.filter(|_| exit == Exit::Done && summary.skipped == 0) {
        end(&job).await?;
    }
    Ok(exit)
}

/// Whether an interrupted run began to move `source` to `target`, which therefore exists.
async fn is_begun(
    storages: &Storages<'_>,
    source: &Location,
    target: &OpenedPath,
) -> Result<bool, Stop> {
    let (opened, entry) = match storages.itself(source).await {
        Ok(found) => found,
        // Reported when the source is moved.
        Err(error) if is_no_source(error.kind()) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    if !entry.is_dir() {
        return Ok(false);
    }
    let from = (&*opened.storage, &entry.path);
    let unfinished = UnfinishedMove { from, to: (&*target.storage, &target.path) };
    unfinished.is_begun().await.map_err(|error| error.at(source).into())
}

/// Whether an error shows that there is no source whose move could have begun.
const fn is_no_source(kind: ErrorKind) -> bool {
    use ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    matches!(kind, IsADirectory | NotADirectory | NotFound | PermissionDenied)
}

/// Notes that a directory gets a new name, so that a rerun does not take that for a directory to move it into.
async fn begin(job: &Job, preserve: &Preserve) -> Result<()> {
    let unfinished = unfinished(job);
    let source = job.source.stat(&job.source_path).await?;
    if !source.is_dir() || unfinished.is_begun().await? {
        return Ok(());
    }
    // The transfer reports a destination that is not a directory.
    if job.destination.find(&job.destination_path).await?.is_some_and(|found| !found.is_dir()) {
        return Ok(());
    }
    // Private until it is complete, like every copied directory that gets its mode at the end.
    let gets_mode = preserve.mode && job.destination.capabilities().mode;
    let is_private = gets_mode && source.mode.is_some();
    unfinished.begin(is_private.then_some(0o700)).await
}

/// Removes the note at the new name.
async fn end(job: &Job) -> Result<()> {
    match job.destination.stat(&job.destination_path).await {
        Ok(entry) if entry.is_dir() => unfinished(job).end().await,
        _ => Ok(()),
    }
}

fn unfinished(job: &Job) -> UnfinishedMove<'_> {
    UnfinishedMove {
        from: (&*job.source, &job.source_path),
        to: (&*job.destination, &job.destination_path),
    }
}

/// Checks, before anything is copied, that a source can be removed afterwards, and that it neither is nor
/// contains the destination. A dry run, which creates no marker, checks only that it is a file or a directory.
async fn check_movable(
    storages: &Storages<'_>,
    source: &Location,
    destination: &Location,
    dry_run: bool,
) -> Result<(), Stop> {
    let (opened, entry) = storages.itself(source).await?;
    let refuse =
        |kind, cause: &str| Stop::Failed(Error::new(kind, "move").at(source).because(cause));
    // A link is moved itself, not its target; it has no content that could be copied.
    if !entry.is_dir() && !entry.is_file() {
        let cause = "it is neither a file nor a directory, and can only be renamed on its own disk";
        return Err(refuse(ErrorKind::Unsupported, cause));
    }
    if dry_run {
        return Ok(());
    }
    let directory =
        if entry.is_dir() { entry.path.clone() } else { entry.path.parent().unwrap_or_default() };
    let marker = Marker::set(&*opened.storage, &directory).await.map_err(|error| {
        let cause = format!("it could not be removed afterwards ({})", error.cause());
        refuse(error.kind(), &cause)
    })?;
    let outcome = async {
        if !entry.is_dir() {
            return Ok(());
        }
        if !marker.is_listed().await? {
            let cause = "the server does not list names that begin with a dot, so haul does not know what \
                         else is in it";
            return Err(refuse(ErrorKind::Unsupported, cause));
        }
        if levels_up(storages, &marker, destination).await?.is_some() {
            let cause =
                format!("the destination {destination} is the same directory, or inside it");
            return Err(refuse(ErrorKind::InvalidInput, &cause));
        }
        Ok(())
    };
    let outcome = outcome.await;
    marker.remove().await?;
    outcome
}

/// Renames a source if both locations are on one server or disk, the new name does not exist, and `--split` need not
/// split it. Returns whether it was renamed, or would be in a dry run.
async fn renamed(
    storages: &Storages<'_>,
    source: &Location,
    destination: &Location,
    into: bool,
    resolved: &Resolved,
    dry_run: bool,
) -> Result<bool> {
    let (directory, name) = named(source)?;
    // Fails unless the source exists.
    let (_, entry) = storages.itself(source).await?;
    let Some((target_directory, target_name)) = (match into {
        true => Some((destination.clone(), name.clone())),
        false => destination.split_name(),
    }) else {
        return Ok(false);
    };
    let Some((common, from, to)) = storages.common(&directory, &target_directory).await? else {
        return Ok(false);
    };
    let invalid = |error: haul_storage::RelPathError| {
        Error::new(ErrorKind::InvalidInput, "move").at(source).because(error.to_string())
    };
    let from: RelPath = from.join(&name).map_err(invalid)?;
    let to: RelPath = to.join(&target_name).map_err(invalid)?;
    if let Some(existing) = common.storage.find(&to).await? {
        let is_same = from == to || existing.id.is_some() && existing.id == entry.id;
        if !is_same {
            return Ok(false);
        }
        // One directory entry in two spellings (`readme` and `README` where case is ignored) is renamed.
        if from == to || entry.links > 1 && !entry.is_dir() {
            return Err(Error::new(ErrorKind::InvalidInput, "move")
                .at(source)
                .because(format!("{destination} is the same file")));
        }
    }
    if let SplitArg::Size(longest) = resolved.split
        && matches!(destination, Location::Local(_))
        && may_be_longer(&entry, longest)
    {
        return Ok(false);
    }
    if dry_run {
        return Ok(true);
    }
    // If renaming fails (another file system below the same directory, a server that cannot), it is copied.
    Ok(common.storage.rename(&from, &to).await.is_ok())
}

/// Whether an entry is, or may contain, a file of more than `longest` bytes.
fn may_be_longer(entry: &Entry, longest: u64) -> bool {
    entry.is_dir() || entry.is_file() && entry.known_size().is_none_or(|size| size > longest)
}
