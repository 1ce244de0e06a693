//! What a server turns out to be like without announcing it: managed servers before an object store
//! take a file's bytes in order only, some take one handle at a time.
//!
//! Writes are tried out once, before anything depends on them. That handles are few shows when one
//! is refused on a lane that is shared and given on one where nothing else is open: the file is read and written over one lane then, or, where
//! a session may have one handle whatever it is of, every file and listing gets a lane of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use haul_storage::{Error, ErrorKind, Writes};
use tokio::sync::Semaphore;

use super::session::Session;

/// Lanes of their own that small files have together.
const BRIEF: usize = 4;

/// What is known of a server's quirks.
#[derive(Debug)]
pub(super) struct Quirks {
    writes: OnceLock<Writes>,
    lost_in_trial: AtomicBool,
    one_handle_a_file: AtomicBool,
    one_handle_a_session: AtomicBool,
    no_posix_rename: AtomicBool,
    /// It makes digests of files, and announces it only in later versions of the protocol.
    makes_digests: AtomicBool,
    /// Sessions that nothing is open on, for servers of one handle a session.
    pub(super) idle: Arc<Mutex<Vec<Arc<Session>>>>,
    /// Turns of what is open for a moment only, so that it leaves sessions to the rest.
    pub(super) brief: Arc<Semaphore>,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            writes: OnceLock::new(),
            lost_in_trial: AtomicBool::new(false),
            one_handle_a_file: AtomicBool::new(false),
            one_handle_a_session: AtomicBool::new(false),
            no_posix_rename: AtomicBool::new(false),
            makes_digests: AtomicBool::new(false),
            idle: Arc::default(),
            brief: Arc::new(Semaphore::new(BRIEF)),
        }
    }
}

impl Quirks {
    /// In which order it takes a file's bytes, if that is known.
    pub(super) fn writes(&self) -> Option<Writes> {
        self.writes.get().copied()
    }

    /// The first answer holds: what has begun goes on as it has begun.
    pub(super) fn learn_writes(&self, writes: Writes) {
        self.writes.get_or_init(|| writes);
    }

    /// A lane was lost while the order of writes was tried out: whether for the first time.
    pub(super) fn is_first_loss(&self) -> bool {
        !self.lost_in_trial.swap(true, Ordering::Relaxed)
    }

    /// What it says it is may tell.
    pub(super) fn learn_name(&self, identification: &str) {
        // AWS Transfer Family, before S3.
        if identification.contains("AWS_SFTP") {
            self.learn_writes(Writes::InOrder);
        }
        // ProFTPD announces check-file from version 5 on, and does it in version 3 too (seen in 1.3.8).
        if identification.contains("mod_sftp") {
            self.makes_digests.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it makes digests of files although it does not announce it.
    pub(super) fn makes_digests(&self) -> bool {
        self.makes_digests.load(Ordering::Relaxed)
    }

    /// Whether a file that is open is not to be opened once more.
    pub(super) fn are_handles_few(&self) -> bool {
        self.one_handle_a_file.load(Ordering::Relaxed) || self.is_one_handle_a_session()
    }

    pub(super) fn learn_one_handle_a_file(&self) {
        self.one_handle_a_file.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_one_handle_a_session(&self) -> bool {
        self.one_handle_a_session.load(Ordering::Relaxed)
    }

    pub(super) fn learn_one_handle_a_session(&self) {
        self.one_handle_a_session.store(true, Ordering::Relaxed);
    }

    /// Whether it refused a rename that replaces, which it announces.
    pub(super) fn has_no_posix_rename(&self) -> bool {
        self.no_posix_rename.load(Ordering::Relaxed)
    }

    pub(super) fn learn_no_posix_rename(&self) {
        self.no_posix_rename.store(true, Ordering::Relaxed);
    }
}

/// Whether an error may mean that there are too many handles. Version 3 has no word for that.
pub(super) fn may_be_too_many(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Other | ErrorKind::Unsupported | ErrorKind::Busy | ErrorKind::PermissionDenied
    )
}
