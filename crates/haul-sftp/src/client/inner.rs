//! The state that a storage and its files share, and the operations on paths that both use.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use haul_storage::{
    Capabilities, Entry, EntryKind, Error, ErrorKind, LinkKind, Location, RelPath, Result, Uploads,
    Writes,
};

use super::directories::Directories;
use super::entry;
use super::error;
use super::host::SftpHost;
use crate::codec::{Attrs, Extended, Extensions, FileKind, Request, Response, StatVfs, name};

/// The state that a storage and its files share.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) host: Arc<SftpHost>,
    pub(super) directories: Directories,
    pub(super) default_mode: u32,
    pub(super) location: Location,
    pub(super) root: Bytes,
    /// One for each combination of quirks (see [`Quirks`](super::quirks::Quirks)): none, few handles, writes
    /// in order; then the same three without times.
    pub(super) capabilities: [Capabilities; 6],
    pub(super) extensions: Extensions,
    pub(super) uploads: Uploads,
}

impl Inner {
    /// The path on the server.
    pub(super) fn on_server(&self, path: &RelPath) -> Bytes {
        if path.is_root() {
            return self.root.clone();
        }
        let slash: &[u8] = if self.root.ends_with(b"/") { b"" } else { b"/" };
        [&self.root, slash, path.as_bytes()].concat().into()
    }

    /// The capabilities of the server, as far as its quirks are known now.
    pub(super) fn capabilities(&self) -> &Capabilities {
        let quirks = &self.host.quirks;
        let writes = match quirks.writes() {
            Some(Writes::InOrder) => 2,
            _ => usize::from(quirks.are_handles_few()),
        };
        &self.capabilities[writes + 3 * usize::from(self.host.attributes.has_no_times())]
    }

    /// Whether the server announces extensions that only servers over a file system have; those take writes
    /// in any order.
    pub(super) fn has_file_system(&self) -> bool {
        self.has(name::FSYNC) && self.has(name::HARDLINK)
    }

    /// Whether the server announced an extension.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.extensions.has(name)
    }

    /// Adds the location of `path` to an error.
    pub(super) fn at(&self, error: Error, path: &RelPath) -> Error {
        error.at(self.location.display(path))
    }

    /// Adds the location of the storage to an error.
    pub(super) fn at_root(&self, error: Error) -> Error {
        error.at(&self.location)
    }

    /// Checks that every ancestor of `path` is a directory and not a link.
    pub(super) async fn check_parent(&self, path: &RelPath) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        let unknown = self.directories.unknown(&parent);
        if unknown.is_empty() {
            return Ok(());
        }
        let looks = unknown.iter().map(|directory| self.host_lstat(directory));
        for (directory, attrs) in unknown.iter().zip(join_all(looks).await) {
            match attrs.map_err(|error| self.at(error, directory))?.kind() {
                Some(FileKind::Directory) => self.directories.learn(directory.clone()),
                kind => {
                    let cause = match kind {
                        Some(FileKind::Symlink) => "it is a symbolic link, which is not followed",
                        _ => "it is not a directory",
                    };
                    let error = Error::new(ErrorKind::NotADirectory, "open").because(cause);
                    return Err(self.at(error, directory));
                }
            }
        }
        Ok(())
    }

    /// Like [`Inner::look`], but also uses a fresh prefetched response.
    pub(super) async fn find(&self, path: &RelPath) -> Result<Entry> {
        let early = Request::Lstat(self.on_server(path));
        match self.host.prefetched(&early).await {
            // The target of a link takes another request.
            Some(Response::Attrs(attrs)) if attrs.kind() != Some(FileKind::Symlink) => {
                Ok(entry::entry(path.clone(), &attrs))
            }
            _ => self.look(path).await,
        }
    }

    /// Looks up the entry at `path`, including the target of a link.
    pub(super) async fn look(&self, path: &RelPath) -> Result<Entry> {
        let attrs = self.host_lstat(path).await.map_err(|error| self.at(error, path))?;
        let mut entry = entry::entry(path.clone(), &attrs);
        if let EntryKind::Symlink(target) = &mut entry.kind {
            *target = self.read_link(path).await?;
        }
        Ok(entry)
    }

    /// The target of a link.
    pub(super) async fn read_link(&self, path: &RelPath) -> Result<Vec<u8>> {
        let response =
            self.host.request_with_retries(&Request::Readlink(self.on_server(path))).await?;
        let name = error::one_name("read the link", response).map_err(|e| self.at(e, path))?;
        Ok(name.name.to_vec())
    }

    /// Sets the kind of an error that is caused by an existing entry at `path`. Version 3 reports only a
    /// failure, so this looks the entry up.
    pub(super) async fn why_not(&self, error: Error, path: &RelPath) -> Error {
        if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy) {
            return self.at(error, path);
        }
        let kind = match self.host_lstat(path).await {
            Ok(found) if found.kind() == Some(FileKind::Directory) => ErrorKind::IsADirectory,
            Ok(_) => ErrorKind::AlreadyExists,
            Err(_) => return self.at(error, path),
        };
        self.at(Error::new(kind, error.operation()).because(error.cause()), path)
    }

    /// Like [`Inner::why_not`] for operations that replace: a file at `path` is not the reason of a refusal, only a
    /// directory is.
    pub(super) async fn why_not_replaced(&self, error: Error, path: &RelPath) -> Error {
        let kind = error.kind();
        let unclear = !matches!(kind, ErrorKind::Unreachable | ErrorKind::Busy);
        let is_directory = async || {
            let found = self.host_lstat(path).await;
            found.is_ok_and(|found| found.kind() == Some(FileKind::Directory))
        };
        let kind = if unclear && is_directory().await { ErrorKind::IsADirectory } else { kind };
        if kind == error.kind() {
            return self.at(error, path);
        }
        self.at(Error::new(kind, error.operation()).because(error.cause()), path)
    }

    /// Like [`Inner::why_not`] for operations that never replace: an existing directory is `AlreadyExists`,
    /// too.
    pub(super) async fn in_the_way(&self, error: Error, path: &RelPath) -> Error {
        let error = self.why_not(error, path).await;
        if error.kind() != ErrorKind::IsADirectory {
            return error;
        }
        let kind = ErrorKind::AlreadyExists;
        self.at(Error::new(kind, error.operation()).because(error.cause()), path)
    }

    /// Turns the error of a failed write into `NoSpace` if the disk is full, for which version 3 has no
    /// status.
    pub(super) async fn explain_full(&self, error: Error, path: &RelPath) -> Error {
        let unclear = matches!(error.kind(), ErrorKind::Other);
        if unclear && self.has(name::STATVFS) && self.is_full().await.unwrap_or(false) {
            let cause = format!("no space left on the server ({})", error.cause());
            let full = Error::new(ErrorKind::NoSpace, error.operation()).because(cause);
            return self.at(full, path);
        }
        self.at(error, path)
    }

    pub(super) async fn is_full(&self) -> Result<bool> {
        let request = Request::Extended(Extended::Statvfs(self.root.clone()));
        match self.host.request_with_retries(&request).await? {
            Response::Extended(reply) => Ok(StatVfs::decode(reply)
                .is_ok_and(|fs| fs.bavail == 0 || (fs.files > 0 && fs.favail == 0))),
            other => Err(error::unexpected("read the free space", other)),
        }
    }

    pub(super) async fn host_lstat(&self, path: &RelPath) -> Result<Attrs> {
        let response =
            self.host.request_with_retries(&Request::Lstat(self.on_server(path))).await?;
        error::attrs("access", response)
    }

    pub(super) async fn is_empty(&self, path: &RelPath) -> Result<bool> {
        let open = Request::Opendir(self.on_server(path));
        let mut opening = self.host.opening(true);
        let (lane, handle) = loop {
            let lane = opening.lane().await?;
            match error::handle("list", lane.request(&open).response().await?) {
                Ok(handle) => break (lane, handle),
                Err(error) => opening.refused(&lane, error)?,
            }
        };
        opening.opened();
        let first = lane.request(&Request::Readdir(handle.clone())).response().await;
        lane.post(&Request::Close(handle));
        Ok(match first? {
            Response::Names(names) => {
                names.iter().all(|name| matches!(&name.name[..], b"." | b".."))
            }
            Response::ManyNames(_) => false,
            _ => true,
        })
    }

    pub(super) async fn make_dir(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        if path.is_root() {
            let error = Error::new(ErrorKind::AlreadyExists, "create directory");
            return Err(self.at(error.because("it was opened as a directory"), path));
        }
        self.check_parent(path).await?;
        let on_server = self.on_server(path);
        let session = self.host.session().await?;
        let attrs = Attrs { permissions: mode, ..Attrs::default() };
        let before = session.request(&Request::Lstat(on_server.clone()));
        let made = session.request(&Request::Mkdir(on_server, attrs));
        let (before, made) = (before.response().await?, made.response().await?);
        match error::done("create directory", made) {
            // Some servers report success if the directory exists.
            Ok(()) if matches!(before, Response::Attrs(_)) => {
                let error = Error::new(ErrorKind::AlreadyExists, "create directory");
                Err(self.at(error.because("it was there before"), path))
            }
            Ok(()) => {
                self.directories.made(path.clone());
                Ok(())
            }
            Err(error) if matches!(before, Response::Attrs(_)) => {
                let error = Error::new(ErrorKind::AlreadyExists, error.operation());
                Err(self.at(error.because("the name already exists"), path))
            }
            Err(error) => Err(self.in_the_way(error, path).await),
        }
    }

    pub(super) async fn try_remove(&self, path: &RelPath) -> Result<()> {
        self.check_parent(path).await?;
        let on_server = self.on_server(path);
        let attrs = self.host_lstat(path).await.map_err(|error| self.at(error, path))?;
        let is_directory = attrs.kind() == Some(FileKind::Directory);
        let request = match is_directory {
            true => Request::Rmdir(on_server),
            false => Request::Remove(on_server),
        };
        self.directories.forget(path);
        match error::done("remove", self.host.request_once(&request).await?) {
            Err(error) if is_directory && error.kind() == ErrorKind::Other => {
                let full = !self.is_empty(path).await.unwrap_or(true);
                let kind = if full { ErrorKind::NotEmpty } else { error.kind() };
                Err(self.at(Error::new(kind, "remove").because(error.cause()), path))
            }
            outcome => outcome.map_err(|error| self.at(error, path)),
        }
    }

    /// Creates a link beside `path` and renames it to `path`, which replaces an existing entry.
    pub(super) async fn replace_by_link(&self, path: &RelPath, link: &LinkKind) -> Result<()> {
        let (part, _claim) = self.brief_part_of(path).await?;
        let part = self.on_server(&part);
        if let Err(error) = self.make_link(&part, link).await {
            // An earlier run may have left an entry of that name; otherwise the link cannot be created at
            // all.
            let removed = self.host.request_once(&Request::Remove(part.clone())).await?;
            error::done("remove", removed).map_err(|_| self.at(error, path))?;
            self.make_link(&part, link).await.map_err(|error| self.at(error, path))?;
        }
        let taken = self.take_name(&part, path, true).await;
        // Renaming a hard link to another one of the same file does nothing and succeeds (rename(2)), so the
        // old name is removed. It must not stay after a failure either.
        self.host.request_once(&Request::Remove(part)).await?;
        taken
    }

    /// Whether `path` is this link, as far as that can be told: SFTP 3 reports no file IDs.
    pub(super) async fn is_link(&self, path: &RelPath, link: &LinkKind) -> bool {
        let Ok(found) = self.find(path).await else { return false };
        match link {
            LinkKind::Symbolic(target) => found.kind == EntryKind::Symlink(target.clone()),
            LinkKind::Hard(file) => self.find(file).await.is_ok_and(|file| {
                found.is_file()
                    && (found.size, found.modified, found.mode, found.owner)
                        == (file.size, file.modified, file.mode, file.owner)
            }),
        }
    }

    pub(super) async fn make_link(&self, path: &Bytes, link: &LinkKind) -> Result<()> {
        let to = path.clone();
        let request = match link {
            LinkKind::Symbolic(target) => {
                Request::Symlink { target: Bytes::copy_from_slice(target), link: to }
            }
            LinkKind::Hard(file) => {
                Request::Extended(Extended::Hardlink { from: self.on_server(file), to })
            }
        };
        error::done("make a link", self.host.request_once(&request).await?)
    }
}
