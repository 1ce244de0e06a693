//! From sources and DEST to the engine's jobs: what goes where.
//!
//! The rules give the same answer in a first run and in a rerun, so that a rerun continues and
//! never nests a directory in itself:
//!
//! | source | becomes |
//! |---|---|
//! | `DIR` | `DEST/DIR`, whether DEST exists or not |
//! | `DIR/`, `.`, `..` | DEST: what is in one is in the other |
//! | `FILE` | `DEST/FILE` if DEST is a directory, ends with a slash, or there are several sources; else DEST |

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use haul_engine::{Backup, Job};
use haul_storage::{Error, ErrorKind, Location, RelPath, Storage};

use crate::exit::Stop;
use crate::filter::Rules;
use crate::places::{Place, Places};
use crate::settings::BackupChoice;

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Plan {
    /// For the engine.
    pub(crate) jobs: Vec<Job>,
    /// Where DEST is.
    pub(crate) destination: Arc<dyn Storage>,
    /// The directory in it that reports and manifests are relative to: DEST, or the directory that
    /// holds it if DEST is a file's new name.
    pub(crate) base: RelPath,
    /// That directory, if it is on a disk of this machine.
    pub(crate) local_base: Option<PathBuf>,
    /// Sources that could not be opened; the others go on.
    pub(crate) failures: Vec<Error>,
}

impl Plan {
    /// Where old versions are kept.
    pub(crate) fn backup(&self, choice: BackupChoice) -> Result<Backup, Stop> {
        let BackupChoice { directory, suffix } = choice;
        let below = |directory: OsString| {
            let written = directory.as_bytes();
            let path = written.strip_suffix(b"/").unwrap_or(written);
            let path = RelPath::parse(path.strip_prefix(b"./").unwrap_or(path));
            path.map(|path| self.base.join_path(&path)).map_err(|error| {
                Stop::Usage(format!(
                    "--backup-dir {} must be a path below DEST, such as .old: the path {error}",
                    directory.display()
                ))
            })
        };
        let directory = directory.map(below).transpose()?;
        Ok(Backup { base: self.base.clone(), directory, suffix })
    }
}

/// Sources that were opened, maybe for several destinations.
#[derive(Debug)]
pub(crate) struct Sources {
    opened: Vec<(Location, Place)>,
    /// How many there were to open.
    asked: usize,
    /// Those that could not be opened.
    pub(crate) failures: Vec<Error>,
}

impl Sources {
    /// Opens them, each by itself.
    pub(crate) async fn open(places: &Places<'_>, locations: &[Location]) -> Self {
        let mut opened = Vec::new();
        let mut failures = Vec::new();
        for location in locations {
            match places.existing(location).await {
                Ok(place) => opened.push((location.clone(), place)),
                Err(error) => failures.push(error),
            }
        }
        Self { opened, asked: locations.len(), failures }
    }

    /// Whether any is no directory.
    fn has_file(&self) -> bool {
        self.opened.iter().any(|(_, place)| !place.is_directory)
    }

    /// Whether none could be opened.
    pub(crate) fn is_empty(&self) -> bool {
        self.opened.is_empty()
    }
}

/// The plan of `haul cp`.
pub(crate) async fn copy(
    places: &Places<'_>,
    sources: &[Location],
    destination: &Location,
    rules: &Rules,
) -> Result<Plan, Stop> {
    copy_into(places, sources, destination, rules, None).await
}

/// The plan of `haul mv`: as `mv` does, a directory gets the name DEST where nothing has it. `into`: DEST is, or is to
/// be, a directory that holds the sources.
pub(crate) async fn moving(
    places: &Places<'_>,
    sources: &[Location],
    destination: &Location,
    rules: &Rules,
    into: bool,
) -> Result<Plan, Stop> {
    copy_into(places, sources, destination, rules, Some(into)).await
}

async fn copy_into(
    places: &Places<'_>,
    sources: &[Location],
    destination: &Location,
    rules: &Rules,
    into: Option<bool>,
) -> Result<Plan, Stop> {
    let target = places.destination(destination, only_name(sources.iter())).await?;
    let sources = Sources::open(places, sources).await;
    if rules.list().is_some() && (sources.asked > 1 || sources.has_file()) {
        return Err(Stop::Usage(
            "--files-from lists paths below one SOURCE, which is a directory".to_owned(),
        ));
    }
    let plan = place(&sources, target, destination, rules, into)?;
    Ok(Plan { failures: sources.failures, ..plan })
}

/// The plan of a copy of sources that are open already. Its failures are none.
pub(crate) async fn copy_opened(
    places: &Places<'_>,
    sources: &Sources,
    destination: &Location,
    rules: &Rules,
) -> Result<Plan, Stop> {
    let target = places
        .destination(destination, only_name(sources.opened.iter().map(|(location, _)| location)))
        .await?;
    place(sources, target, destination, rules, None)
}

/// What goes where.
fn place(
    sources: &Sources,
    target: Place,
    destination: &Location,
    rules: &Rules,
    into: Option<bool>,
) -> Result<Plan, Stop> {
    let any_directory = sources.opened.iter().any(|(_, place)| place.is_directory);
    let into = into.unwrap_or_else(|| {
        sources.asked > 1
            || any_directory
            || destination.has_trailing_slash()
            || target.is_directory
    });
    if into && target.exists && !target.is_directory {
        return Err(Error::new(ErrorKind::NotADirectory, "copy into").at(destination).into());
    }

    let mut jobs = Vec::new();
    let mut taken = HashSet::new();
    for (location, place) in &sources.opened {
        // As with rsync, listed paths are copied with what is above them in SOURCE, and without its own name.
        let name = if rules.list().is_some() { b"" } else { own_name(location, place) };
        if !name.is_empty() && !rules.includes(name, place.is_directory) {
            continue;
        }
        let destination_path = if !into || name.is_empty() {
            target.path.clone()
        } else {
            target.path.join(name).map_err(|error| {
                Error::new(ErrorKind::InvalidInput, "copy").at(location).because(error.to_string())
            })?
        };
        if !name.is_empty() && !taken.insert(destination_path.clone()) {
            return Err(Stop::Usage(format!(
                "{location}: another source becomes {}, too",
                target.storage.location().display(&destination_path)
            )));
        }
        jobs.push(job(place.clone(), &target, destination_path));
    }
    Ok(finish(jobs, target, into, Vec::new()))
}

/// The plan of `haul sync`: a slash at the end of SOURCE makes no difference.
pub(crate) async fn sync(
    places: &Places<'_>,
    source: &Location,
    destination: &Location,
) -> Result<Plan, Stop> {
    let place = places.existing(source).await?;
    if !place.is_directory {
        return Err(Stop::Usage(format!("{source}: is no directory; use haul cp for a file")));
    }
    let target = places.destination(destination, None).await?;
    if target.exists && !target.is_directory {
        return Err(Error::new(ErrorKind::NotADirectory, "sync into").at(destination).into());
    }
    let path = target.path.clone();
    let jobs = vec![job(place, &target, path)];
    Ok(finish(jobs, target, true, Vec::new()))
}

/// The name of the only source.
fn only_name<'a>(mut sources: impl Iterator<Item = &'a Location>) -> Option<&'a [u8]> {
    let name = sources.next()?.base_name();
    (sources.next().is_none() && !name.is_empty()).then_some(name)
}

/// The name under which a source arrives; empty if only its content does.
fn own_name<'a>(location: &'a Location, place: &'a Place) -> &'a [u8] {
    // `DIR/.` is DIR to the file system, and what is in it to everybody who writes it.
    let content = location.has_trailing_slash() || location.path_bytes().ends_with(b"/.");
    if place.is_directory && content {
        return b"";
    }
    // What a question gives has the name that the server gives it.
    let asked = matches!(location, Location::Remote { query: Some(_), .. });
    let name = location.base_name();
    if !place.is_directory && (asked || name.is_empty()) { place.path.name() } else { name }
}

fn job(source: Place, target: &Place, destination_path: RelPath) -> Job {
    Job {
        source: source.storage,
        source_path: source.path,
        destination: Arc::clone(&target.storage),
        destination_path,
    }
}

fn finish(jobs: Vec<Job>, target: Place, into: bool, failures: Vec<Error>) -> Plan {
    let (base, local_base) = if into {
        (target.path, target.local)
    } else {
        let above = target.local.and_then(|path| path.parent().map(PathBuf::from));
        (target.path.parent().unwrap_or_default(), above)
    };
    Plan { jobs, destination: target.storage, base, local_base, failures }
}
