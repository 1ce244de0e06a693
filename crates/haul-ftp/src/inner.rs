//! State that a storage and its files share: paths on the server, and the entries at them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use haul_storage::{
    BriefClaim, Capabilities, Claim, Error, ErrorKind, Location, RelPath, Result, Timestamp,
    Uploads,
};

use crate::error::refused;
use crate::host::FtpHost;
use crate::learnt::Lesson;
use crate::server::{Server, SetTime};
use crate::wire::listing::Found;
use crate::wire::{Command, Reply, STORED_TIMES, format_time};

/// The most directories that are cached.
const REMEMBERED: usize = 4096;

/// State that a storage and its files share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) host: Arc<FtpHost>,
    pub(crate) server: Arc<Server>,
    pub(crate) location: Location,
    pub(crate) root: Vec<u8>,
    /// The server's capabilities, indexed by whether `REST` is unsupported and whether setting times is.
    pub(crate) capabilities: [[Capabilities; 2]; 2],
    pub(crate) uploads: Uploads,
    /// Paths that are known to be directories.
    pub(crate) directories: Mutex<HashSet<RelPath>>,
}

impl Inner {
    /// The absolute path on the server of a path in the storage.
    pub(crate) fn on_server(&self, path: &RelPath) -> Vec<u8> {
        if path.is_root() {
            return self.root.clone();
        }
        let slash: &[u8] = if self.root.ends_with(b"/") { b"" } else { b"/" };
        [&self.root, slash, path.as_bytes()].concat()
    }

    /// The server's capabilities, as far as they are known now.
    pub(crate) fn capabilities(&self) -> &Capabilities {
        let [rest, times] = [self.server.rest(), self.server.set_time().is_some()];
        &self.capabilities[usize::from(!rest)][usize::from(!times)]
    }

    /// Adds the location to an error.
    pub(crate) fn at(&self, error: Error, path: &RelPath) -> Error {
        error.at(self.location.display(path))
    }

    /// Claims the part file of an upload.
    pub(crate) async fn claim(&self, path: &RelPath) -> Claim {
        self.uploads.claim(self.upload_key(path)).await
    }

    /// The part file of an upload.
    pub(crate) fn part_of(&self, path: &RelPath, claim: &Claim) -> Result<RelPath> {
        self.beside(path, claim.part_name(path.name()))
    }

    /// The part file of a small file, which is reserved as long as the claim exists.
    pub(crate) async fn brief_part_of(&self, path: &RelPath) -> Result<(RelPath, BriefClaim)> {
        let claim = self.uploads.claim_brief(self.upload_key(path)).await;
        Ok((self.beside(path, claim.part_name(path.name()))?, claim))
    }

    pub(crate) fn upload_key(&self, path: &RelPath) -> Vec<u8> {
        format!("ftp {}\0{}", self.host.name(), self.on_server(path).escape_ascii()).into_bytes()
    }

    fn beside(&self, path: &RelPath, name: Vec<u8>) -> Result<RelPath> {
        self.check_new_name(path)?;
        path.with_name(name).map_err(|error| {
            let invalid = Error::new(ErrorKind::InvalidInput, "create");
            self.at(invalid.because(format!("the name {error}")), path)
        })
    }

    /// The entry at a path; `NotFound` if there is none.
    pub(crate) async fn look(&self, path: &RelPath) -> Result<Found> {
        let found = self.find(path).await?;
        found.ok_or_else(|| self.at(Error::new(ErrorKind::NotFound, "access"), path))
    }

    /// The entry at a path, if there is one.
    pub(crate) async fn find(&self, path: &RelPath) -> Result<Option<Found>> {
        let found = self.host.look(&self.on_server(path)).await;
        let found = found.map_err(|error| self.at(error, path))?;
        if found.as_ref().is_some_and(Found::is_dir) {
            self.learn_directory(path);
        }
        Ok(found)
    }

    /// Checks that `path` could be created: its parent is a directory.
    pub(crate) async fn check_parent(&self, path: &RelPath) -> Result<()> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if parent.is_root() || self.directories().contains(&parent) {
            return Ok(());
        }
        match self.find(&parent).await? {
            Some(found) if found.is_dir() => Ok(()),
            found => {
                let kind = found.map_or(ErrorKind::NotFound, |_| ErrorKind::NotADirectory);
                Err(self.at(Error::new(kind, "open"), &parent))
            }
        }
    }

    pub(crate) fn learn_directory(&self, path: &RelPath) {
        let mut directories = self.directories();
        if directories.len() >= REMEMBERED {
            directories.clear();
        }
        directories.insert(path.clone());
    }

    /// Forgets a path, and everything below it, that may no longer exist.
    pub(crate) fn forget(&self, path: &RelPath) {
        self.directories().retain(|known| !known.starts_with(path));
    }

    fn directories(&self) -> std::sync::MutexGuard<'_, HashSet<RelPath>> {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a file may get this name.
    pub(crate) fn check_new_name(&self, path: &RelPath) -> Result<()> {
        if self.server.any_names || std::str::from_utf8(path.name()).is_ok() {
            return Ok(());
        }
        let invalid = Error::new(ErrorKind::InvalidInput, "create");
        Err(self.at(invalid.because("the server's names are UTF-8, and this name is not"), path))
    }

    /// The command that sets a file's time; `None` if there is no time to set, or the server cannot set times.
    pub(crate) fn set_time(&self, path: &[u8], time: Option<Timestamp>) -> Result<Option<Command>> {
        let text = |time| format_time(STORED_TIMES.stored(time));
        let Some((how, time)) = self.server.set_time().zip(time.and_then(text)) else {
            return Ok(None);
        };
        let verb = match how {
            SetTime::Mfmt => "MFMT",
            SetTime::Mdtm => "MDTM",
        };
        Command::new(verb, [time.as_bytes(), b" ", path].concat()).map(Some)
    }

    /// Checks the reply to a command of [`Inner::set_time`]. A refusal is no error if the server does not know the
    /// command, or if setting times was only assumed to work; haul then no longer sets times.
    pub(crate) fn time_was_set(&self, reply: &Reply) -> Result<()> {
        let learnt = &self.server.learnt;
        if reply.is_done() {
            learnt.learn(Lesson::TimesWork);
            return Ok(());
        }
        let expected =
            self.server.set_time() == Some(SetTime::Mfmt) || learnt.knows(Lesson::TimesWork);
        if !expected || reply.is_unknown_command() {
            self.server.refuses_times();
            return Ok(());
        }
        Err(refused("set the time", reply))
    }

    /// Finds out why `path` could not be created or opened, if the text of the reply does not show it.
    pub(crate) async fn explain(&self, error: Error, path: &RelPath) -> Error {
        let unclear = matches!(error.kind(), ErrorKind::Other | ErrorKind::PermissionDenied);
        if !unclear {
            return self.at(error, path);
        }
        let kind = match self.find(path).await {
            Ok(Some(found)) if found.is_dir() => ErrorKind::IsADirectory,
            Ok(Some(_)) => ErrorKind::PermissionDenied,
            _ => {
                self.forget(&path.parent().unwrap_or_default());
                match self.check_parent(path).await {
                    Err(above) if above.kind() == ErrorKind::NotFound => ErrorKind::NotFound,
                    Err(above) if above.kind() == ErrorKind::NotADirectory => {
                        ErrorKind::NotADirectory
                    }
                    _ => error.kind(),
                }
            }
        };
        let explained = Error::new(kind, error.operation()).because(error.cause());
        self.at(explained.with_retry(error.retry()), path)
    }
}
