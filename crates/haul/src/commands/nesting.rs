//! Whether a directory is inside another one, which may be reachable under another location: through a server of this
//! machine, two names of a host, a linked directory. A marker in one of them is looked up through the other.

use std::path::{Path, PathBuf};

use futures_util::future::try_join_all;
use haul_engine::tree::Marker;
use haul_engine::{Filter, Job};
use haul_storage::{Error, ErrorKind, Location, RelPath, Result};

use crate::backends::Storages;
use crate::exit::Stop;

/// Fails, before anything is copied or removed, if `sync --delete` would remove its source: the destination is the
/// source, inside it, or above it and `filter` does not exclude the source. Two local paths are not compared here:
/// the engine does that.
pub(super) async fn refuse_nested(
    storages: &Storages<'_>,
    (source, destination): (&Location, &Location),
    job: &Job,
    filter: &Filter,
) -> Result<(), Stop> {
    if source.as_local().is_some() && destination.as_local().is_some() {
        return Ok(());
    }
    // Without a marker (the destination does not exist yet, or nothing can be created in it), only the engine's own
    // check remains, before it removes anything.
    let Ok(marker) = Marker::set(&*job.destination, &job.destination_path).await else {
        return Ok(());
    };
    let above = ancestors(destination);
    let found =
        tokio::try_join!(levels_up(storages, &marker, source), is_below(&marker, job, &above));
    marker.remove().await?;
    let place = match found? {
        (Some(0), _) => "the same as the source",
        (None, true) => "inside the source",
        (Some(levels), _) if removes(source, levels, filter) => {
            "a parent of the source, which --delete would remove"
        }
        _ => return Ok(()),
    };
    Err(Stop::Failed(
        Error::new(ErrorKind::InvalidInput, "sync")
            .at(source)
            .because(format!("the destination {destination} is {place}")),
    ))
}

/// How many levels above `location` the directory of a marker is: 0 if it is the directory itself. `None` if it is not
/// there, or cannot be opened.
pub(super) async fn levels_up(
    storages: &Storages<'_>,
    marker: &Marker<'_>,
    location: &Location,
) -> Result<Option<usize>> {
    let above = ancestors(location);
    let checks = above.iter().enumerate().map(async |(level, directory)| {
        match storages.existing(directory).await {
            Ok(opened) if opened.is_directory => {
                let found = marker.is_in(&*opened.storage, &opened.path).await;
                // A server may refuse everything outside of the location.
                if level == 0 { found } else { Ok(found.unwrap_or(false)) }
            }
            // What cannot be opened, or is not a directory, counts as another directory.
            _ => Ok(false),
        }
    });
    Ok(try_join_all(checks).await?.into_iter().position(|is_there| is_there))
}

/// Whether the directory of a marker is below the source of a job. `above` is the location of that directory, followed
/// by its ancestors. If its path is `/a/b/c`, the marker is looked up in `c`, `b/c` and `a/b/c` below the source.
async fn is_below(marker: &Marker<'_>, job: &Job, above: &[Location]) -> Result<bool> {
    let mut below: Vec<RelPath> = Vec::new();
    for end in 1..above.len() {
        let names = above[..end].iter().rev().map(Location::base_name);
        let path =
            names.into_iter().try_fold(job.source_path.clone(), |path, name| path.join(name));
        below.extend(path.ok());
    }
    let checks = below.iter().map(|path| marker.is_in(&*job.source, path));
    Ok(try_join_all(checks).await?.contains(&true))
}

/// Whether `--delete` in the directory `levels` above the source may remove the source: the filter excludes neither it
/// nor a directory between them.
fn removes(source: &Location, levels: usize, filter: &Filter) -> bool {
    let above = ancestors(source);
    let names: Vec<_> = above[..levels].iter().rev().map(Location::base_name).collect();
    // Excluded directories are not removed, nor what is in them.
    (1..=names.len()).all(|end| filter.takes(&names[..end].join(&b'/'), true))
}

/// A location and all above it. Links in a local one are resolved.
fn ancestors(location: &Location) -> Vec<Location> {
    let mut above = vec![match location {
        Location::Local(path) => Location::Local(nearest(path)),
        _ => location.clone(),
    }];
    while let Some((directory, _)) = above.last().and_then(Location::split_name) {
        if above.contains(&directory) {
            break;
        }
        above.push(directory);
    }
    above
}

/// The canonical path of the nearest ancestor that exists, or of `path` itself.
fn nearest(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut above = absolute.ancestors();
    above.find_map(|path| path.canonicalize().ok()).unwrap_or_else(|| PathBuf::from("/"))
}
