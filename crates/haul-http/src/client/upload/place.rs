//! Names of part files, and renaming them to their final names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::try_join;
use haul_storage::{
    CommitOptions, Entry, EntryKind, Error, ErrorKind, RelPath, Result, journal_name, part_name,
    remote_journal_name,
};
use http::Method;
use tokio::time::sleep;

use super::super::inner::Inner;
use super::super::request::Request;

/// Pause before the next attempt to remove a part file, if the server still processes the aborted upload.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// Most such attempts, 5 s altogether.
const BUSY_TRIES: u32 = 25;

impl Inner {
    /// The part file of `path`.
    pub(super) fn part_of(&self, path: &RelPath) -> Result<RelPath> {
        path.with_name(part_name(path.name())).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "create")
                .at(self.location.display(path))
                .because(format!("the name {error}"))
        })
    }

    /// The part file of a small file. Not the usual name, which a concurrent upload of a large file may be using, but
    /// that of a journal: journals are never stored on a server, and the name is known to belong to haul.
    pub(super) fn small_part_of(&self, path: &RelPath) -> Result<RelPath> {
        path.with_name(journal_name(path.name())).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "write")
                .at(self.location.display(path))
                .because(format!("the name {error}"))
        })
    }

    /// Sets the time of a complete part file and renames it to its final name. Its length on the server, if reported,
    /// must be `size`.
    pub(super) async fn commit_part(
        &self,
        part: &RelPath,
        path: &RelPath,
        size: u64,
        options: &CommitOptions,
    ) -> Result<()> {
        let look = self.look_by_properties(part, "commit");
        // If the server supports conditional requests, the MOVE itself detects an existing file.
        let (written, existing) = match self.quirks.conditional {
            true => (look.await?, None),
            false => try_join(look, self.look_by_properties(path, "commit")).await?,
        };
        // A server that does not report the length has at least confirmed every byte.
        let is_whole =
            written.as_ref().is_some_and(|entry| entry.known_size().unwrap_or(size) == size);
        if !is_whole {
            let length =
                written.map_or("nothing".to_owned(), |entry| format!("{} bytes", entry.size));
            // Another program may be writing to it.
            return Err(Error::new(ErrorKind::Changed, "commit")
                .at(self.location.display(path))
                .because(format!("{size} bytes were sent, and the server has {length}")));
        }
        self.rename_part(part, path, size, existing, options).await
    }

    /// Like [`Inner::commit_part`], without the check of the length: the server has confirmed the whole upload.
    /// `existing` is the entry at the final name, if known.
    pub(super) async fn rename_part(
        &self,
        part: &RelPath,
        path: &RelPath,
        size: u64,
        existing: Option<Entry>,
        options: &CommitOptions,
    ) -> Result<()> {
        if let Some(time) = options.metadata.modified {
            self.set_time(part, time).await?;
        }
        let source = Entry::new(part.clone(), EntryKind::File, size);
        let (existing, condition) = match self.replaced(path, options).await? {
            Some(replaced) => (Some(replaced.entry), replaced.condition),
            None => (existing, None),
        };
        self.move_to(&source, path, existing, options.replace, condition.as_ref()).await
    }

    /// Removes a part file, if it exists. Tries again while the server still processes an aborted upload.
    pub(super) async fn remove_part(&self, part: &RelPath) -> Result<()> {
        let mut tries = 0;
        loop {
            match self.send_change(&Request::new(Method::DELETE, self.url(part), "remove")).await {
                Err(error) if error.kind() == ErrorKind::Busy && tries < BUSY_TRIES => {
                    tries += 1;
                    sleep(BUSY_PAUSE).await;
                }
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => return Ok(()),
            }
        }
    }

    /// The local path of the journal of an upload.
    pub(super) fn journal_path(&self, path: &RelPath) -> Option<PathBuf> {
        let key = self.url(path).absolute();
        let name = remote_journal_name(key.as_bytes());
        Some(self.journals.as_ref()?.join(OsStr::from_bytes(&name)))
    }
}
