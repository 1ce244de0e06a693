//! Twins: names of the source that the destination may take for one, such as `README` and `readme`.
//!
//! The first of such names is copied like any other. Each further one (the twin) waits until everything that
//! was planned so far is done. Then the destination shows by its listing whether it tells the names apart: if
//! so the twin is copied as well, otherwise it is an error that names both, and what the first has put there
//! stays. Device and inode numbers are of no use here: file systems in user space give one file several, and
//! hard links are several names of one.

use std::collections::{HashMap, HashSet};

use futures_util::StreamExt;
use haul_storage::{Entry, Error, ErrorKind, RelPath, Result, Storage, StorageExt, is_part_name};

use super::delete::is_same;
use super::folded::fold;
use crate::collision::Sibling;
use crate::context::Context;
use crate::job::NumberedJob;

/// All names of the source that may be the same as one of `twins`, which go into directory `destination`: of
/// the source directory `source`, and of the earlier sources that share the destination. By folded name.
///
/// # Errors
///
/// Those of listing.
pub async fn siblings(
    context: &Context,
    job: &NumberedJob,
    source: &RelPath,
    destination: &RelPath,
    twins: &[&RelPath],
) -> Result<HashMap<Vec<u8>, Vec<Sibling>>> {
    let mut found: HashMap<Vec<u8>, Vec<Sibling>> =
        twins.iter().map(|twin| (fold(twin.name()), Vec::new())).collect();
    let mut note = |storage: &dyn Storage, source: &RelPath, name: &[u8], is_dir| {
        if is_part_name(name) {
            return Ok(());
        }
        let Some(found) = found.get_mut(&fold(name)) else { return Ok(()) };
        let path = destination.join(name).map_err(invalid)?;
        if context.settings.filter.takes(job.below_destination(&path), is_dir) {
            let source = storage.location().display(source).to_string();
            found.push(Sibling { source, destination: path });
        }
        Ok(())
    };
    let mut listing = job.job.source.list(source).await?;
    while let Some(batch) = listing.next().await {
        for entry in batch? {
            note(&*job.job.source, &entry.path, entry.path.name(), entry.is_dir())?;
        }
    }
    context.destinations.earlier(job, destination, &context.settings.filter, note).await?;
    Ok(found)
}

/// Which of `siblings` the destination takes for the same as `twin`, which it has found, in a directory that lists `listed`. Both
/// are the names that are equal to that of `twin` when they are folded. `None` if it tells them apart.
///
/// # Errors
///
/// That of looking at the destination.
pub async fn collision<'a>(
    destination: &dyn Storage,
    twin: &Entry,
    siblings: &'a [Sibling],
    listed: &HashSet<RelPath>,
) -> Result<Option<&'a Sibling>> {
    for other in siblings {
        let path = &other.destination;
        let both_listed = listed.contains(&twin.path) && listed.contains(path);
        if *path == twin.path || both_listed {
            continue;
        }
        // Both are found and not both are listed: they are one. Where a server lists no such names at all,
        // what it reports of the two has to decide.
        let Some(found) = destination.find(path).await? else { continue };
        let may_be_one = !listed.is_empty() || is_same(&found, twin);
        if may_be_one && !is_another_name(destination, twin, &found, listed).await? {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// Whether something that is found, and not listed, is proved to be another entry of the directory than `twin`,
/// which is listed: of `STRASSE`, `Straße` and `strasse`, most file systems that ignore case take the first and
/// the last for one. Equal numbers are a proof, different ones are none.
async fn is_another_name(
    destination: &dyn Storage,
    twin: &Entry,
    found: &Entry,
    listed: &HashSet<RelPath>,
) -> Result<bool> {
    if !listed.contains(&twin.path) || found.id.is_none() || found.id == twin.id {
        return Ok(false);
    }
    for name in listed.iter().filter(|name| **name != twin.path) {
        if destination.find(name).await?.is_some_and(|other| other.id == found.id) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Those names of a directory of the destination that may be the same as one of `twins`, by folded name. A
/// directory that is not there has none.
///
/// # Errors
///
/// Those of listing.
pub async fn listed_like(
    destination: &dyn Storage,
    directory: &RelPath,
    twins: &[&RelPath],
) -> Result<HashMap<Vec<u8>, HashSet<RelPath>>> {
    let mut listed: HashMap<Vec<u8>, HashSet<RelPath>> =
        twins.iter().map(|twin| (fold(twin.name()), HashSet::new())).collect();
    let mut listing = match destination.list(directory).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(listed),
        listing => listing?,
    };
    while let Some(batch) = listing.next().await {
        for entry in batch? {
            if let Some(like) = listed.get_mut(&fold(entry.path.name())) {
                like.insert(entry.path);
            }
        }
    }
    Ok(listed)
}

/// The error of a twin that is not copied.
pub fn refusal(job: &NumberedJob, twin: &RelPath, sibling: &Sibling) -> Error {
    let name = RelPath::root().join(sibling.destination.name()).unwrap_or_default();
    Error::new(ErrorKind::AlreadyExists, "copy").at(job.destination_name(twin)).because(format!(
        "the destination treats this name as {name}, the copy of {}, which would be replaced",
        sibling.source
    ))
}

pub fn invalid(error: haul_storage::RelPathError) -> Error {
    Error::new(ErrorKind::InvalidInput, "copy").with_source(error)
}
