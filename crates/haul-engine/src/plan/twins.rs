//! Twins: names of the source that the destination may take for one, such as `README` and `readme`.
//!
//! The first of such names is copied like any other. Each further one (the twin) waits until everything that
//! was planned so far is done. Then the destination shows by its listing whether it tells the names apart: if
//! so the twin is copied as well, otherwise it is an error that names both, and what the first has put there
//! stays. Device and inode numbers are of no use here: file systems in user space give one file several, and
//! hard links are several names of one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures_util::StreamExt;
use haul_storage::{Entry, Error, ErrorKind, RelPath, Result, Storage, StorageExt, is_part_name};

use super::delete::is_same;
use super::directory::Directory;
use super::folded::fold;
use crate::context::Context;
use crate::job::NumberedJob;

/// An entry of the source that waits because of its name.
#[derive(Debug)]
pub struct Twin {
    /// The entry.
    pub source: Entry,
    /// Where it goes.
    pub destination: RelPath,
    /// Keeps the directory that it goes into from being finished.
    pub directory: Arc<Directory>,
}

/// Another name of the source, and where it goes.
#[derive(Debug, Clone)]
pub struct Sibling {
    /// The source, for people.
    pub source: String,
    /// Where it goes.
    pub destination: RelPath,
}

/// All names of the source that may be the same as one of `twins`, which go into directory `destination`: of
/// the source directory `source`, and of the earlier sources that share the destination.
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
) -> Result<Vec<Sibling>> {
    let wanted: HashSet<Vec<u8>> = twins.iter().map(|twin| fold(twin.name())).collect();
    let mut found = Vec::new();
    let mut note = |storage: &dyn Storage, source: &RelPath, name: &[u8], is_dir| {
        if is_part_name(name) || !wanted.contains(&fold(name)) {
            return Ok(());
        }
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

/// Which of `siblings` the destination takes for the same as `twin`, in a directory of which `listed` are
/// names. `None` if it tells them apart.
///
/// # Errors
///
/// That of looking at the destination.
pub async fn collision<'a>(
    destination: &dyn Storage,
    twin: &RelPath,
    siblings: &'a [Sibling],
    listed: &HashSet<RelPath>,
) -> Result<Option<&'a Sibling>> {
    let Some(there) = destination.find(twin).await? else { return Ok(None) };
    let folded = fold(twin.name());
    let is_like = |path: &RelPath| fold(path.name()) == folded;
    let is_shown = listed.iter().any(is_like);
    for other in siblings {
        let path = &other.destination;
        let both_listed = listed.contains(twin) && listed.contains(path);
        if path == twin || !is_like(path) || both_listed {
            continue;
        }
        // Both are found and not both are listed: they are one. Where a server lists no such names at all,
        // what it reports of the two has to decide.
        let found = destination.find(path).await?;
        if found.is_some_and(|found| is_shown || is_same(&found, &there)) {
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// Those names of a directory of the destination that may be the same as one of `twins`. A directory that is
/// not there has none.
///
/// # Errors
///
/// Those of listing.
pub async fn listed_like(
    destination: &dyn Storage,
    directory: &RelPath,
    twins: &[&RelPath],
) -> Result<HashSet<RelPath>> {
    let wanted: HashSet<Vec<u8>> = twins.iter().map(|twin| fold(twin.name())).collect();
    let mut listed = HashSet::new();
    let mut listing = match destination.list(directory).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(listed),
        listing => listing?,
    };
    while let Some(batch) = listing.next().await {
        let like = batch?.into_iter().filter(|entry| wanted.contains(&fold(entry.path.name())));
        listed.extend(like.map(|entry| entry.path));
    }
    Ok(listed)
}

/// The error of a twin that is not copied.
pub fn refusal(job: &NumberedJob, twin: &RelPath, sibling: &Sibling) -> Error {
    Error::new(ErrorKind::AlreadyExists, "copy").at(job.destination_name(twin)).because(format!(
        "the destination takes this name for {}, the name of the copy of {}, which would be replaced",
        sibling.destination.name().escape_ascii(),
        sibling.source
    ))
}

/// Twins by the directory that they go into, at most one of each folded name; the others are put back.
pub fn one_of_each(twins: &mut Vec<Twin>) -> BTreeMap<RelPath, Vec<Twin>> {
    let mut groups: BTreeMap<RelPath, Vec<Twin>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for twin in std::mem::take(twins) {
        let parent = twin.destination.parent().unwrap_or_default();
        if seen.insert((parent.clone(), fold(twin.destination.name()))) {
            groups.entry(parent).or_default().push(twin);
        } else {
            twins.push(twin);
        }
    }
    groups
}

pub fn invalid(error: haul_storage::RelPathError) -> Error {
    Error::new(ErrorKind::InvalidInput, "copy").with_source(error)
}
