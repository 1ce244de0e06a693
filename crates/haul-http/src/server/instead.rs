//! What is copied over something that is there already. The copy grows beside it, and takes its place
//! when all of it is there: a copy that fails leaves what was there.

use std::fmt;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::StatusCode;
use rustix::fs::{AtFlags, FileType, renameat, statat};
use rustix::io::Errno;

use super::part::{part_beside, remove_all, rename_over};
use super::paths::{is_within, trimmed};
use super::refusal;
use super::share::Share;

/// A name beside another. When nobody copies to it any longer, what has it is removed if it did not get
/// the other.
pub(super) struct Instead {
    share: Arc<Share>,
    path: Vec<u8>,
    part: Vec<u8>,
    /// Tokens of the locks around what is there, which the copy is allowed to replace.
    locks: Vec<String>,
    is_named: AtomicBool,
}

impl Instead {
    /// For what is to be at a path, around which there are these locks.
    pub(super) fn of(share: &Arc<Share>, path: &[u8], locks: Vec<String>) -> Result<Self, Errno> {
        let path = trimmed(path).to_vec();
        let name_at = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let mut part = path[..name_at].to_vec();
        part.extend_from_slice(&part_beside(&path[name_at..])?);
        let is_named = AtomicBool::new(false);
        Ok(Self { share: Arc::clone(share), path, part, locks, is_named })
    }

    /// Where that is made which is to be at a path.
    pub(super) fn place(&self, path: &[u8]) -> Vec<u8> {
        match is_within(trimmed(path), &self.path) {
            true => [&self.part, &path[self.path.len()..]].concat(),
            false => path.to_vec(),
        }
    }

    /// Puts it in its place, unless somebody has locked what is there meanwhile.
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
        match is_directory(&from, old) || is_directory(&to, new) {
            true => rename_over((from, old), (to, new)),
            // In one step.
            false => renameat(from, old, to, new),
        }
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        if *self.is_named.get_mut() {
            return;
        }
        let (share, part) = (Arc::clone(&self.share), std::mem::take(&mut self.part));
        self.share.pool.submit(move || {
            // What was never made is not there, and nobody is left who could be told of the rest.
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
