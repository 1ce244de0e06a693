//! Quirks that a server does not announce: managed servers in front of an object store accept the bytes of a file in
//! order only, and some allow one handle at a time.
//!
//! The order of writes is tested once, before anything depends on it. Few handles are detected when an open is refused:
//! one per file, if the file is open on another lane; one per session, if the open succeeds on a lane where nothing
//! else is open. Then a file is read and written over one lane; if the server allows only one handle per session, each
//! file and each listing gets a lane of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use haul_storage::{Error, ErrorKind, Writes};
use tokio::sync::Semaphore;

use super::session::Session;

/// Most sessions at once for handles that are open only briefly, if the server allows one handle per session.
const BRIEF: usize = 4;

/// Quirks of a server, as far as they are known.
#[derive(Debug)]
pub(super) struct Quirks {
    writes: OnceLock<Writes>,
    lost_in_trial: AtomicBool,
    one_handle_a_file: AtomicBool,
    one_handle_a_session: AtomicBool,
    no_posix_rename: AtomicBool,
    /// The server computes digests of files, but announces that only in later versions of the protocol.
    makes_digests: AtomicBool,
    /// Sessions without an open handle, for servers that allow one handle per session.
    pub(super) idle: Arc<Mutex<Vec<Arc<Session>>>>,
    /// Permits for handles that are open only briefly, so that they leave sessions for others.
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
    /// The order in which the server accepts the bytes of a file, if known.
    pub(super) fn writes(&self) -> Option<Writes> {
        self.writes.get().copied()
    }

    /// Sets the order of writes. Only the first call counts, since writes that have begun cannot change it.
    pub(super) fn learn_writes(&self, writes: Writes) {
        self.writes.get_or_init(|| writes);
    }

    /// A lane was lost while the order of writes was tested. Returns whether this is the first time.
    pub(super) fn is_first_loss(&self) -> bool {
        !self.lost_in_trial.swap(true, Ordering::Relaxed)
    }

    /// Derives quirks from the server's identification.
    pub(super) fn learn_name(&self, identification: &str) {
        // AWS Transfer Family, in front of S3.
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

    /// Whether a file must not be opened while it is open already.
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

    /// Whether the server has refused `posix-rename@openssh.com` although it announces it.
    pub(super) fn has_no_posix_rename(&self) -> bool {
        self.no_posix_rename.load(Ordering::Relaxed)
    }

    pub(super) fn learn_no_posix_rename(&self) {
        self.no_posix_rename.store(true, Ordering::Relaxed);
    }
}

/// Whether an error may mean that there are too many handles, for which SFTP version 3 has no status.
pub(super) fn may_be_too_many(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Other | ErrorKind::Unsupported | ErrorKind::Busy | ErrorKind::PermissionDenied
    )
}
