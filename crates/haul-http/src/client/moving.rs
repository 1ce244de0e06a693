//! The form of `Destination` in MOVE and COPY (RFC 4918, 10.3) that a server accepts.
//!
//! `Destination` is a URL, and some servers compare its scheme and host with their own: behind a proxy that terminates
//! TLS, Apache and wsgidav refuse every URL with `https` (502), others return 400. They accept a path, or a URL with
//! `http`. If a server refuses all forms, MOVE is not usable, whatever the server announces; files are then uploaded
//! under their final names.
//!
//! 405 and 501 refer to the method and apply to all files. Any other refusal may be specific to a file. That file is
//! then uploaded under its final name. If the server accepts that, the name was not the reason, and MOVE is not tried
//! for other files either.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::RelPath;
use http::StatusCode;

/// A form of `Destination`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The full URL.
    Url,
    /// Its path alone.
    Path,
    /// The URL with `http`, for a server behind a proxy that terminates TLS.
    Plain,
}

/// Most refused files to remember.
const MAX_REFUSED: usize = 4096;

const FORMS: [Form; 3] = [Form::Url, Form::Path, Form::Plain];

/// The forms of `Destination` that a server accepts, as far as known.
#[derive(Debug, Default)]
pub struct Moving {
    /// Index of the first form that the server may accept.
    form: AtomicU8,
    /// Whether the server is known to accept that form.
    proven: AtomicBool,
    /// Whether the server accepts no form.
    missing: AtomicBool,
    /// Files for which all forms were refused, possibly for a reason specific to the file.
    refused: Mutex<HashSet<RelPath>>,
}

impl Moving {
    /// Whether the server refuses MOVE to `path`, or to any path.
    pub fn is_refused(&self, path: &RelPath) -> bool {
        self.missing.load(Ordering::Relaxed) || self.refused().contains(path)
    }

    /// All forms were refused for `path`.
    pub fn on_refused(&self, path: &RelPath, status: StatusCode) {
        if matches!(status.as_u16(), 405 | 501) {
            self.missing.store(true, Ordering::Relaxed);
            return;
        }
        let mut refused = self.refused();
        if refused.len() >= MAX_REFUSED {
            refused.clear();
        }
        refused.insert(path.clone());
    }

    /// The server has accepted an upload to `path`. If it had refused a MOVE to it, MOVE does not work at all.
    pub fn on_stored(&self, path: &RelPath) {
        if self.refused().remove(path) && !self.is_proven() {
            self.missing.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the server is known to accept a form.
    pub fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    fn refused(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The forms that the server may accept, in the order in which to try them.
    pub fn forms(&self) -> &'static [Form] {
        let first = usize::from(self.form.load(Ordering::Relaxed));
        FORMS.get(first..).unwrap_or_default()
    }

    /// The server has accepted a form.
    pub fn on_accepted(&self, form: Form) {
        let at = FORMS.iter().position(|known| *known == form).unwrap_or_default();
        self.form.store(u8::try_from(at).unwrap_or_default(), Ordering::Relaxed);
        self.proven.store(true, Ordering::Relaxed);
    }
}
