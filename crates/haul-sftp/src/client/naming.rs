//! Renames complete files to their names.
//!
//! A rename that replaces is an extension (`posix-rename@openssh.com`). If the server does
//! not support it, RENAME is tried, which replaces on some servers. If RENAME is refused because an old
//! file exists, that is renamed aside, removed once the new file has the name, and restored if it
//! does not get it. So at each moment either the old file or the new one exists.

use std::borrow::Cow;

use bytes::Bytes;
use haul_storage::{CommitOptions, Error, ErrorKind, RelPath, Result, aside_name};

use super::attributes;
use super::error;
use super::inner::Inner;
use super::session::{Pending, Session};
use crate::codec::{Attrs, Extended, FileKind, Request, Response, Status, name};

impl Inner {
    /// Renames the complete file `from` (on the server) to `path`.
    pub(super) async fn take_name(
        &self,
        from: &Bytes,
        path: &RelPath,
        replace: bool,
    ) -> Result<()> {
        let to = self.on_server(path);
        if replace && self.rename_replaces() {
            let to = to.clone();
            let posix = Request::Extended(Extended::PosixRename { from: from.clone(), to });
            match error::done("rename", self.host.request_once(&posix).await?) {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    self.host.quirks.learn_no_posix_rename();
                }
                Err(error) => return Err(self.why_not_replaced(error, path).await),
                Ok(()) => {
                    self.directories.forget(path);
                    return Ok(());
                }
            }
        }
        let session = self.host.session().await?;
        let renamed = session.request(&rename(from, &to));
        // Needed only if the RENAME is refused; sending it along saves an RTT then.
        let existing = replace.then(|| session.request(&Request::Lstat(to.clone())));
        match (error::done("rename", renamed.response().await?), existing) {
            (Ok(()), _) => {
                if replace {
                    self.clear_aside(path).await?;
                }
            }
            (Err(error), Some(existing)) => {
                let existing = error::attrs("access", existing.response().await?);
                self.replace(from, path, existing, error).await?;
            }
            (Err(error), None) => return Err(self.why_not(error, path).await),
        }
        self.directories.forget(path);
        Ok(())
    }

    /// The options for a file that is still open. Without a mode of its own a file gets that of the file it replaces, so
    /// a private file stays private. On a server without `lsetstat` that mode is set with the others, by the handle: by
    /// path, it could reach another file through a link.
    pub(super) async fn with_old_mode<'a>(
        &self,
        path: &RelPath,
        options: &'a CommitOptions,
    ) -> Cow<'a, CommitOptions> {
        let mut options = Cow::Borrowed(options);
        if options.replace
            && options.metadata.mode.is_none()
            && !self.has(name::LSETSTAT)
            && let Some(mode) = self.old_mode(path).await
        {
            options.to_mut().metadata.mode = Some(mode);
        }
        options
    }

    /// The mode of the file at `path`, if a new file would not get it anyway.
    async fn old_mode(&self, path: &RelPath) -> Option<u32> {
        let existing = self.host_lstat(path).await;
        let file = existing.ok().filter(|attrs| attrs.kind() == Some(FileKind::File))?;
        let mode = file.permissions.map(|mode| mode & 0o777);
        mode.filter(|mode| *mode != self.default_mode && !self.host.attributes.has_no_mode())
    }

    /// Like [`Inner::take_name`] for a new file, with the mode of the file it replaces if it has none of its own and
    /// [`Inner::with_old_mode`] has not set it.
    pub(super) async fn put_in_place(
        &self,
        from: &Bytes,
        path: &RelPath,
        options: &CommitOptions,
    ) -> Result<()> {
        if options.replace && options.metadata.mode.is_none() && self.has(name::LSETSTAT) {
            self.copy_mode(path, from).await?;
        }
        self.take_name(from, path, options.replace).await
    }

    async fn copy_mode(&self, path: &RelPath, to: &Bytes) -> Result<()> {
        let Some(mode) = self.old_mode(path).await else { return Ok(()) };
        if attributes::set_mode_of_file(self, to, mode).await? {
            return Ok(());
        }
        // SETSTAT follows a link.
        let found = self.host.request_with_retries(&Request::Lstat(to.clone())).await?;
        let found = error::attrs("access", found).map_err(|error| self.at(error, path))?;
        if found.kind().is_some_and(|kind| kind != FileKind::File) {
            let error = Error::new(ErrorKind::Changed, "set the mode");
            return Err(self.at(error.because("the part file was replaced"), path));
        }
        let attrs = Attrs { permissions: Some(mode), ..Attrs::default() };
        let response = self.host.request_once(&Request::Setstat(to.clone(), attrs)).await?;
        error::done("set the mode", response).map_err(|error| self.at(error, path))
    }

    /// Queues a RENAME of the complete file `from` to `path`, behind everything else that was requested
    /// on the lane; it fails if `path` exists. `None` unless the server processes requests in order and
    /// its RENAME never replaces.
    pub(super) fn rename_behind(
        &self,
        session: &Session,
        from: &Bytes,
        path: &RelPath,
    ) -> Option<Pending> {
        let request = rename(from, &self.on_server(path));
        session.is_in_turn().then(|| session.request(&request))
    }

    /// Whether the part file of `path`, which could not be renamed, may be the only copy: nothing is
    /// found at `path`, so the old file may have been renamed aside and not been restored.
    pub(super) async fn is_only_copy(&self, path: &RelPath, replace: bool) -> bool {
        replace && !self.rename_replaces() && self.look(path).await.is_err()
    }

    /// Removes an old file of `path` that a killed run left aside, now that there is a new one. A failure is a warning.
    pub(super) async fn clear_aside(&self, path: &RelPath) -> Result<()> {
        if self.rename_replaces() {
            return Ok(());
        }
        let aside = self.aside_of(path)?;
        match self.remove_aside(&aside).await {
            // A write-only directory refuses both removal and LSTAT.
            Err(error) if self.exists(&aside).await => self.warn_left_aside(&aside, &error),
            _ => {}
        }
        Ok(())
    }

    /// Warns that an old file stays aside; the new one is complete, and has the name.
    fn warn_left_aside(&self, aside: &Bytes, error: &Error) {
        let shown = String::from_utf8_lossy(aside).escape_debug().to_string();
        let cause = error.cause();
        let message = format!("the old version of a replaced file stays as {shown} ({cause})");
        self.host.attributes.warn_of_file(&message);
    }

    /// Whether the server supports the rename that replaces a file.
    fn rename_replaces(&self) -> bool {
        self.has(name::POSIX_RENAME) && !self.host.quirks.has_no_posix_rename()
    }

    /// Replaces `existing` at `path` on a server that refuses to rename onto it.
    async fn replace(
        &self,
        from: &Bytes,
        path: &RelPath,
        existing: Result<Attrs>,
        refusal: Error,
    ) -> Result<()> {
        if matches!(refusal.kind(), ErrorKind::Unreachable | ErrorKind::Busy) {
            return Err(self.at(refusal, path));
        }
        match existing {
            // Nothing exists there.
            Err(_) => return Err(self.at(refusal, path)),
            Ok(attrs) if attrs.kind() == Some(FileKind::Directory) => {
                let error = Error::new(ErrorKind::IsADirectory, refusal.operation());
                return Err(self.at(error.because(refusal.cause()), path));
            }
            Ok(_) => {}
        }
        let to = self.on_server(path);
        let aside = self.aside_of(path)?;
        if let Err(error) = self.move_aside(&to, &aside).await? {
            let cause = format!(
                "{}; and the old file cannot be renamed: {}",
                refusal.cause(),
                error.cause()
            );
            let error = Error::new(refusal.kind(), refusal.operation()).because(cause);
            return Err(self.at(error, path));
        }
        let renamed = match self.host.request_once(&rename(from, &to)).await {
            Ok(response) => error::done("rename", response),
            // The rename may have been done before the lane was lost.
            Err(_) if self.is_missing(from).await && !self.is_missing(&to).await => Ok(()),
            Err(lost) => Err(lost),
        };
        match renamed {
            Ok(()) => {
                if let Err(error) = self.remove_aside(&aside).await {
                    self.warn_left_aside(&aside, &error);
                }
                Ok(())
            }
            Err(error) => match self.put_back(&aside, &to).await {
                Ok(()) => Err(self.at(error, path)),
                Err(why) => {
                    let cause = format!(
                        "{}; the old file is now {}, the new one {}: {}",
                        error.cause(),
                        String::from_utf8_lossy(&aside),
                        String::from_utf8_lossy(from),
                        why.cause()
                    );
                    Err(self.at(error.because(cause), path))
                }
            },
        }
    }

    /// Renames the old file aside. The inner error is a refusal, after which it still has its name.
    async fn move_aside(&self, to: &Bytes, aside: &Bytes) -> Result<Result<()>> {
        let away = rename(to, aside);
        let refused = match error::done("rename", self.host.request_once(&away).await?) {
            Ok(()) => return Ok(Ok(())),
            Err(refused) => refused,
        };
        // If there is no file any more, another machine is replacing it, and what is aside is the only old version.
        if !self.exists(to).await {
            return Ok(Err(refused));
        }
        // A file left aside by an earlier run is older than the one that has the name.
        match self.host.request_once(&Request::Remove(aside.clone())).await? {
            Response::Status { status: Status::Ok, .. } => {
                Ok(error::done("rename", self.host.request_once(&away).await?))
            }
            _ => Ok(Err(refused)),
        }
    }

    async fn put_back(&self, aside: &Bytes, to: &Bytes) -> Result<()> {
        match error::done(
            "put the old file back",
            self.host.request_with_retries(&rename(aside, to)).await?,
        ) {
            // It was renamed, but the lane was lost before the response.
            Err(_) if self.is_missing(aside).await && !self.is_missing(to).await => Ok(()),
            outcome => outcome,
        }
    }

    async fn remove_aside(&self, aside: &Bytes) -> Result<()> {
        let removed = self.host.request_with_retries(&Request::Remove(aside.clone())).await?;
        let is_gone = matches!(removed, Response::Status { status: Status::NoSuchFile, .. });
        let Err(error) = error::done("remove the old file", removed) else { return Ok(()) };
        if is_gone || self.is_missing(aside).await {
            return Ok(());
        }
        Err(error)
    }

    /// The path of the old file while the new one is renamed.
    fn aside_of(&self, path: &RelPath) -> Result<Bytes> {
        let aside = path.with_name(aside_name(path.name())).map_err(|error| {
            let invalid = Error::new(ErrorKind::InvalidInput, "replace");
            self.at(invalid.because(format!("the name {error}")), path)
        })?;
        Ok(self.on_server(&aside))
    }

    /// Whether the server reports an entry.
    async fn exists(&self, at: &Bytes) -> bool {
        matches!(
            self.host.request_with_retries(&Request::Lstat(at.clone())).await,
            Ok(Response::Attrs(_))
        )
    }

    /// Whether the server reports that nothing exists.
    async fn is_missing(&self, at: &Bytes) -> bool {
        let found = self.host.request_with_retries(&Request::Lstat(at.clone())).await;
        matches!(found, Ok(Response::Status { status: Status::NoSuchFile, .. }))
    }
}

fn rename(from: &Bytes, to: &Bytes) -> Request {
    Request::Rename { from: from.clone(), to: to.clone() }
}
