//! Names of part files, and renaming them to their final names.

use std::time::Duration;

use futures_util::future::try_join;
use haul_storage::{
    BriefClaim, Claim, CommitOptions, Entry, EntryKind, Error, ErrorKind, RelPath, Result,
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
    /// Claims the part file of an upload.
    pub(super) async fn claim(&self, path: &RelPath) -> Claim {
        self.uploads.claim(self.upload_key(path)).await
    }

    /// The part file of an upload.
    pub(super) fn part_of(&self, path: &RelPath, claim: &Claim) -> Result<RelPath> {
        self.beside(path, claim.part_name(path.name()))
    }

    /// The part file of a small file, which is reserved as long as the claim exists.
    pub(super) async fn brief_part_of(&self, path: &RelPath) -> Result<(RelPath, BriefClaim)> {
        let claim = self.uploads.claim_brief(self.upload_key(path)).await;
        Ok((self.beside(path, claim.part_name(path.name()))?, claim))
    }

    pub(in super::super) fn upload_key(&self, path: &RelPath) -> Vec<u8> {
        self.url(path).absolute().into_bytes()
    }

    fn beside(&self, path: &RelPath, name: Vec<u8>) -> Result<RelPath> {
        path.with_name(name).map_err(|refused| {
            Error::new(ErrorKind::InvalidInput, "create")
                .at(self.location.display(path))
                .because(format!("the name {refused}"))
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
        let (existing, condition) = match self.replaced(path, options.replaced()).await? {
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
}
