//! A temporary file that shows whether two locations are one directory: through a server of this machine, two
//! names of a host, a linked or mounted directory.
//!
//! A killed run leaves its markers. `sync --delete` removes those that are older than a day, on disks also those whose
//! process has ended, and `mv` those in the source directories that it removes.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::StreamExt as _;
use haul_storage::{
    CommitOptions, Error, ErrorKind, Metadata, RelPath, RelPathError, Result, Storage,
    StorageExt as _, Timestamp, temporary_name,
};

/// The names of markers: this, the process ID, the time in ns since 1970, and the end of a temporary name.
const PREFIX: &[u8] = b".haul.mark-";

/// The age from which a marker is no longer in use. Two machines may disagree about the time.
const STALE: Duration = Duration::from_secs(86_400);

/// The marker of a directory; [`Marker::remove`] removes it.
#[derive(Debug)]
pub struct Marker<'a> {
    storage: &'a dyn Storage,
    directory: &'a RelPath,
    name: Vec<u8>,
    modified: Option<Timestamp>,
}

impl<'a> Marker<'a> {
    /// Creates a marker in `directory`.
    ///
    /// # Errors
    ///
    /// Those of the lookup of `directory` and of writing. If nothing can be created in it, usually nothing can be
    /// removed from it either.
    pub async fn set(storage: &'a dyn Storage, directory: &'a RelPath) -> Result<Self> {
        let unique = format!("mark-{}-{}", std::process::id(), now().as_nanos());
        Self::named(storage, directory, temporary_name(b"haul", &unique)).await
    }

    /// Creates a marker with the name of another one.
    ///
    /// # Errors
    ///
    /// As [`Marker::set`].
    pub async fn named(
        storage: &'a dyn Storage,
        directory: &'a RelPath,
        name: Vec<u8>,
    ) -> Result<Self> {
        let modified = storage.stat(directory).await?.modified;
        let marker = Self { storage, directory, name, modified };
        let options = CommitOptions {
            metadata: Metadata::default(),
            replace: false,
            sync: false,
            expected: None,
        };
        storage.write_whole(&marker.path(directory)?, Bytes::new(), &options).await?;
        Ok(marker)
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    fn path(&self, directory: &RelPath) -> Result<RelPath> {
        directory.join(&self.name).map_err(invalid)
    }

    /// Whether it is in a directory of another storage: an empty file with its name, where a name that no file has is
    /// not found. Some sites respond to every URL with a page. (Whether the marker is still found after it was removed
    /// would show less: caches may keep it.)
    ///
    /// # Errors
    ///
    /// Those of the lookup, unless they mean that it is not there: servers may deny access to names that begin with a
    /// dot.
    pub async fn is_in(&self, storage: &dyn Storage, directory: &RelPath) -> Result<bool> {
        if !has_empty_file(storage, &self.path(directory)?).await? {
            return Ok(false);
        }
        let unused = temporary_name(b"haul", &format!("mark-{}-{}", std::process::id(), u64::MAX));
        let unused = directory.join(&unused).map_err(invalid)?;
        Ok(!has_empty_file(storage, &unused).await?)
    }

    /// Whether its directory lists it: some servers hide names that begin with a dot.
    ///
    /// # Errors
    ///
    /// Those of listing.
    pub async fn is_listed(&self) -> Result<bool> {
        let mut listing = self.storage.list(self.directory).await?;
        while let Some(batch) = listing.next().await {
            if batch?.iter().any(|entry| entry.path.name() == self.name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes it, unless another run has, and restores the directory's time where times can be set.
    ///
    /// # Errors
    ///
    /// That of removing.
    pub async fn remove(self) -> Result<()> {
        self.remove_only().await?;
        if self.modified.is_some() && self.storage.capabilities().times {
            let metadata = Metadata { modified: self.modified, ..Metadata::default() };
            // Failures are ignored: a copy of the directory then gets the time of this removal.
            drop(self.storage.set_metadata(self.directory, &metadata).await);
        }
        Ok(())
    }

    /// Like [`Marker::remove`], for a directory whose entries may have changed meanwhile: its time is not restored.
    ///
    /// # Errors
    ///
    /// That of removing.
    pub async fn remove_only(&self) -> Result<()> {
        match self.storage.remove(&self.path(self.directory)?).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether an empty file, or one of unknown size (Apache sends no length of 0), has a path.
async fn has_empty_file(storage: &dyn Storage, path: &RelPath) -> Result<bool> {
    match storage.find(path).await {
        Ok(found) => {
            Ok(found.is_some_and(|entry| entry.is_file() && entry.known_size().unwrap_or(0) == 0))
        }
        Err(error) if is_not_there(error.kind()) => Ok(false),
        Err(error) => Err(error),
    }
}

const fn is_not_there(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

fn invalid(error: RelPathError) -> Error {
    Error::new(ErrorKind::InvalidInput, "access").because(error.to_string())
}

/// Whether a name is that of a marker.
pub fn is_marker(name: &[u8]) -> bool {
    parsed(name).is_some()
}

/// Whether a name is that of a marker which a killed run has left. On a disk, its process was one of this machine.
pub fn is_stale_marker(name: &[u8], is_on_disk: bool) -> bool {
    parsed(name).is_some_and(|(process, at)| {
        now().saturating_sub(at) > STALE || is_on_disk && has_ended(process)
    })
}

/// The process that has created a marker, and when, after the start of 1970.
fn parsed(name: &[u8]) -> Option<(u32, Duration)> {
    let unique = name.strip_prefix(PREFIX)?.strip_suffix(b".haul-temp")?;
    let (process, nanos) = std::str::from_utf8(unique).ok()?.split_once('-')?;
    let nanos: u128 = nanos.parse().ok()?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some((process.parse().ok()?, Duration::from_secs(seconds)))
}

/// Whether a process has certainly ended.
fn has_ended(process: u32) -> bool {
    let exists = |process: &str| Path::new("/proc").join(process).exists();
    exists("self") && !exists(&process.to_string())
}

/// Removes the markers that killed runs have left in a directory of a disk, which this run has locked. Failures are
/// ignored: the next run tries it again.
pub async fn remove_stale_markers(storage: &dyn Storage, directory: &RelPath) {
    let Ok(mut listing) = storage.list(directory).await else { return };
    while let Some(batch) = listing.next().await {
        let entries = batch.into_iter().flatten();
        for entry in entries.filter(|entry| is_stale_marker(entry.path.name(), true)) {
            drop(storage.remove(&entry.path).await);
        }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::is_part_name;

    fn name_at(process: u32, at: Duration) -> Vec<u8> {
        temporary_name(b"haul", &format!("mark-{process}-{}", at.as_nanos()))
    }

    #[test]
    fn a_marker_is_stale_after_a_day_or_the_end_of_its_process() {
        // No process has the last number.
        let (ended, own) = (u32::MAX, std::process::id());
        let (fresh, old) = (name_at(ended, now()), name_at(own, now() - 2 * STALE));
        assert!(is_marker(&fresh) && is_part_name(&fresh) && !is_stale_marker(&fresh, false));
        assert!(is_marker(&old) && is_stale_marker(&old, false));
        assert!(!is_stale_marker(&name_at(own, now()), true));
        if cfg!(target_os = "linux") {
            assert!(is_stale_marker(&fresh, true));
        }
        for other in ["haul.mark-7-1.haul-temp", ".haul.clock.haul-temp", ".haul.mark-x.haul-temp"]
        {
            assert!(!is_marker(other.as_bytes()), "{other}");
        }
    }
}
