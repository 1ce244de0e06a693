//! Uploads under the final name, on a server that does not move files. What they may replace is checked before the
//! first byte, since nothing undoes it.

use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};

use haul_storage::{Error, ErrorKind, RelPath, Replaces, Result, Retry};
use http::HeaderValue;
use http::header::IF_NONE_MATCH;

use super::super::condition::Condition;
use super::super::inner::Inner;
use super::super::request::Request;
use super::whole::send;

impl Inner {
    /// What an upload may replace at `path`: anything if an earlier upload of this process has begun there, since what
    /// it has left would otherwise count as the file of another program, and would stay.
    pub(super) fn may_replace(&self, path: &RelPath, replaces: &Replaces) -> Replaces {
        match self.has_begun(path) {
            true => Replaces::Any,
            false => replaces.clone(),
        }
    }

    /// An upload under the final name begins. Returns whether none has before it.
    pub(super) fn begins(&self, path: &RelPath) -> bool {
        self.begun().insert(path.clone())
    }

    /// Whether an upload under the final name has begun, and may have left something there.
    pub(super) fn has_begun(&self, path: &RelPath) -> bool {
        self.begun().contains(path)
    }

    /// The upload of `path` has succeeded, was not sent, was refused before anything was stored, or what it had stored
    /// was removed.
    pub(super) fn leaves_nothing(&self, path: &RelPath) {
        self.begun().remove(path);
    }

    fn begun(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.learnt.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An upload under the final name has stored the whole file.
    pub(super) fn stored_directly(&self, path: &RelPath) {
        self.leaves_nothing(path);
        self.learnt.moving.on_stored(path);
    }

    /// Checks that an upload may write to `path`. Returns the condition to send, if it may replace only one version.
    ///
    /// # Errors
    /// `AlreadyExists` if it may replace nothing and something is there, and those of [`Inner::replaced`].
    pub(super) async fn check_target(
        &self,
        path: &RelPath,
        replaces: &Replaces,
        operation: &'static str,
    ) -> Result<Option<Condition>> {
        if *replaces == Replaces::Nothing
            && self.look_by_properties(path, operation).await?.is_some()
        {
            let error = Error::new(ErrorKind::AlreadyExists, operation);
            return Err(error.at(self.location.display(path)));
        }
        let replaced = self.replaced(path, replaces.version()).await?;
        Ok(replaced.and_then(|replaced| replaced.condition))
    }

    /// Sends a PUT under the final name, on condition that it replaces only what it may.
    ///
    /// # Errors
    /// As for [`Inner::check_target`], also if the target changes meanwhile and the server evaluates conditions, and
    /// those of the request.
    pub(super) async fn put_directly(
        &self,
        path: &RelPath,
        request: &Request,
        replaces: &Replaces,
    ) -> Result<()> {
        let replaces = &self.may_replace(path, replaces);
        // The PUT itself detects an existing file.
        let put_detects = self.quirks.conditional && *replaces == Replaces::Nothing;
        let condition = match put_detects {
            true => None,
            false => self.check_target(path, replaces, request.operation).await?,
        };
        let conditional = on_condition(request.clone(), replaces, condition.as_ref())?;
        let is_first = self.begins(path);
        let sent = match (send(self, &conditional).await, &condition) {
            // 412
            (Err(error), Some(condition)) if error.kind() == ErrorKind::AlreadyExists => {
                self.still_has(path, condition).await?;
                send(self, request).await
            }
            (sent, _) => sent,
        };
        match sent {
            Err(error) => {
                if is_first && (is_refusal(&error) || !request.may_have_effect()) {
                    self.leaves_nothing(path);
                }
                Err(self.why_not_written(error, path, replaces).await)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Finds out why `path` could not be written under its final name.
    pub(super) async fn why_not_written(
        &self,
        error: Error,
        path: &RelPath,
        replaces: &Replaces,
    ) -> Error {
        match replaces {
            Replaces::Nothing => self.why_not(error, path).await,
            Replaces::Any | Replaces::Version(_) => self.why_refused(error, path).await,
        }
    }

    /// Like [`Inner::why_not`], for a request that an existing file at `path` does not prevent: one that replaces it,
    /// or one for its part file.
    pub(super) async fn why_refused(&self, error: Error, path: &RelPath) -> Error {
        let (kind, retry, cause) = (error.kind(), error.retry(), error.cause());
        let found = self.why_not(error, path).await;
        if found.kind() != ErrorKind::AlreadyExists {
            return found;
        }
        match kind {
            // 412 and 409: neither a file nor its parent is the reason.
            ErrorKind::AlreadyExists | ErrorKind::NotFound => refused(&found),
            _ => Error::new(kind, found.operation())
                .at(found.location())
                .because(cause)
                .with_retry(retry),
        }
    }
}

/// A PUT under the final name, on condition that it replaces only what it may.
pub(super) fn on_condition(
    request: Request,
    replaces: &Replaces,
    condition: Option<&Condition>,
) -> Result<Request> {
    match (replaces, condition) {
        (Replaces::Nothing, _) => Ok(request.with(IF_NONE_MATCH, HeaderValue::from_static("*"))),
        (_, Some(condition)) => condition.on_put(request),
        (_, None) => Ok(request),
    }
}

/// Whether an error of a PUT is a refusal before anything is stored. The errors of a server that is busy or full, or of
/// a proxy in front of it, are not: they may come in the middle of the body.
pub(super) fn is_refusal(error: &Error) -> bool {
    match error.kind() {
        // 423, before anything is stored. 429 and 503, which may be retried, are also `Busy`.
        ErrorKind::Busy => error.retry() == Retry::Never,
        ErrorKind::AlreadyExists
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::NotFound
        | ErrorKind::Unsupported => true,
        _ => false,
    }
}

/// Turns an `AlreadyExists` into `PermissionDenied`, because it is not about the file to be written.
pub(super) fn refused(error: &Error) -> Error {
    let kind = ErrorKind::PermissionDenied;
    Error::new(kind, error.operation()).at(error.location()).because(error.cause())
}
