//! MOVE and COPY, with the destination in a form that the server accepts.

use std::time::Duration;

use haul_storage::{Entry, Error, ErrorKind, RelPath, Result, Retry};
use http::{HeaderValue, StatusCode};

use super::condition::Condition;
use super::dav::{DESTINATION, OVERWRITE, method};
use super::error;
use super::inner::Inner;
use super::moving::Form;
use super::request::Request;
use crate::parse::{Url, WebScheme};

/// Time limit of a MOVE or COPY: for a MOVE, too, the server may have to copy the file.
const MOVED: Duration = Duration::from_secs(600);

impl Inner {
    /// Whether `path` gets its name by MOVE.
    pub(super) fn moves(&self, path: &RelPath) -> bool {
        self.quirks.moves && !self.learnt.moving.is_refused(path)
    }

    /// Sends a MOVE or COPY of `source` to `to`. `overwrite` is `T` or `F`; `condition` is about the version at `to`.
    ///
    /// # Errors
    /// The server's refusal. If it refuses all forms for a MOVE and the source exists: `Unsupported`, and
    /// `moving` then refuses further MOVEs to `to`, or all.
    pub(super) async fn send_move_or_copy(
        &self,
        name: &'static str,
        source: &Entry,
        to: &RelPath,
        overwrite: &'static str,
        condition: Option<&Condition>,
    ) -> Result<()> {
        let operation = if name == "MOVE" { "rename" } else { "copy" };
        // nginx requires a slash behind both URLs, or neither.
        let (from, target) = match source.is_dir() {
            true => (self.directory_url(&source.path), self.directory_url(to)),
            false => (self.url(&source.path), self.url(to)),
        };
        let mut refused = None;
        for form in self.learnt.moving.forms() {
            let Some(text) = written(&target, *form) else { continue };
            let destination = HeaderValue::try_from(text).map_err(|_| {
                let error = Error::new(ErrorKind::InvalidInput, operation);
                error.at(&target).because("its URL cannot be sent in a header")
            })?;
            let mut request = Request::new(method(name), from.clone(), operation)
                .with(DESTINATION, destination)
                .with(OVERWRITE, HeaderValue::from_static(overwrite));
            if let Some(condition) = condition {
                request = condition.on_move(request, &target)?;
            }
            request.patience = Some(MOVED);
            let (status, url) = self.status_of_change(&request).await?;
            if status.is_success() {
                self.learnt.moving.on_accepted(*form);
                return Ok(());
            }
            let error = error::of_status(status, operation, &url);
            if self.learnt.moving.is_proven() || !may_be_the_form(status) {
                return Err(error);
            }
            refused.get_or_insert((status, error));
        }
        let at = || self.location.display(to);
        let Some((status, error)) = refused else {
            return Err(Error::new(ErrorKind::Unsupported, operation).at(at()));
        };
        // A proxy whose server is down returns the same status for everything.
        if self.look_by_properties(&source.path, operation).await?.is_none() || name != "MOVE" {
            return Err(error.at(at()));
        }
        self.learnt.moving.on_refused(to, status);
        Err(Error::new(ErrorKind::Unsupported, operation)
            .at(at())
            .because(format!("the server refuses to move files ({status})"))
            .with_retry(Retry::FromStart))
    }
}

/// A destination in one of its forms; `None` if that equals another one.
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

/// Whether a status may be caused by the form of the destination.
fn may_be_the_form(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 405 | 415 | 501 | 502)
}
