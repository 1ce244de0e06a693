//! From a part file to a file.

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

/// How long a server may take to notice that an upload was cut off.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
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

    /// Where a small file is until it is complete: not where a writer of a large one of that name may
    /// be at work. No journal is ever on a server, so the name is free, and known for what it is.
    pub(super) fn small_part_of(&self, path: &RelPath) -> Result<RelPath> {
        path.with_name(journal_name(path.name())).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "write")
                .at(self.location.display(path))
                .because(format!("the name {error}"))
        })
    }

    /// Gives a part file that is complete its time and its name. Its length, as the server says it,
    /// has to be `size`.
    pub(super) async fn place(
        &self,
        part: &RelPath,
        path: &RelPath,
        size: u64,
        options: &CommitOptions,
    ) -> Result<()> {
        let look = self.look_by_properties(part, "commit");
        // Where nothing is replaced unless that is said, it is seen soon enough that something has
        // the name.
        let (written, there) = match self.quirks.conditional {
            true => (look.await?, None),
            false => try_join(look, self.look_by_properties(path, "commit")).await?,
        };
        let length = written.map(|entry| entry.size);
        if length != Some(size) {
            let length = length.map_or("nothing".to_owned(), |length| format!("{length} bytes"));
            // Somebody else may be at it; what is there is not what was sent.
            return Err(Error::new(ErrorKind::Changed, "commit")
                .at(self.location.display(path))
                .because(format!("{size} bytes were sent, and the server has {length}")));
        }
        self.place_as(part, path, size, there, options).await
    }

    /// As [`Inner::place`] for what was just stored whole. `there` is what is known to have its name.
    pub(super) async fn place_as(
        &self,
        part: &RelPath,
        path: &RelPath,
        size: u64,
        there: Option<Entry>,
        options: &CommitOptions,
    ) -> Result<()> {
        if let Some(time) = options.metadata.modified {
            self.set_time(part, time).await?;
        }
        let source = Entry::new(part.clone(), EntryKind::File, size);
        self.move_to(&source, path, there, options.replace).await
    }

    /// Removes a part file, if it is there. A server may still be busy with an upload that was cut
    /// off.
    pub(super) async fn remove_part(&self, part: &RelPath) -> Result<()> {
        let mut tries = 0;
        loop {
            match self.tell(&Request::new(Method::DELETE, self.url(part), "remove")).await {
                Err(error) if error.kind() == ErrorKind::Busy && tries < BUSY_TRIES => {
                    tries += 1;
                    sleep(BUSY_PAUSE).await;
                }
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => return Ok(()),
            }
        }
    }

    /// Where the journal of an upload lies on this machine.
    pub(super) fn journal_path(&self, path: &RelPath) -> Option<PathBuf> {
        let key = self.url(path).absolute();
        let name = remote_journal_name(key.as_bytes());
        Some(self.journals.as_ref()?.join(OsStr::from_bytes(&name)))
    }
}
