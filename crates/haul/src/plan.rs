//! Turns sources and DEST into the engine's jobs.
//!
//! The rules give the same result in a first run and in a rerun, so that a rerun continues and
//! never nests a directory in itself:
//!
//! | source | becomes |
//! |---|---|
//! | `DIR` | `DEST/DIR`, whether DEST exists or not |
//! | `DIR/`, `.`, `..` | DEST: its content is copied, without its name |
//! | `FILE` | `DEST/FILE` if DEST is a directory, ends with a slash, or there are several sources; else DEST |

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream;
use haul_engine::digest::Digest;
use haul_engine::{Backup, Job};
use haul_storage::{Error, ErrorKind, Location, RelPath, Storage};

use crate::backends::{OpenedPath, Storages};
use crate::beside::Beside;
use crate::exit::Stop;
use crate::filter::Rules;
use crate::output::Printer;
use crate::settings::BackupChoice;

/// The jobs of a transfer, and where they go.
#[derive(Debug)]
pub(crate) struct Plan {
    /// For the engine.
    pub(crate) jobs: Vec<Job>,
    /// The storage of DEST.
    pub(crate) destination: Arc<dyn Storage>,
    /// The directory in it that reports and manifests are relative to: DEST, or the directory that
    /// holds it if DEST is the new name of the source.
    pub(crate) base: RelPath,
    /// That directory, if it is on a disk of this machine.
    pub(crate) local_base: Option<PathBuf>,
    /// Sources that could not be opened; the others are copied.
    pub(crate) failures: Vec<Error>,
}

impl Plan {
    /// Where replaced and removed files are stored.
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

/// Sources on web servers that are opened at the same time, since each takes at least an RTT.
const OPENING: usize = 16;

/// A source, with its name at DEST and the digest it must have.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Its location; several are mirrors of one file, the preferred one first.
    pub(crate) locations: Vec<Location>,
    /// The directory that it is copied to, below DEST.
    pub(crate) directory: RelPath,
    /// Its name in that directory, if that differs from its name at the source.
    pub(crate) name: Option<RelPath>,
    /// The digest that it must have.
    pub(crate) expected: Option<Digest>,
    /// Its position in a list, as `FILE:LINE`.
    pub(crate) listed_at: Option<String>,
}

impl From<Location> for Wanted {
    fn from(location: Location) -> Self {
        Self {
            locations: vec![location],
            directory: RelPath::root(),
            name: None,
            expected: None,
            listed_at: None,
        }
    }
}

/// A source that was opened.
#[derive(Debug)]
struct Source {
    wanted: Wanted,
    /// The location that names it: the preferred one or, if that has no name, the first that could be opened.
    location: Location,
    opened: OpenedPath,
}

/// Sources that were opened, maybe for several destinations.
#[derive(Debug)]
pub(crate) struct Sources {
    opened: Vec<Source>,
    /// Number of sources, including those that could not be opened.
    total: usize,
    /// Those that could not be opened.
    pub(crate) failures: Vec<Error>,
}

impl Sources {
    /// Opens the sources one by one.
    pub(crate) async fn open(storages: &Storages<'_>, locations: &[Location]) -> Self {
        let mut sources = Vec::new();
        let mut failures = Vec::new();
        for location in locations {
            match storages.existing(location).await {
                Ok(opened) => {
                    let location = location.clone();
                    sources.push(Source { wanted: location.clone().into(), location, opened });
                }
                Err(error) => failures.push(error),
            }
        }
        Self { opened: sources, total: locations.len(), failures }
    }

    /// Opens the wanted sources. With `beside`, those without an expected digest must have one in a file next to them.
    async fn fetch(
        storages: &Storages<'_>,
        wanted: Vec<Wanted>,
        beside: bool,
        printer: &Printer,
    ) -> Self {
        let total = wanted.len();
        let is_web = wanted.iter().flat_map(|one| &one.locations).all(Location::is_web);
        let known = Beside::default();
        let known = beside.then_some(&known);
        let opening = wanted.into_iter().map(|one| Source::open(storages, one, known, printer));
        let outcomes: Vec<_> =
            stream::iter(opening).buffered(if is_web { OPENING } else { 1 }).collect().await;
        let (mut opened, mut failures) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome {
                Ok(source) => opened.push(source),
                Err(error) => failures.push(error),
            }
        }
        Self { opened, total, failures }
    }

    /// Whether any opened source is not a directory.
    fn has_file(&self) -> bool {
        self.opened.iter().any(|source| !source.opened.is_directory)
    }

    /// The storages of the opened sources, and their paths in these.
    pub(crate) fn paths(&self) -> Vec<(&dyn Storage, &RelPath)> {
        self.opened.iter().map(|source| (&*source.opened.storage, &source.opened.path)).collect()
    }

    /// Whether none could be opened.
    pub(crate) fn is_empty(&self) -> bool {
        self.opened.is_empty()
    }
}

impl Source {
    async fn open(
        storages: &Storages<'_>,
        mut wanted: Wanted,
        beside: Option<&Beside>,
        printer: &Printer,
    ) -> Result<Self, Error> {
        let mut mirrors = storages.existing_each(&wanted.locations, printer).await?;
        let location = mirrors[0].0.clone();
        let proves = wanted.expected.is_some() || beside.is_some();
        if proves && mirrors[0].1.is_directory {
            return Err(Error::new(ErrorKind::IsADirectory, "verify")
                .at(&location)
                .because("a digest is that of one file")
                .hinting("haul verify checks a directory against its manifest"));
        }
        if let Some(beside) = beside.filter(|_| wanted.expected.is_none()) {
            // Never from a mirror: its operator would choose the digest.
            let digest = beside.digest(storages, &wanted.locations[0]).await?;
            wanted.expected = Some(digest);
        }
        if wanted.locations.len() == 1 {
            let (location, opened) = mirrors.swap_remove(0);
            return Ok(Self { wanted, location, opened });
        }
        let is_proven = wanted.expected.is_some();
        let preferred = wanted.locations[0].clone();
        let opened = storages.mirrored(&preferred, mirrors, is_proven, printer);
        let opened =
            opened.ok_or_else(|| Error::new(ErrorKind::NotFound, "open").at(&preferred))?;
        // A location with a query may have no name of its own.
        let location = if preferred.split_name().is_some() { preferred } else { location };
        Ok(Self { wanted, location, opened })
    }
}

/// The plan of `haul cp`.
pub(crate) async fn copy(
    storages: &Storages<'_>,
    sources: &[Location],
    destination: &Location,
    rules: &Rules,
) -> Result<Plan, Stop> {
    copy_into(storages, sources, destination, rules, None).await
}

/// The plan of a copy of wanted sources. `into`: DEST is a directory, as it is for a list. With `beside`, those without
/// an expected digest must have one in a file next to them.
pub(crate) async fn fetch(
    storages: &Storages<'_>,
    wanted: Vec<Wanted>,
    destination: &Location,
    rules: &Rules,
    (into, beside): (bool, bool),
    printer: &Printer,
) -> Result<Plan, Stop> {
    let preferred = wanted.iter().filter_map(|one| one.locations.first());
    let name = if into { None } else { only_name(preferred) };
    let target = storages.destination(destination, name).await?;
    let sources = Sources::fetch(storages, wanted, beside, printer).await;
    let plan = assign(&sources, target, destination, rules, into.then_some(true))?;
    Ok(Plan { failures: sources.failures, ..plan })
}

/// The plan of `haul mv`: as with `mv`, a directory gets the name DEST if that does not exist. `into`: DEST is, or
/// will be, a directory that contains the sources.
pub(crate) async fn moving(
    storages: &Storages<'_>,
    sources: &[Location],
    destination: &Location,
    rules: &Rules,
    into: bool,
) -> Result<Plan, Stop> {
    copy_into(storages, sources, destination, rules, Some(into)).await
}

async fn copy_into(
    storages: &Storages<'_>,
    sources: &[Location],
    destination: &Location,
    rules: &Rules,
    into: Option<bool>,
) -> Result<Plan, Stop> {
    let target = storages.destination(destination, only_name(sources.iter())).await?;
    let sources = Sources::open(storages, sources).await;
    if rules.list().is_some() && (sources.total > 1 || sources.has_file()) {
        return Err(Stop::Usage(
            "--files-from lists paths below one SOURCE, which is a directory".to_owned(),
        ));
    }
    let plan = assign(&sources, target, destination, rules, into)?;
    Ok(Plan { failures: sources.failures, ..plan })
}

/// The plan of a copy of sources that are open already. It has no failures.
pub(crate) async fn copy_opened(
    storages: &Storages<'_>,
    sources: &Sources,
    destination: &Location,
    rules: &Rules,
) -> Result<Plan, Stop> {
    let target = storages
        .destination(destination, only_name(sources.opened.iter().map(|source| &source.location)))
        .await?;
    assign(sources, target, destination, rules, None)
}

/// Assigns each source its destination.
fn assign(
    sources: &Sources,
    target: OpenedPath,
    destination: &Location,
    rules: &Rules,
    into: Option<bool>,
) -> Result<Plan, Stop> {
    let any_directory = sources.opened.iter().any(|source| source.opened.is_directory);
    let into = into.unwrap_or_else(|| {
        sources.total > 1
            || any_directory
            || destination.has_trailing_slash()
            || target.is_directory
    });
    if into && target.exists && !target.is_directory {
        return Err(Error::new(ErrorKind::NotADirectory, "copy into").at(destination).into());
    }

    let mut jobs = Vec::new();
    let mut taken = HashSet::new();
    for Source { wanted, location, opened } in &sources.opened {
        // As with rsync, listed paths are copied with their parents below SOURCE, but without its own name.
        let name = if rules.list().is_some() { b"" } else { own_name(location, opened) };
        if !name.is_empty() && !rules.includes(name, opened.is_directory) {
            continue;
        }
        let destination_path = if let Some(name) = &wanted.name {
            target.path.join_path(&wanted.directory).join_path(name)
        } else if !into || name.is_empty() {
            target.path.join_path(&wanted.directory)
        } else {
            target.path.join_path(&wanted.directory).join(name).map_err(|error| {
                Error::new(ErrorKind::InvalidInput, "copy").at(location).because(error.to_string())
            })?
        };
        let is_named = !name.is_empty() || wanted.name.is_some();
        if is_named && !taken.insert(destination_path.clone()) {
            let at = wanted.listed_at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default();
            return Err(Stop::Usage(format!(
                "{at}{location}: another source is also copied to {}",
                target.storage.location().display(&destination_path)
            )));
        }
        jobs.push(job(opened.clone(), &target, destination_path, wanted.expected));
    }
    Ok(finish(jobs, target, into, Vec::new()))
}

/// The plan of `haul sync`: a slash at the end of SOURCE makes no difference.
pub(crate) async fn sync(
    storages: &Storages<'_>,
    source: &Location,
    destination: &Location,
) -> Result<Plan, Stop> {
    let opened = storages.existing(source).await?;
    if !opened.is_directory {
        return Err(Stop::Usage(format!("{source}: not a directory; use haul cp for a file")));
    }
    let target = storages.destination(destination, None).await?;
    if target.exists && !target.is_directory {
        return Err(Error::new(ErrorKind::NotADirectory, "sync into").at(destination).into());
    }
    let path = target.path.clone();
    let jobs = vec![job(opened, &target, path, None)];
    Ok(finish(jobs, target, true, Vec::new()))
}

/// The name of the only source; `None` if there are several, or it has no name.
fn only_name<'a>(mut sources: impl Iterator<Item = &'a Location>) -> Option<&'a [u8]> {
    let name = sources.next()?.base_name();
    (sources.next().is_none() && !name.is_empty()).then_some(name)
}

/// The name of a source at DEST; empty if only its content is copied.
fn own_name<'a>(location: &'a Location, opened: &'a OpenedPath) -> &'a [u8] {
    // `DIR/.` is DIR to the file system, but its content to a user.
    let content = location.has_trailing_slash() || location.path_bytes().ends_with(b"/.");
    if opened.is_directory && content {
        return b"";
    }
    // The response to a query has the name that the server gives it.
    let is_query = matches!(location, Location::Remote { query: Some(_), .. });
    let name = location.base_name();
    if !opened.is_directory && (is_query || name.is_empty()) { opened.path.name() } else { name }
}

fn job(
    source: OpenedPath,
    target: &OpenedPath,
    destination_path: RelPath,
    expected: Option<Digest>,
) -> Job {
    Job {
        source: source.storage,
        source_path: source.path,
        destination: Arc::clone(&target.storage),
        destination_path,
        expected,
    }
}

fn finish(jobs: Vec<Job>, target: OpenedPath, into: bool, failures: Vec<Error>) -> Plan {
    let (base, local_base) = if into {
        (target.path, target.local)
    } else {
        let above = target.local.and_then(|path| path.parent().map(PathBuf::from));
        (target.path.parent().unwrap_or_default(), above)
    };
    Plan { jobs, destination: target.storage, base, local_base, failures }
}
