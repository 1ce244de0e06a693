//! Twins: names in the source that the destination may not distinguish, such as `README` and `readme`.
//!
//! The first of these names is copied as usual. Each further one (the twin) waits until everything planned so far
//! is done. A listing of the destination then shows whether it distinguishes the names. If so, the twin is copied
//! as well; otherwise an error names both, and the first copy stays. Device and inode numbers cannot decide this:
//! FUSE file systems may report several for one file, and hard links are several names with the same numbers.

use std::collections::{HashMap, HashSet};

use futures_util::StreamExt;
use haul_storage::{Entry, Error, ErrorKind, RelPath, Result, Storage, StorageExt, is_part_name};

use super::delete::is_same;
use super::folded::fold;
use crate::collision::Sibling;
use crate::context::Context;
use crate::job::NumberedJob;

/// The source entries that the destination directory `destination` may not distinguish from one of `twins`, by folded
/// name: those in the source directory `source`, and in earlier sources with the same destination.
///
/// # Errors
///
/// Those of listing the sources.
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
        if context.settings.filter.takes_in(&job.job, job.below_destination(&path), is_dir) {
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
    context.roots.destinations.earlier(job, destination, &context.settings.filter, note).await?;
    Ok(found)
}

/// The one of `siblings` that the destination does not distinguish from `twin`; `None` if it distinguishes all.
/// `twin` is an entry that was found at the destination; `listed` are the paths that its directory lists. Both lists
/// contain only names that fold to that of `twin`.
///
/// # Errors
///
/// Those of `stat` at the destination.
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
        // Both are found but not both are listed, so they are the same entry. If none of them is listed, because the
        // server hides such names, their metadata decides.
        let Some(found) = destination.find(path).await? else { continue };
        let may_be_one = !listed.is_empty() || is_same(&found, twin);
        if may_be_one && !is_another_name(destination, twin, &found, listed).await? {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// Whether `found`, which is not listed, is provably another name of a listed entry other than `twin`: of `STRASSE`,
/// `Straße` and `strasse`, most case-insensitive file systems do not distinguish the first and the last. Equal file
/// ids prove that, different ones prove nothing.
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

/// The listed paths in a directory of the destination that fold to the same name as one of `twins`, by folded name.
/// Empty if the directory does not exist.
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

/// The error for a twin that is not copied, because it would replace the copy of `sibling`.
pub fn refusal(job: &NumberedJob, twin: &RelPath, sibling: &Sibling) -> Error {
    let name = RelPath::root().join(sibling.destination.name()).unwrap_or_default();
    Error::new(ErrorKind::AlreadyExists, "copy").at(job.destination_name(twin)).because(format!(
        "the destination treats this name as {name}, the copy of {}, which would be replaced",
        sibling.source
    ))
}

/// The error for a name that is not a valid [`RelPath`].
pub fn invalid(error: haul_storage::RelPathError) -> Error {
    Error::new(ErrorKind::InvalidInput, "copy").with_source(error)
}
