//! What a server turns out to be like without announcing it: managed servers before an object store
//! take a file's bytes in order only, some take one handle at a time.
//!
//! Writes are tried out once, before anything depends on them. That handles are few shows when one
//! is refused on a lane that is shared and given on one where nothing else is open: the file is read and written over one lane then, or, where
//! a session may have one handle whatever it is of, every file and listing gets a lane of its own.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use haul_storage::{Error, ErrorKind, Result, Writes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::host::SftpHost;
use super::session::{Room, Session};

/// Lanes of their own that small files have together.
const BRIEF: usize = 4;

/// What a small file is taken for when a lane is chosen for it.
const LIKELY: u64 = 16 << 10;

/// What is known of a server's quirks.
#[derive(Debug)]
pub(super) struct Quirks {
    writes: OnceLock<Writes>,
    lost_in_trial: AtomicBool,
    one_handle_a_file: AtomicBool,
    one_handle_a_session: AtomicBool,
    no_posix_rename: AtomicBool,
    idle: Arc<Mutex<Vec<Arc<Session>>>>,
    brief: Arc<Semaphore>,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            writes: OnceLock::new(),
            lost_in_trial: AtomicBool::new(false),
            one_handle_a_file: AtomicBool::new(false),
            one_handle_a_session: AtomicBool::new(false),
            no_posix_rename: AtomicBool::new(false),
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

/// A lane to open a file or directory on. One of its own goes back to where it came from; what was
/// opened on it has been closed by then, or is going to be before anything else reaches the server.
#[derive(Debug)]
pub(super) struct Lane {
    session: Arc<Session>,
    own: Option<Own>,
    _room: Option<Room>,
}

#[derive(Debug)]
struct Own {
    idle: Arc<Mutex<Vec<Arc<Session>>>>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Lane {
    /// Whether nobody else has it.
    pub(super) const fn is_own(&self) -> bool {
        self.own.is_some()
    }
}

impl Deref for Lane {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(own) = self.own.take()
            && !self.session.is_ended()
        {
            let mut idle = own.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(Arc::clone(&self.session));
        }
    }
}

/// Something that is being opened, on one lane or another.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    host: &'a SftpHost,
    brief: bool,
    /// Why it was refused on a lane that is shared.
    refused: Option<Error>,
}

impl Opening<'_> {
    /// The lane to try on: any, or after a refusal one on which nothing is open.
    pub(super) async fn lane(&mut self) -> Result<Lane> {
        if self.refused.is_none() && !self.host.quirks.is_one_handle_a_session() {
            let bytes = if self.brief { LIKELY } else { 0 };
            let room = self.host.choose(bytes).await?;
            let session = Arc::clone(&room);
            return Ok(Lane { session, own: None, _room: Some(room) });
        }
        let lane = self.host.own_lane(self.brief).await;
        lane.map_err(|error| self.refused.take().unwrap_or(error))
    }

    /// A lane on which it was opened ahead.
    pub(super) const fn ahead(session: Arc<Session>) -> Lane {
        Lane { session, own: None, _room: None }
    }

    /// It was opened.
    pub(super) fn opened(&self) {
        if self.refused.is_some() {
            self.host.quirks.learn_one_handle_a_session();
        }
    }

    /// It was not opened: whether it may be on another lane. If not, the first refusal is the error.
    pub(super) fn refused(&mut self, lane: &Lane, error: Error) -> Result<()> {
        if let Some(first) = self.refused.take() {
            return Err(first);
        }
        // What is not allowed is said by another status than what is too much.
        let too_many = may_be_too_many(&error) && error.kind() != ErrorKind::PermissionDenied;
        if lane.own.is_some() || !too_many {
            return Err(error);
        }
        self.refused = Some(error);
        Ok(())
    }
}

impl SftpHost {
    /// Begins to open something. `brief`: it is closed without waiting for anybody.
    pub(super) const fn opening(&self, brief: bool) -> Opening<'_> {
        Opening { host: self, brief, refused: None }
    }

    async fn own_lane(&self, brief: bool) -> Result<Lane> {
        let turn = match brief {
            // Nobody closes the semaphore.
            true => Arc::clone(&self.quirks.brief).acquire_owned().await.ok(),
            false => None,
        };
        let idle = Arc::clone(&self.quirks.idle);
        let session = loop {
            let next = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match next {
                Some(session) if session.is_ended() => {}
                Some(session) => break session,
                None => break self.lanes.open_own().await?,
            }
        };
        let own = Some(Own { idle, _turn: turn });
        Ok(Lane { session, own, _room: None })
    }
}
