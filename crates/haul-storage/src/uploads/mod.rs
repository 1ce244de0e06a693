//! Part files on servers, and their journals on this machine.
//!
//! A disk locks a part file, a server does not. Two uploads to one name that wrote to the same part file would mix their
//! bytes, or one would rename the incomplete file of the other. Therefore the names of part files on servers contain
//! an ID of the uploader: this machine and the directory of its journals. It is always the same, so a later run
//! continues or replaces the part file of an earlier one. Concurrent runs of one uploader are kept apart by locks
//! beside the journals: a run that does not get the lock uses a name that occurs only once.

mod lock;
mod uploader;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;

use self::lock::{FileLock, Locked};
use self::uploader::{Reserved, Uploader};
use crate::part::{remote_journal_name, remote_lock_name, temporary_name, unique, upload_name};

/// Names the part files of a storage on a server.
#[derive(Debug)]
pub struct Uploads {
    /// The directory of the journals; without it, no upload is continued by a later run.
    journals: Option<PathBuf>,
    uploader: Arc<Uploader>,
}

impl Uploads {
    /// Uploads whose journals are in the directory `journals`, which has to exist.
    pub fn new(journals: Option<PathBuf>) -> Self {
        let uploader = Uploader::of(journals.as_deref());
        Self { journals, uploader }
    }

    /// The name of the part file of `name`, which a later run may continue (see [`Uploads::claim`]).
    pub fn part_name(&self, name: &[u8]) -> Vec<u8> {
        upload_name(name, self.uploader.id())
    }

    /// Claims a part file that is written at once and never continued. Later runs use the same one, and replace what a
    /// killed one has left. `key` identifies the file and its server.
    pub fn claim_brief(&self, key: Vec<u8>) -> BriefClaim {
        BriefClaim { reserved: Uploader::reserve(&self.uploader, key) }
    }

    /// Claims the part file of an upload. `key` identifies the file and its server.
    pub async fn claim(&self, key: Vec<u8>) -> Claim {
        let Some(journals) = self.journals.clone() else { return Claim::unique() };
        let uploader = Arc::clone(&self.uploader);
        let claimed = spawn_blocking(move || {
            let [journal, lock] = [remote_journal_name(&key), remote_lock_name(&key)]
                .map(|name| journals.join(OsStr::from_bytes(&name)));
            match FileLock::acquire(lock) {
                Locked::Yes(lock) => Claim::of(uploader, journal, Some(lock)),
                // Without locks, as on some network file systems, resuming matters more.
                Locked::Unsupported => Claim::of(uploader, journal, None),
                Locked::ByAnother => Claim::unique(),
            }
        });
        // Fails only while the runtime shuts down.
        claimed.await.unwrap_or_else(|_| Claim::unique())
    }
}

/// The part file of one upload.
#[derive(Debug)]
pub struct Claim {
    /// Without them, the name of the part file is `unique`, and it has no journal.
    recorded: Option<(Arc<Uploader>, PathBuf)>,
    unique: String,
    lock: Mutex<Option<FileLock>>,
}

impl Claim {
    fn of(uploader: Arc<Uploader>, journal: PathBuf, lock: Option<FileLock>) -> Self {
        Self { recorded: Some((uploader, journal)), unique: String::new(), lock: Mutex::new(lock) }
    }

    fn unique() -> Self {
        Self { recorded: None, unique: unique(), lock: Mutex::default() }
    }

    /// The name of the part file of `name`.
    pub fn part_name(&self, name: &[u8]) -> Vec<u8> {
        match &self.recorded {
            Some((uploader, _)) => upload_name(name, uploader.id()),
            None => upload_name(name, &self.unique),
        }
    }

    /// The path of the journal. `None` if the part file cannot be continued by a later run, which would not find it: it
    /// must be removed if the upload fails.
    pub fn journal(&self) -> Option<PathBuf> {
        self.recorded.as_ref().map(|(_, journal)| journal.clone())
    }

    /// Releases the lock, after the upload was committed or aborted. Otherwise it is released when this is dropped.
    pub fn release(&self) {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The part file of a small file.
#[derive(Debug)]
pub struct BriefClaim {
    /// `None` if this process is already writing a small file of that name.
    reserved: Option<Reserved>,
}

impl BriefClaim {
    /// The name of the part file of `name`.
    pub fn part_name(&self, name: &[u8]) -> Vec<u8> {
        match self.reserved.as_ref().and_then(Reserved::process_id) {
            Some(process) => temporary_name(name, process),
            None => temporary_name(name, &unique()),
        }
    }
}

#[cfg(test)]
mod tests;
