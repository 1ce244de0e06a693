//! A temporary file that shows whether two locations are one directory: through a server of this machine, two
//! names of a host, a linked or mounted directory.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::StreamExt as _;
use haul_storage::{
    CommitOptions, Error, ErrorKind, Metadata, RelPath, Result, Storage, StorageExt as _,
    Timestamp, temporary_name,
};

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
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unique = format!("{}-{}", std::process::id(), now.as_nanos());
        let name = temporary_name(b"mv", &unique);
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
