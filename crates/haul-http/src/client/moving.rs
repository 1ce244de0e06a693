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

use haul_storage::{Entry, Error, ErrorKind, RelPath, Result, Retry};
use http::{HeaderValue, StatusCode};

use super::change::MOVED;
use super::dav::{DESTINATION, OVERWRITE, method};
use super::error;
use super::exchange::Ask;
use super::storage::Inner;
use crate::parse::{Url, WebScheme};

/// How it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
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

    fn refuses(&self, path: &RelPath, status: StatusCode) {
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
        if self.refused().remove(path) && !self.proven.load(Ordering::Relaxed) {
            self.missing.store(true, Ordering::Relaxed);
        }
    }

    fn refused(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forms(&self) -> &'static [Form] {
        let first = usize::from(self.form.load(Ordering::Relaxed));
        FORMS.get(first..).unwrap_or_default()
    }

    fn is_taken(&self, form: Form) {
        let at = FORMS.iter().position(|known| *known == form).unwrap_or_default();
        self.form.store(u8::try_from(at).unwrap_or_default(), Ordering::Relaxed);
        self.proven.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    /// Whether `path` gets its name by MOVE.
    pub(super) fn moves(&self, path: &RelPath) -> bool {
        self.quirks.moves && !self.moving.is_refused(path)
    }

    /// Asks for a MOVE or COPY of `source` to `to`. `overwrite` is `T` or `F`.
    ///
    /// # Errors
    /// `Unsupported` if the server takes no form of it; [`Moving::is_refused`] is true then for MOVE.
    pub(super) async fn tell_where(
        &self,
        name: &'static str,
        source: &Entry,
        to: &RelPath,
        overwrite: &'static str,
    ) -> Result<()> {
        let operation = if name == "MOVE" { "rename" } else { "copy" };
        // nginx wants a slash behind both of them, or neither.
        let (from, target) = match source.is_dir() {
            true => (self.directory_url(&source.path), self.directory_url(to)),
            false => (self.url(&source.path), self.url(to)),
        };
        let mut refused = None;
        for form in self.moving.forms() {
            let Some(text) = written(&target, *form) else { continue };
            let destination = HeaderValue::try_from(text).map_err(|_| {
                let error = Error::new(ErrorKind::InvalidInput, operation);
                error.at(&target).because("its URL is no URL")
            })?;
            let mut ask = Ask::new(method(name), from.clone(), operation)
                .with(DESTINATION, destination)
                .with(OVERWRITE, HeaderValue::from_static(overwrite));
            ask.patience = Some(MOVED);
            let (status, url) = self.told(&ask).await?;
            if status.is_success() {
                self.moving.is_taken(*form);
                return Ok(());
            }
            let error = error::of_status(status, operation, &url);
            if self.moving.proven.load(Ordering::Relaxed) || !may_be_the_form(status) {
                return Err(error);
            }
            refused.get_or_insert((status, error));
        }
        let at = || self.location.display(to);
        let Some((status, error)) = refused else {
            return Err(Error::new(ErrorKind::Unsupported, operation).at(at()));
        };
        // A proxy whose server is away says the same of everything.
        if self.look_by_properties(&source.path, operation).await?.is_none() || name != "MOVE" {
            return Err(error.at(at()));
        }
        self.moving.refuses(to, status);
        Err(Error::new(ErrorKind::Unsupported, operation)
            .at(at())
            .because(format!("the server refuses to move files ({status})"))
            .with_retry(Retry::FromStart))
    }
}

/// A destination in one of its forms; `None` if that is the same as another one.
fn written(target: &Url, form: Form) -> Option<String> {
    match form {
        Form::Url => Some(target.absolute()),
        Form::Path => Some(target.path().to_owned()),
        Form::Plain if target.origin.scheme() == WebScheme::Https => {
            Some(target.absolute().replacen("https:", "http:", 1))
        }
        Form::Plain => None,
    }
}

/// Whether a status may be about the way in which the destination is written.
fn may_be_the_form(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 405 | 415 | 501 | 502)
}
