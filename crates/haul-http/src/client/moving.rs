//! How MOVE and COPY are told where to (RFC 4918, 10.3), learnt from what a server takes.
//!
//! `Destination` is a URL, and some servers compare its scheme and host with what they take for their
//! own: behind a proxy that ends TLS, Apache and wsgidav refuse each (502), others say 400. They
//! take a path, or a URL with `http`. A server that refuses them all has no MOVE that can be
//! used, whatever it announces; files are then put under their names directly.
//!
//! 405 and 501 are about the method and hold for every file. Any other refusal may be about the one file:
//! that file is put under its name, and if the server takes it there, its name was not the reason, and MOVE
//! is not tried for others either.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::RelPath;
use http::StatusCode;

/// How it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The URL that was asked for.
    Url,
    /// Its path alone.
    Path,
    /// The URL as a server behind a proxy that ends TLS knows it.
    Plain,
}

/// The most files that are remembered for being refused.
const REFUSED_MOST: usize = 4096;

const FORMS: [Form; 3] = [Form::Url, Form::Path, Form::Plain];

/// What a server takes.
#[derive(Debug, Default)]
pub struct Moving {
    /// The first of the forms that may be taken.
    form: AtomicU8,
    /// Whether it is known to be.
    proven: AtomicBool,
    /// Whether none is.
    missing: AtomicBool,
    /// Files for which all forms were refused, for a reason that may be their own.
    refused: Mutex<HashSet<RelPath>>,
}

impl Moving {
    /// Whether the server moves nothing to `path`: no file at all, or not this one.
    pub fn is_refused(&self, path: &RelPath) -> bool {
        self.missing.load(Ordering::Relaxed) || self.refused().contains(path)
    }

    /// All forms were refused for `path`.
    pub fn refuses(&self, path: &RelPath, status: StatusCode) {
        if matches!(status.as_u16(), 405 | 501) {
            self.missing.store(true, Ordering::Relaxed);
            return;
        }
        let mut refused = self.refused();
        if refused.len() >= REFUSED_MOST {
            refused.clear();
        }
        refused.insert(path.clone());
    }

    /// The server has taken `path` under its name. If it refused to move it there, it moves nothing.
    pub fn is_stored(&self, path: &RelPath) {
        if self.refused().remove(path) && !self.is_proven() {
            self.missing.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a form is known to be taken.
    pub fn is_proven(&self) -> bool {
        self.proven.load(Ordering::Relaxed)
    }

    fn refused(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The forms that may be taken.
    pub fn forms(&self) -> &'static [Form] {
        let first = usize::from(self.form.load(Ordering::Relaxed));
        FORMS.get(first..).unwrap_or_default()
    }

    /// The server has taken one.
    pub fn is_taken(&self, form: Form) {
        let at = FORMS.iter().position(|known| *known == form).unwrap_or_default();
        self.form.store(u8::try_from(at).unwrap_or_default(), Ordering::Relaxed);
        self.proven.store(true, Ordering::Relaxed);
    }
}
