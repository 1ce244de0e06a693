//! Shows that a directory is the copy of a moved one, and not complete: both contain a note with the same content. A
//! rerun of `mv DIR NEW` finds that NEW exists, and continues instead of moving DIR into it.

use bytes::Bytes;
use haul_storage::{
    CommitOptions, Error, ErrorKind, Metadata, RelPath, Result, Storage, StorageExt as _,
    temporary_name, unique,
};

use crate::marker::is_marker;

/// The longest note, in bytes.
const LONGEST: u64 = 4096;

/// A directory of a storage.
pub type Place<'a> = (&'a dyn Storage, &'a RelPath);

/// A directory that is being moved, and its new one.
#[derive(Debug, Clone, Copy)]
pub struct UnfinishedMove<'a> {
    /// The directory that is moved.
    pub from: Place<'a>,
    /// The directory that takes its place.
    pub to: Place<'a>,
}

impl UnfinishedMove<'_> {
    /// Whether an earlier run began to move `from` to `to`.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn is_begun(&self) -> Result<bool> {
        match read(self.from).await? {
            Some(note) => Ok(read(self.to).await? == Some(note)),
            None => Ok(false),
        }
    }

    /// Notes that the move begins. Creates `to`, with the permission bits `mode` if it does not exist.
    ///
    /// # Errors
    /// Those of creating and writing.
    pub async fn begin(&self, mode: Option<u32>) -> Result<()> {
        let note = Bytes::from(unique().into_bytes());
        write(self.from, note.clone()).await?;
        let (storage, directory) = self.to;
        if let Some(above) = directory.parent() {
            storage.create_dir_all(&above).await?;
        }
        match storage.create_dir_as(directory, mode).await {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        write(self.to, note).await
    }

    /// Removes the note in `to`, once `from` is removed.
    ///
    /// # Errors
    /// Those of removing.
    pub async fn end(&self) -> Result<()> {
        let (storage, directory) = self.to;
        let modified = storage.stat(directory).await?.modified;
        match storage.remove(&note_in(directory)?).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        restore(self.to, Metadata { modified, ..Metadata::default() }).await;
        Ok(())
    }
}

/// Whether a name is that of a file by which haul recognises directories: it is neither copied nor moved.
pub fn is_note(name: &[u8]) -> bool {
    is_marker(name) || name == note_name()
}

fn note_name() -> Vec<u8> {
    temporary_name(b"haul", "move")
}

fn note_in(directory: &RelPath) -> Result<RelPath> {
    directory
        .join(note_name())
        .map_err(|error| Error::new(ErrorKind::InvalidInput, "access").because(error.to_string()))
}

async fn read((storage, directory): Place<'_>) -> Result<Option<Bytes>> {
    match storage.read_whole(&note_in(directory)?, LONGEST).await {
        Ok(whole) => Ok(Some(whole.bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the note. The directory keeps its time where times can be set: a copy of it gets that.
async fn write(place: Place<'_>, note: Bytes) -> Result<()> {
    let (storage, directory) = place;
    let modified = storage.stat(directory).await?.modified;
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    storage.write_whole(&note_in(directory)?, note, &options).await?;
    restore(place, Metadata { modified, ..Metadata::default() }).await;
    Ok(())
}

/// Sets the time of a directory. Failures are ignored: a copy then gets the time of the change.
async fn restore((storage, directory): Place<'_>, metadata: Metadata) {
    if metadata.modified.is_some() && storage.capabilities().times {
        drop(storage.set_metadata(directory, &metadata).await);
    }
}
