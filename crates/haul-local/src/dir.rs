//! Resolves a [`RelPath`] to an open directory and a name in it.
//!
//! No path leads out of the root: the directory of every path is opened beneath the root without
//! following a link, and everything else happens relative to that descriptor, with calls that do not
//! follow the last name.
//!
//! Recently used directories are cached, because many small files share a directory. A cached
//! descriptor is used for a short time only ([`CACHE_LIFETIME`]), since other programs may rename
//! directories. Directories that this storage itself removes or renames are dropped from the cache
//! at once.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, RelPath};
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::{Errno, Result};

use crate::platform::Platform;

/// Most directories in the cache. Each takes a descriptor, and 1 024 is a common limit of those.
const CACHE_SIZE: usize = 128;

/// How long a cached directory is assumed to be still at its path. Filling a directory with small
/// files takes a few milliseconds; opening it again costs 2 µs.
const CACHE_LIFETIME: Duration = Duration::from_millis(50);

/// An open directory.
pub(crate) type Directory = Arc<OwnedFd>;

/// The root and the directories below it.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Directory,
    cached: Mutex<HashMap<Vec<u8>, Cached>>,
}

#[derive(Debug)]
struct Cached {
    directory: Directory,
    opened: Instant,
    used: Instant,
}

impl Tree {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root: Arc::new(root), cached: Mutex::default() }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Runs `work` with the directory that holds `path` and the name in it (`.` for the root). If an
    /// error may mean that a cached directory is gone, runs it again with a newly opened one.
    pub(crate) fn at<T>(
        &self,
        platform: &dyn Platform,
        path: &RelPath,
        mut work: impl FnMut(&Directory, &[u8]) -> Result<T>,
    ) -> Result<T> {
        let (parent, name) = split(path);
        let (directory, fresh) = self.open(platform, parent)?;
        match work(&directory, name) {
            // In a removed directory nothing is found, and ext4 refuses to create anything (EPERM).
            Err(Errno::NOENT | Errno::PERM | Errno::STALE) if !fresh => {
                self.lock().remove(parent);
                let (directory, _) = self.open(platform, parent)?;
                work(&directory, name)
            }
            outcome => outcome,
        }
    }

    /// The directory at `path`, and whether it is certainly current: opened by this call, or the root.
    fn open(&self, platform: &dyn Platform, path: &[u8]) -> Result<(Directory, bool)> {
        if path.is_empty() {
            return Ok((Arc::clone(&self.root), true));
        }
        let now = Instant::now();
        if let Some(cached) = self.lock().get_mut(path)
            && now.duration_since(cached.opened) < CACHE_LIFETIME
        {
            cached.used = now;
            return Ok((Arc::clone(&cached.directory), false));
        }
        let directory = Arc::new(platform.open_directory(self.root(), path)?);
        let mut cached = self.lock();
        if cached.len() >= CACHE_SIZE && !cached.contains_key(path) {
            let oldest = cached.iter().min_by_key(|(_, cached)| cached.used);
            if let Some(path) = oldest.map(|(path, _)| path.clone()) {
                cached.remove(&path);
            }
        }
        let entry = Cached { directory: Arc::clone(&directory), opened: now, used: now };
        cached.insert(path.to_vec(), entry);
        Ok((directory, true))
    }

    /// Drops a directory that was removed or renamed, and all below it, from the cache.
    pub(crate) fn forget(&self, path: &RelPath) {
        let gone = path.as_bytes();
        self.lock().retain(|path, _| {
            let below = path.starts_with(gone) && matches!(path.get(gone.len()), None | Some(b'/'));
            !below && !gone.is_empty()
        });
    }

    /// If a component on the way to `path` is not a directory: names it and its kind.
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Cached>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Splits a path into directory and name; the root is `.` in itself.
fn split(path: &RelPath) -> (&[u8], &[u8]) {
    let bytes = path.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&bytes[..slash], &bytes[slash + 1..]),
        None if bytes.is_empty() => (bytes, b"."),
        None => (&[], bytes),
    }
}

/// Returns an error for the root, which an operation cannot apply to.
pub(crate) fn below_root(operation: &'static str, path: &RelPath) -> haul_storage::Result<()> {
    if path.is_root() {
        return Err(Error::new(ErrorKind::InvalidInput, operation).because("it is the root"));
    }
    Ok(())
}
