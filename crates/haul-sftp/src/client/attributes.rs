//! How attributes are set, and what a server refuses of that.
//!
//! Some servers refuse to set times or modes: sshd with `-P setstat,fsetstat`, partners' and banks' servers,
//! those before an object store. They answer with "unsupported", "permission denied" or "failure". Others
//! report success and set nothing. A file whose attributes cannot be set is still the file, so on what haul has
//! made itself each attribute that is refused is tried alone, and given up with one warning. What was refused is
//! remembered for the host, and in the state directory for the next run, because without times a rerun has to
//! compare sizes only from the first file on.
//!
//! Set-user-ID and set-group-ID bits lend the owner's rights, so a new file gets them only together with its
//! owner, and after it.

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
    ask, asked, lend, look, of_new_file, see, set, set_of_link, settle, try_again,
};

/// Set-user-ID and set-group-ID.
const SET_ID: u32 = 0o6000;

/// Set-user-ID, set-group-ID and the sticky bit: some servers refuse these and take the rest.
const SPECIAL: u32 = 0o7000;

/// A time that was set may be read back this many seconds off: FAT keeps every second one.
const STEP: u32 = 2;

/// Receives warnings about a host.
pub type Warn = Box<dyn Fn(&str) + Send + Sync>;

/// What a server keeps of the attributes that it is told to set.
#[derive(Default)]
pub(super) struct Attributes {
    no_times: AtomicBool,
    no_mode: AtomicBool,
    /// It sets them by path and not by handle.
    by_path: AtomicBool,
    /// An earlier run has found that out: it is tried once more with the first file.
    recalled: AtomicBool,
    /// Whether a time that was set has been read back.
    seen: AtomicBool,
    /// What was said of it.
    warned: Mutex<HashSet<String>>,
    warn: OnceLock<Warn>,
    /// Where it is remembered.
    place: OnceLock<PathBuf>,
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

    /// Leaves out what the server is known to refuse.
    pub(super) fn limit(&self, attrs: &mut Attrs) {
        attrs.times.take_if(|_| self.has_no_times());
        attrs.permissions.take_if(|_| self.has_no_mode());
    }

    /// Reads and keeps what is known of the server in the file `place`.
    pub(super) fn remember_in(&self, place: PathBuf) {
        // Without that file nothing is known.
        let known = fs::read_to_string(&place).unwrap_or_default();
        for line in known.lines() {
            match line {
                "no times" => self.no_times.store(true, Ordering::Relaxed),
                "no modes" => self.no_mode.store(true, Ordering::Relaxed),
                _ => continue,
            }
            self.recalled.store(true, Ordering::Relaxed);
        }
        // The first place holds.
        drop(self.place.set(place));
    }

    /// Warnings go to `warn`, each once. The first receiver holds.
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

    fn keep(&self) {
        let Some(place) = self.place.get() else { return };
        let mut known = String::new();
        if self.has_no_times() {
            known.push_str("no times\n");
        }
        if self.has_no_mode() {
            known.push_str("no modes\n");
        }
        // Where it cannot be kept the next run finds it out anew, and copies a few files for it.
        drop(if known.is_empty() {
            fs::remove_file(place)
        } else {
            let directory = place.parent().map_or(Ok(()), fs::create_dir_all);
            directory.and_then(|()| fs::write(place, known))
        });
    }

    /// These are refused, and were before anything else was known of them.
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
            self.keep();
        }
        let names: Vec<&str> = refused.iter().map(|part| part.name()).collect();
        let names = names.join(" and ");
        // Private is the safe side: what they were at the source is not known when a file is created.
        let private = if refused.contains(&Part::Mode) {
            ", and directories and large files stay private (0700, 0600)"
        } else {
            ""
        };
        self.warn(&format!("the server does not set {names}; they are not preserved{private}"));
    }

    fn forget(&self) {
        if let Some(place) = self.place.get() {
            // If it stays the next run tries once more.
            drop(fs::remove_file(place));
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

/// Whether a server says so that it does not set attributes. Of a file that is not ours the last two may mean
/// that file only.
fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied | ErrorKind::Other)
}
