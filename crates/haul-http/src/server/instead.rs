//! COPY to an existing resource. The copy is made next to it and replaces it once it is complete: a copy that fails
//! leaves the existing resource unchanged.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use rustix::fs::{AtFlags, FileType, renameat, statat};
use rustix::io::Errno;

use super::aside::{Aside, remove_all, rename_over};
use super::part::part_beside;
use super::paths::{is_within, trimmed};
use super::refusal;
use super::replacing::hold;
use super::share::Share;

/// A copy in progress, under a temporary name. Dropping it removes the copy, unless it got its final name.
pub(super) struct Instead {
    share: Arc<Share>,
    /// The final name.
    path: Vec<u8>,
    /// The temporary name.
    part: Vec<u8>,
    /// Tokens of all locks around `path` when the copy began.
    locks: Vec<String>,
    is_named: AtomicBool,
}

impl Instead {
    /// A copy to `path`; `locks` are the tokens of the locks around it (see `Locks::around`).
    pub(super) fn of(share: &Arc<Share>, path: &[u8], locks: Vec<String>) -> Result<Self, Errno> {
        let path = trimmed(path).to_vec();
        let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let mut part = path[..name_at].to_vec();
        part.extend_from_slice(&part_beside(&path[name_at..])?);
        let is_named = AtomicBool::new(false);
        Ok(Self { share: Arc::clone(share), path, part, locks, is_named })
    }

    /// The temporary path for a path at or below the final name; any other path is returned unchanged.
    pub(super) fn creation_path(&self, path: &[u8]) -> Vec<u8> {
        match is_within(trimmed(path), &self.path) {
            true => [&self.part, &path[self.path.len()..]].concat(),
            false => path.to_vec(),
        }
    }

    /// Renames the copy to its final name, unless the existing resource was locked meanwhile.
    pub(super) async fn name(self: Arc<Self>) -> Result<(), StatusCode> {
        let pool = self.share.pool.clone();
        pool.run(move || {
            if self.share.locks.are_others(&self.path, &self.locks) {
                return Err(StatusCode::LOCKED);
            }
            let named = self.rename();
            self.is_named.store(named.is_ok(), Ordering::Relaxed);
            named.map_err(refusal::of)
        })
        .await
    }

    fn rename(&self) -> Result<(), Errno> {
        let jail = &self.share.jail;
        let ((from, old), (to, new)) = (jail.parent(&self.part)?, jail.parent(&self.path)?);
        let is_directory = |directory, name: &[u8]| {
            let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        };
        // What is replaced is removed after the lock is released.
        let _open = hold(&to, new);
        let replacing = self.share.replacing.lock();
        if !is_directory(&from, old) && !is_directory(&to, new) {
            // Two files: rename atomically.
            return renameat(from, old, to, new);
        }
        let aside = rename_over((from, old), (to, new))?;
        drop(replacing);
        aside.into_iter().for_each(Aside::remove);
        Ok(())
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        if *self.is_named.get_mut() {
            return;
        }
        let (share, part) = (Arc::clone(&self.share), std::mem::take(&mut self.part));
        self.share.pool.submit(move || {
            // Errors are ignored: the copy may not exist, and no caller waits for the result.
            if let Ok((directory, name)) = share.jail.parent(&part) {
                let _ = remove_all(directory.as_fd(), name);
            }
        });
    }
}

impl fmt::Debug for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Instead")
    }
}
