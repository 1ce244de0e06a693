//! A temporary file that shows whether two locations are one directory: through a server of this machine, two
//! names of a host, a linked or mounted directory.
//!
//! A killed run leaves its markers. `sync --delete` removes those that are older than a day, and `mv` those in the
//! source directories that it removes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::StreamExt as _;
use haul_storage::{
    CommitOptions, Error, ErrorKind, Metadata, RelPath, Result, Storage, StorageExt as _,
    Timestamp, temporary_name,
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
        directory.join(&self.name).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "access").because(error.to_string())
        })
    }

    /// Whether it is in a directory of another storage.
    ///
    /// # Errors
    ///
    /// Those of the lookup.
    pub async fn is_in(&self, storage: &dyn Storage, directory: &RelPath) -> Result<bool> {
        Ok(storage.find(&self.path(directory)?).await?.is_some())
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

    /// Removes it, and restores the directory's time where times can be set.
    ///
    /// # Errors
    ///
    /// That of removing.
    pub async fn remove(self) -> Result<()> {
        self.storage.remove(&self.path(self.directory)?).await?;
        if self.modified.is_some() && self.storage.capabilities().times {
            let metadata = Metadata { modified: self.modified, ..Metadata::default() };
            // Failures are ignored: a copy of the directory then gets the time of this removal.
            drop(self.storage.set_metadata(self.directory, &metadata).await);
        }
        Ok(())
    }
}

/// Whether a name is that of a marker.
pub fn is_marker(name: &[u8]) -> bool {
    set_at(name).is_some()
}

/// Whether a name is that of a marker which a killed run has left.
pub fn is_stale_marker(name: &[u8]) -> bool {
    set_at(name).is_some_and(|at| now().saturating_sub(at) > STALE)
}

/// When a marker was created, after the start of 1970.
fn set_at(name: &[u8]) -> Option<Duration> {
    let unique = name.strip_prefix(PREFIX)?.strip_suffix(b".haul-temp")?;
    let (process, nanos) = std::str::from_utf8(unique).ok()?.split_once('-')?;
    process.parse::<u32>().ok()?;
    let nanos: u128 = nanos.parse().ok()?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::from_secs(seconds))
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::is_part_name;

    fn name_at(at: Duration) -> Vec<u8> {
        temporary_name(b"haul", &format!("mark-7-{}", at.as_nanos()))
    }

    #[test]
    fn a_marker_is_stale_after_a_day() {
        let (fresh, old) = (name_at(now()), name_at(now() - 2 * STALE));
        assert!(is_marker(&fresh) && is_part_name(&fresh) && !is_stale_marker(&fresh));
        assert!(is_marker(&old) && is_stale_marker(&old));
        for other in ["haul.mark-7-1.haul-temp", ".haul.clock.haul-temp", ".haul.mark-x.haul-temp"]
        {
            assert!(!is_marker(other.as_bytes()), "{other}");
        }
    }
}
