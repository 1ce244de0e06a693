//! Lists a directory in batches: names arrive in the kernel's order, and each batch is statted in
//! the order of inode numbers, since neighbouring inodes are read together from a cold disk. Only
//! one batch is in memory.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use haul_storage::{Entry, EntryStream, Error, ErrorKind, RelPath, Result, WorkPool};
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::stat::entry;
use crate::volume::Volume;

/// Entries in a batch: enough to make the switch to a disk thread negligible.
const BATCH: usize = 512;

/// A listing in progress.
struct Listing {
    volume: Arc<Volume>,
    path: RelPath,
    directory: OwnedFd,
    names: Dir,
    ended: bool,
    ready: VecDeque<Result<Vec<Entry>>>,
}

impl Volume {
    fn open_listing(self: &Arc<Self>, path: &RelPath) -> Result<Listing> {
        const OPERATION: &str = "list";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = self.tree.at(self.platform.as_ref(), path, |directory, name| {
            let directory = rustix::fs::openat(directory, name, flags, Mode::empty())?;
            let names = Dir::read_from(&directory)?;
            Ok((directory, names))
        });
        let (directory, names) = opened.map_err(|errno| {
            // Linux returns ENOTDIR for a link as well.
            let is_link = matches!(errno, Errno::NOTDIR | Errno::LOOP)
                && self
                    .stat(path)
                    .is_ok_and(|entry| matches!(entry.kind, haul_storage::EntryKind::Symlink(_)));
            if is_link {
                let cause = "is a symbolic link; not followed";
                return self.refuse(ErrorKind::NotADirectory, OPERATION, path, cause);
            }
            self.error(OPERATION, path, errno)
        })?;
        let (volume, path) = (Arc::clone(self), path.clone());
        Ok(Listing { volume, path, directory, names, ended: false, ready: VecDeque::new() })
    }
}

/// Starts a listing. Failing to open the directory is an error of this call, not of the stream.
pub(crate) async fn list(
    volume: Arc<Volume>,
    pool: WorkPool,
    path: &RelPath,
) -> Result<EntryStream> {
    let path = path.clone();
    // Most directories have fewer entries than a batch, and take one job.
    let open = move || volume.open_listing(&path).map(Listing::next_batch);
    let listing = pool.run_first(open).await?;
    let items = stream::unfold(listing, move |mut listing| {
        let pool = pool.clone();
        async move {
            loop {
                if let Some(item) = listing.ready.pop_front() {
                    return Some((item, listing));
                }
                if listing.ended {
                    return None;
                }
                listing = pool.run_first(move || listing.next_batch()).await;
            }
        }
    });
    Ok(items.boxed())
}

impl Listing {
    fn next_batch(mut self) -> Self {
        let mut names = Vec::with_capacity(BATCH);
        while names.len() < BATCH {
            match self.names.read() {
                Some(Ok(found)) => {
                    let name = found.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        names.push((found.ino(), name.to_vec()));
                    }
                }
                Some(Err(errno)) => {
                    let error = self.volume.error("list", &self.path, errno);
                    self.ready.push_back(Err(error));
                    self.ended = true;
                    break;
                }
                None => {
                    self.ended = true;
                    break;
                }
            }
        }
        names.sort_unstable();
        let mut entries = Vec::with_capacity(names.len());
        for (_, name) in names {
            match self.describe(&name) {
                Ok(Some(entry)) => entries.push(entry),
                // It vanished after the kernel listed it.
                Ok(None) => {}
                Err(error) => self.ready.push_back(Err(error)),
            }
        }
        if !entries.is_empty() {
            self.ready.push_front(Ok(entries));
        }
        self
    }

    fn describe(&self, name: &[u8]) -> Result<Option<Entry>> {
        let path = self.path.join(name).map_err(|error| {
            let cause = format!("a name in it {error}: '{}'", name.escape_ascii());
            Error::new(ErrorKind::InvalidInput, "list")
                .at(self.volume.location.display(&self.path))
                .because(cause)
        })?;
        match entry(path.clone(), &self.directory, name) {
            Ok(entry) => Ok(Some(entry)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.volume.error("stat", &path, errno)),
        }
    }
}
