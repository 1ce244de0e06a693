//! From a [`RelPath`] to an open directory and a name in it.
//!
//! This is where promise 4 is kept for local trees: the directory of every path is opened beneath
//! the root without following a link, and everything else happens relative to that descriptor with
//! calls that do not follow the last name.
//!
//! Descriptors of the directories last used are kept, because many small files share a directory.
//! A kept one is believed for a moment only ([`BELIEVED`]), since other programs may rename
//! directories; what this storage itself removes or renames is forgotten at once.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, RelPath};
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::{Errno, Result};

use crate::platform::Platform;

/// How many directories are kept open. Each costs a descriptor; 1 024 is a common limit of those.
const KEPT: usize = 128;

/// How long a kept directory is taken to still be at its path. A directory of small files is
/// filled in a few milliseconds; opening it anew costs 2 µs.
const BELIEVED: Duration = Duration::from_millis(50);

/// An open directory.
pub(crate) type Directory = Arc<OwnedFd>;

/// The root and the directories below it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Directory,
    kept: Mutex<HashMap<Vec<u8>, Kept>>,
}

#[derive(Debug)]
struct Kept {
    directory: Directory,
    opened: Instant,
    used: Instant,
}

impl Tree {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root: Arc::new(root), kept: Mutex::default() }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Does `work` with the directory that holds `path` and the name in it (`.` for the root). If a
    /// kept directory turns out to be gone, once more with a fresh one.
    pub(crate) fn at<T>(
        &self,
        platform: &dyn Platform,
        path: &RelPath,
        mut work: impl FnMut(&Directory, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let (parent, name) = split(path);
        let (directory, fresh) = self.open(platform, parent)?;
        match work(&directory, name) {
            // In a directory that was removed nothing is found, and ext4 makes nothing (EPERM).
            Err(Errno::NOENT | Errno::PERM | Errno::STALE) if !fresh => {
                self.lock().remove(parent);
                let (directory, _) = self.open(platform, parent)?;
                work(&directory, name)
            }
            outcome => outcome,
        }
    }

    /// The directory at `path`, and whether it was opened just now.
    fn open(&self, platform: &dyn Platform, path: &[u8]) -> Result<(Directory, bool)> {
        if path.is_empty() {
            return Ok((Arc::clone(&self.root), true));
        }
        let now = Instant::now();
        if let Some(kept) = self.lock().get_mut(path)
            && now.duration_since(kept.opened) < BELIEVED
        {
            kept.used = now;
            return Ok((Arc::clone(&kept.directory), false));
        }
        let directory = Arc::new(platform.open_directory(self.root(), path)?);
        let mut kept = self.lock();
        if kept.len() >= KEPT && !kept.contains_key(path) {
            let oldest = kept.iter().min_by_key(|(_, kept)| kept.used);
            if let Some(path) = oldest.map(|(path, _)| path.clone()) {
                kept.remove(&path);
            }
        }
        let entry = Kept { directory: Arc::clone(&directory), opened: now, used: now };
        kept.insert(path.to_vec(), entry);
        Ok((directory, true))
    }

    /// Forgets a directory that is removed or renamed, and all below it.
    pub(crate) fn forget(&self, path: &RelPath) {
        let gone = path.as_bytes();
        self.lock().retain(|path, _| {
            let below = path.starts_with(gone) && matches!(path.get(gone.len()), None | Some(b'/'));
            !below && !gone.is_empty()
        });
    }

    /// If something on the way to `path` is no directory: which, and what it is instead.
    pub(crate) fn obstacle(&self, platform: &dyn Platform, path: &RelPath) -> Option<String> {
        let mut above = RelPath::root();
        for name in split(path).0.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let current = above.join(name).ok()?;
            let (directory, _) = self.open(platform, above.as_bytes()).ok()?;
            let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => above = current,
                FileType::Symlink => {
                    return Some(format!("'{current}' is a symbolic link; not followed"));
                }
                _ => return Some(format!("'{current}' is not a directory")),
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Directory and name; the root is `.` in itself.
fn split(path: &RelPath) -> (&[u8], &[u8]) {
    let bytes = path.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
        None if bytes.is_empty() => (bytes, b"."),
        None => (&[], bytes),
    }
}

/// Refuses what cannot be done to the root itself.
pub(crate) fn below_root(operation: &'static str, path: &RelPath) -> haul_storage::Result<()> {
    if path.is_root() {
        return Err(Error::new(ErrorKind::InvalidInput, operation).because("it is the root"));
    }
    Ok(())
}
