//! Part files on servers, and their journals on this machine.
//!
//! A disk locks a part file, a server does not. Two uploads to one name that wrote to one part file would mix their
//! bytes, or one would rename the incomplete file of the other. Therefore the names of part files on servers contain
//! an ID: a hash of the uploader (this machine and the directory of its journals) and of the file's address. It is
//! the same in every run, so a later run continues or replaces the part file of an earlier one. A file on a server that
//! is reached under two addresses has two part files. Concurrent runs of one uploader are kept apart by locks beside
//! the journals: a run that does not get the lock has an ID of its own, and no journal.

mod lock;
mod uploader;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::task::spawn_blocking;

use self::lock::{FileLock, Locked};
use self::uploader::{Reserved, Uploader};
use crate::part::{remote_journal_name, remote_lock_name, temporary_name, unique, upload_name};

/// Names the part files of a storage on a server. The address of a file, `key`, identifies the file and its server.
#[derive(Debug)]
pub struct Uploads {
    /// The directory of the journals; without it, no upload is continued by a later run.
    journals: Option<PathBuf>,
    /// Opened when it is first needed.
    uploader: Arc<OnceLock<Arc<Uploader>>>,
}

impl Uploads {
    /// Uploads whose journals are in the directory `journals`, which has to exist.
    pub fn new(journals: Option<PathBuf>) -> Self {
        Self { journals, uploader: Arc::default() }
    }

    /// The name of the part file of `name`, which a later run may continue (see [`Uploads::claim`]). Blocks: the
    /// first call may read and write files in the directory of journals.
    pub fn part_name(&self, key: &[u8], name: &[u8]) -> Vec<u8> {
        let uploader = self.uploader.get_or_init(|| Uploader::of(self.journals.as_deref()));
        upload_name(name, &uploader.id(key))
    }

    /// Whether an earlier run has left a journal of the part file. Blocks, like [`Uploads::part_name`].
    pub fn has_journal(&self, key: &[u8]) -> bool {
        let uploader = self.uploader.get_or_init(|| Uploader::of(self.journals.as_deref()));
        let journals = self.journals.as_ref().filter(|_| uploader.is_lasting());
        journals.is_some_and(|journals| journal_in(journals, &uploader.id(key)).exists())
    }

    /// Claims a part file that is written at once and never continued. Later runs use the same name if they can, and so
    /// replace what a killed run has left.
    pub async fn claim_brief(&self, key: Vec<u8>) -> BriefClaim {
        let uploader = match self.uploader.get() {
            Some(uploader) => Some(Arc::clone(uploader)),
            None => {
                let (journals, uploader) = (self.journals.clone(), Arc::clone(&self.uploader));
                let open =
                    move || Arc::clone(uploader.get_or_init(|| Uploader::of(journals.as_deref())));
                // Fails only while the runtime shuts down.
                spawn_blocking(open).await.ok()
            }
        };
        let reserved = uploader.and_then(|uploader| {
            let id = uploader.process_id(&key);
            Reserved::of(id)
        });
        BriefClaim { reserved }
    }

    /// Claims the part file of an upload.
    pub async fn claim(&self, key: Vec<u8>) -> Claim {
        let (journals, uploader) = (self.journals.clone(), Arc::clone(&self.uploader));
        let claimed = spawn_blocking(move || {
            let uploader = uploader.get_or_init(|| Uploader::of(journals.as_deref()));
            let recorded = journals.and_then(|journals| Claim::recorded(&journals, uploader, &key));
            recorded.unwrap_or_else(|| Claim::unrecorded(Reserved::of(Uploader::own_id(&key))))
        });
        // Fails only while the runtime shuts down.
        claimed.await.unwrap_or_else(|_| Claim::unrecorded(None))
    }
}

/// The part file of one upload.
#[derive(Debug)]
pub struct Claim {
    id: String,
    journal: Option<PathBuf>,
    has_journal: bool,
    /// Dropped in this order.
    held: Mutex<(Option<FileLock>, Option<Reserved>)>,
}

impl Claim {
    /// `None` if another upload has the part file, or the uploader cannot be recognised by later runs.
    fn recorded(journals: &Path, uploader: &Uploader, key: &[u8]) -> Option<Self> {
        if !uploader.is_lasting() {
            return None;
        }
        let id = uploader.id(key);
        // Also where there are no locks, two tasks of this process never have the same part file.
        let reserved = Reserved::of(id.clone())?;
        let journal = journal_in(journals, &id);
        let lock = journals.join(OsStr::from_bytes(&remote_lock_name(id.as_bytes())));
        let lock = match FileLock::acquire(lock) {
            Locked::Yes(lock) => Some(lock),
            // As on some network file systems: resuming matters more.
            Locked::Unsupported => None,
            Locked::ByAnother => return None,
        };
        let has_journal = journal.exists();
        let held = Mutex::new((lock, Some(reserved)));
        Some(Self { id, journal: Some(journal), has_journal, held })
    }

    /// A part file of this process only. Without `reserved`, its name never occurs again.
    fn unrecorded(reserved: Option<Reserved>) -> Self {
        let id = reserved.as_ref().map_or_else(unique, |reserved| reserved.id().to_owned());
        Self { id, journal: None, has_journal: false, held: Mutex::new((None, reserved)) }
    }

    /// The name of the part file of `name`.
    pub fn part_name(&self, name: &[u8]) -> Vec<u8> {
        upload_name(name, &self.id)
    }

    /// The path of the journal. `None` if the part file cannot be continued by a later run, which would not find it: it
    /// must be removed if the upload fails.
    pub fn journal(&self) -> Option<PathBuf> {
        self.journal.clone()
    }

    /// Whether an earlier run has left a journal. Without one, there is nothing to resume.
    pub const fn has_journal(&self) -> bool {
        self.has_journal
    }

    /// Releases the lock, after the upload was committed or aborted. Otherwise it is released when this is dropped.
    pub fn release(&self) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = (None, None);
    }
}

/// The part file of a small file.
#[derive(Debug)]
pub struct BriefClaim {
    /// `None` if this process is already writing a small file of that address, or the runtime shuts down.
    reserved: Option<Reserved>,
}

impl BriefClaim {
    /// The name of the part file of `name`.
    pub fn part_name(&self, name: &[u8]) -> Vec<u8> {
        match &self.reserved {
            Some(reserved) => temporary_name(name, reserved.id()),
            None => temporary_name(name, &unique()),
        }
    }
}

fn journal_in(journals: &Path, id: &str) -> PathBuf {
    journals.join(OsStr::from_bytes(&remote_journal_name(id.as_bytes())))
}

#[cfg(test)]
mod tests;
