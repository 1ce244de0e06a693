//! Sets attributes, and remembers which ones a server refuses.
//!
//! Some servers refuse to set times or modes: sshd with `-P setstat,fsetstat`, servers of banks and business partners,
//! those in front of an object store. They return "unsupported", "permission denied" or "failure". Others report
//! success and set nothing. A copy without attributes is better than none. So on files that haul has created, each
//! refused attribute is tried on its own, and omitted with a single warning. Refused attributes are remembered for the
//! host, and in the state directory for later runs: without times, a second run must compare sizes only, from the first
//! file on.
//!
//! Set-user-ID and set-group-ID bits grant the owner's rights, so a new file gets them only together with its owner,
//! after the owner.

mod setting;

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use haul_storage::{Error, ErrorKind};

use crate::codec::Attrs;

pub(super) use setting::{
    check_times, of_new_file, request_set, set, set_mode_of_file, set_of_link, set_outcome,
    set_owner_first, settle, times_request, try_again,
};

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// Set-user-ID, set-group-ID and the sticky bit: some servers refuse these and accept the others.
const SPECIAL: u32 = 0o7000;

/// A time that is read back may differ by less than this, in seconds: FAT stores times in steps of two seconds.
const STEP: u32 = 2;

/// Receives warnings about a host.
pub type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// The attributes that a server does not set.
#[derive(Default)]
pub(super) struct Attributes {
    no_times: AtomicBool,
    no_mode: AtomicBool,
    /// The server sets attributes by path, but not by handle.
    by_path: AtomicBool,
    /// `no_times` and `no_mode` are known from an earlier run only: test them once more with the first file.
    recalled: AtomicBool,
    /// Whether a time that was set has been read back.
    seen: AtomicBool,
    /// Warnings sent so far.
    warned: Mutex<HashSet<String>>,
    warn: OnceLock<Warn>,
    /// The file that stores the refused attributes for later runs.
    record: OnceLock<PathBuf>,
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attributes")
            .field("no_times", &self.no_times)
            .field("no_mode", &self.no_mode)
            .finish_non_exhaustive()
    }
}

impl Attributes {
    /// Whether the server sets no times.
    pub(super) fn has_no_times(&self) -> bool {
        self.no_times.load(Ordering::Relaxed)
    }

    /// Whether the server sets no modes.
    pub(super) fn has_no_mode(&self) -> bool {
        self.no_mode.load(Ordering::Relaxed)
    }

    /// Removes attributes that the server is known to refuse.
    pub(super) fn limit(&self, attrs: &mut Attrs) {
        attrs.times.take_if(|_| self.has_no_times());
        attrs.permissions.take_if(|_| self.has_no_mode());
    }

    /// Reads what an earlier run has stored in the file `record`, and stores changes in it.
    pub(super) fn remember_in(&self, record: PathBuf) {
        // If the file cannot be read, nothing is known.
        let known = fs::read_to_string(&record).unwrap_or_default();
        for line in known.lines() {
            match line {
                "no times" => self.no_times.store(true, Ordering::Relaxed),
                "no modes" => self.no_mode.store(true, Ordering::Relaxed),
                _ => continue,
            }
            self.recalled.store(true, Ordering::Relaxed);
        }
        // Only the first call sets the file.
        drop(self.record.set(record));
    }

    /// Sets the receiver of warnings; each is sent once. Only the first call counts.
    pub(super) fn warn_through(&self, warn: Warn) {
        drop(self.warn.set(warn));
    }

    fn warn(&self, message: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.insert(message.to_owned())
            && let Some(warn) = self.warn.get()
        {
            warn(message);
        }
    }

    /// Sends a warning about one file.
    pub(super) fn warn_of_file(&self, message: &str) {
        if let Some(warn) = self.warn.get() {
            warn(message);
        }
    }

    /// Stores the refused attributes for later runs.
    fn store(&self) {
        let Some(record) = self.record.get() else { return };
        let mut known = String::new();
        if self.has_no_times() {
            known.push_str("no times\n");
        }
        if self.has_no_mode() {
            known.push_str("no modes\n");
        }
        // Errors are ignored: the next run finds the refusals out again with its first files.
        drop(if known.is_empty() {
            fs::remove_file(record)
        } else {
            let directory = record.parent().map_or(Ok(()), fs::create_dir_all);
            directory.and_then(|()| fs::write(record, known))
        });
    }

    /// Remembers attributes, except for the owner, that the server was found to refuse, and warns.
    fn learn(&self, refused: &[Part]) {
        if refused.is_empty() {
            return;
        }
        for part in refused {
            match part {
                Part::Owner => continue,
                Part::Mode => self.no_mode.store(true, Ordering::Relaxed),
                Part::Times => self.no_times.store(true, Ordering::Relaxed),
            }
            self.store();
        }
        let names: Vec<&str> = refused.iter().map(|part| part.name()).collect();
        let names = names.join(" and ");
        // Private modes are the safe choice: the modes at the source are not known when a file is created.
        let private = if refused.contains(&Part::Mode) {
            ", and directories and large files stay private (0700, 0600)"
        } else {
            ""
        };
        self.warn(&format!("the server does not set {names}; they are not preserved{private}"));
    }

    /// Removes the record, so that the next run sets all attributes.
    fn forget(&self) {
        if let Some(record) = self.record.get() {
            // Errors are ignored: the next run only tests again.
            drop(fs::remove_file(record));
        }
    }
}

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Owner,
    Mode,
    Times,
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owners",
            Self::Mode => "modes",
            Self::Times => "times",
        }
    }
}

/// Each attribute alone, in the order in which they are set: a change of owner clears bits of the mode.
fn parts(attrs: &Attrs) -> Vec<(Part, Attrs)> {
    let owner =
        attrs.owner.map(|owner| (Part::Owner, Attrs { owner: Some(owner), ..Attrs::default() }));
    let mode = attrs
        .permissions
        .map(|mode| (Part::Mode, Attrs { permissions: Some(mode), ..Attrs::default() }));
    let times =
        attrs.times.map(|times| (Part::Times, Attrs { times: Some(times), ..Attrs::default() }));
    [owner, mode, times].into_iter().flatten().collect()
}

/// Whether an error may mean that the server does not set attributes. For files that haul has not created, the last two
/// kinds may refer to that file only.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied | ErrorKind::Other)
}
