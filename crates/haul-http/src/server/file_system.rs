//! The served directory as a file system for `dav-server`, within the jail. Short operations run on the
//! caller's thread, others on disk threads (see `WorkPool::run_short`), and copies on tokio's blocking threads.
//!
//! Other modules send files (`download`) and handle properties (`propfind`, `proppatch`).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use dav_server::davpath::DavPath;
use dav_server::fs::{
    DavDirEntry, DavFile, DavMetaData, FsError, FsFuture, FsStream, GuardedFileSystem, OpenOptions,
    ReadDirMeta,
};
use futures_util::stream::{self, StreamExt};
use rustix::fs::{AtFlags, Mode, mkdirat, renameat, unlinkat};
use rustix::io::{Errno, Result};
use tokio::sync::oneshot::{Receiver, channel};
use tokio::task::spawn_blocking;

use super::aside::{Aside, rename_over};
use super::described::Described;
use super::directory::{Entry, Links, Listing};
use super::instead::Instead;
use super::part::{copy, copy_link, finish, has_tag, is_link, rename_new};
use super::paths::{is_within, trimmed};
use super::refusal::fs_error;
use super::replacing::hold;
use super::share::Share;
use super::upload::{Upload, Written};

/// What the request means for the file operations; `dav-server` does not distinguish these cases.
#[derive(Debug, Clone, Default)]
pub(super) struct Intent {
    pub(super) written: Written,
    /// A file replaces a file: a MOVE is one atomic rename, with nothing removed before it.
    pub(super) replaces: bool,
    /// Any other MOVE: an existing entry at its destination is set aside first and removed at the end.
    pub(super) aside: bool,
    /// The source of a COPY. Links below it are copied as links, because following them may never end.
    pub(super) copies: Option<Arc<[u8]>>,
    /// The entity tag of the only version that a MOVE may replace or a DELETE remove.
    pub(super) only: Option<String>,
    /// `Overwrite: F`: nothing is replaced, not even an entry that appeared since the check.
    pub(super) keeps: bool,
    /// A COPY over an existing entry, which stays until the copy is complete.
    pub(super) instead: Option<Arc<Instead>>,
}

/// The served directory.
#[derive(Debug, Clone)]
pub(super) struct Files {
    share: Arc<Share>,
}

impl Intent {
    /// Whether to ignore a request of `dav-server` to remove the existing entry first.
    fn leaves(&self) -> bool {
        self.replaces || self.aside || self.instead.is_some()
    }

    /// Whether a path is below the source of a COPY.
    fn is_below_source(&self, path: &[u8]) -> bool {
        let (path, source) = (trimmed(path), self.copies.as_deref().map(trimmed));
        source.is_some_and(|source| path != source && is_within(path, source))
    }

    /// Where to create the entry for a path: under a temporary name if a COPY replaces an existing entry.
    fn creation_path(&self, path: &DavPath) -> Vec<u8> {
        let path = path.as_bytes();
        self.instead.as_ref().map_or_else(|| path.to_vec(), |instead| instead.creation_path(path))
    }
}

impl Files {
    pub(super) fn boxed(share: &Arc<Share>) -> Box<Self> {
        Box::new(Self { share: Arc::clone(share) })
    }

    /// Runs a short operation on a path, one that usually takes microseconds.
    fn run<'a, T: Send + 'static>(
        &'a self,
        path: &'a DavPath,
        work: impl FnOnce(&Share, &[u8]) -> Result<T> + Send + 'static,
    ) -> FsFuture<'a, T> {
        let (share, path) = (Arc::clone(&self.share), path.as_bytes().to_vec());
        Box::pin(async move {
            let inside = Arc::clone(&share);
            share.pool.run_short(move || work(&inside, &path)).await.map_err(fs_error)
        })
    }

    fn describe<'a>(
        &'a self,
        path: &'a DavPath,
        follow: bool,
    ) -> FsFuture<'a, Box<dyn DavMetaData>> {
        self.run(path, move |share, path| {
            // A trailing slash would make the kernel follow a link.
            let path = if follow { path } else { trimmed(path) };
            let described = Described::new(&share.jail.stat(path, follow)?);
            Ok(Box::new(described) as Box<dyn DavMetaData>)
        })
    }
}

impl GuardedFileSystem<Intent> for Files {
    fn open<'a>(
        &'a self,
        path: &'a DavPath,
        options: OpenOptions,
        intent: &'a Intent,
    ) -> FsFuture<'a, Box<dyn DavFile>> {
        let written = intent.written.clone();
        Box::pin(async move {
            let upload = Upload::open(&self.share, path.as_bytes(), options, written).await?;
            Ok(Box::new(upload) as Box<dyn DavFile>)
        })
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        meta: ReadDirMeta,
        _: &'a Intent,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        let links = if meta == ReadDirMeta::Data { Links::Follow } else { Links::Keep };
        Box::pin(async move {
            let path = path.as_bytes().to_vec();
            let listing = Listing::open(&self.share, path, links).await.map_err(fs_error)?;
            let batches = stream::unfold(Some(listing), |listing| async {
                let mut listing = listing?;
                match listing.next().await {
                    Ok(entries) if entries.is_empty() => None,
                    Ok(entries) => {
                        let boxed = |entry| Ok(Box::new(entry) as Box<dyn DavDirEntry>);
                        let entries: Vec<_> = entries.into_iter().map(boxed).collect();
                        Some((entries, Some(listing)))
                    }
                    Err(errno) => Some((vec![Err(fs_error(errno))], None)),
                }
            });
            Ok(Box::pin(batches.flat_map(stream::iter)) as FsStream<Box<dyn DavDirEntry>>)
        })
    }

    fn metadata<'a>(
        &'a self,
        path: &'a DavPath,
        intent: &'a Intent,
    ) -> FsFuture<'a, Box<dyn DavMetaData>> {
        self.describe(path, !intent.is_below_source(path.as_bytes()))
    }

    fn symlink_metadata<'a>(
        &'a self,
        path: &'a DavPath,
        _: &'a Intent,
    ) -> FsFuture<'a, Box<dyn DavMetaData>> {
        self.describe(path, false)
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath, intent: &'a Intent) -> FsFuture<'a, ()> {
        let (target, instead) = (intent.creation_path(path), intent.instead.clone());
        self.run(path, move |share, _| {
            let _until_created = instead;
            let (directory, name) = share.jail.parent(&target).map_err(|errno| match errno {
                // The served directory itself, which exists.
                Errno::BUSY => Errno::EXIST,
                Errno::NOTDIR => Errno::NOENT,
                other => other,
            })?;
            mkdirat(directory, name, Mode::from_raw_mode(0o777))
        })
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath, intent: &'a Intent) -> FsFuture<'a, ()> {
        if intent.leaves() {
            return Box::pin(async { Ok(()) });
        }
        self.run(path, |share, path| {
            let (directory, name) = share.jail.parent(path)?;
            unlinkat(directory, name, AtFlags::REMOVEDIR)
        })
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath, intent: &'a Intent) -> FsFuture<'a, ()> {
        if intent.leaves() {
            return Box::pin(async { Ok(()) });
        }
        let (share, path) = (Arc::clone(&self.share), path.as_bytes().to_vec());
        let only = intent.only.clone();
        Box::pin(async move {
            let inside = Arc::clone(&share);
            // Removing a large file frees many blocks, which may take long.
            let removed = share.pool.run(move || {
                let (directory, name) = inside.jail.parent(&path)?;
                // Open until the lock is released, so that the blocks are freed after it.
                let _open = hold(&directory, name);
                let _replacing = only.is_some().then(|| inside.replacing.lock());
                if only.is_some_and(|tag| !has_tag(&directory, name, &tag)) {
                    return Err(Errno::EXIST);
                }
                unlinkat(directory, name, AtFlags::empty())
            });
            removed.await.map_err(fs_error)
        })
    }

    fn rename<'a>(
        &'a self,
        from: &'a DavPath,
        to: &'a DavPath,
        intent: &'a Intent,
    ) -> FsFuture<'a, ()> {
        let (target, intent) = (to.as_bytes().to_vec(), intent.clone());
        let renamed = self.run(from, move |share, path| {
            let ((from, old), (to, new)) = (share.jail.parent(path)?, share.jail.parent(&target)?);
            finish((&from, old), (&to, new), intent.keeps)?;
            let open = hold(&to, new);
            let replacing = share.replacing.lock();
            if intent.only.as_ref().is_some_and(|tag| !has_tag(&to, new, tag)) {
                return Err(Errno::EXIST);
            }
            let aside = match intent {
                Intent { keeps: true, .. } => rename_new((from, old), (to, new)).map(|()| None),
                Intent { aside: true, .. } => rename_over((from, old), (to, new)),
                _ => renameat(from, old, to, new).map(|()| None),
            };
            drop(replacing);
            Ok(remove(share, open, aside?))
        });
        Box::pin(async move {
            if let Some(removed) = renamed.await? {
                // The channel is closed without a message if the job panicked. The entry was replaced all the same.
                drop(removed.await);
            }
            Ok(())
        })
    }

    fn copy<'a>(
        &'a self,
        from: &'a DavPath,
        to: &'a DavPath,
        intent: &'a Intent,
    ) -> FsFuture<'a, ()> {
        let (keeps, is_below) = (intent.keeps, intent.is_below_source(from.as_bytes()));
        let (from, to) = (from.as_bytes().to_vec(), intent.creation_path(to));
        let instead = intent.instead.clone();
        let share = Arc::clone(&self.share);
        Box::pin(async move {
            // A copy may take long, and must not occupy a disk thread that other requests need.
            let copied = spawn_blocking(move || {
                let _until_copied = instead;
                match is_below && is_link(&share.jail, &from)? {
                    true => copy_link(&share, &from, &to, keeps),
                    false => copy(&share, &from, &to, keeps),
                }
            });
            let copied = copied.await;
            copied.map_err(|_| FsError::GeneralFailure)?.map_err(fs_error)
        })
    }
}

/// Removes a replaced entry on a disk thread: `open` may be a large file whose blocks are freed when it is closed,
/// `aside` a directory with many entries. Returns what to wait for.
fn remove(share: &Share, open: Option<OwnedFd>, aside: Option<Aside>) -> Option<Receiver<()>> {
    if open.is_none() && aside.is_none() {
        return None;
    }
    let (done, removed) = channel();
    share.pool.submit(move || {
        drop(open);
        aside.into_iter().for_each(Aside::remove);
        // The request may have been cancelled.
        let _ = done.send(());
    });
    Some(removed)
}

impl DavDirEntry for Entry {
    fn name(&self) -> Vec<u8> {
        self.name.clone()
    }

    fn metadata(&'_ self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let described = self.described.clone();
        Box::pin(async move { Ok(Box::new(described) as Box<dyn DavMetaData>) })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::pin::pin;
    use std::sync::mpsc;
    use std::time::Duration;

    use futures_util::poll;

    use super::*;

    fn share(directory: &Path) -> Arc<Share> {
        Arc::new(Share::open(directory, false).unwrap())
    }

    fn path(path: &str) -> DavPath {
        DavPath::new(path).unwrap()
    }

    /// Formerly, all other replacements of all servers of the process waited until the old tree was removed.
    #[tokio::test]
    async fn the_lock_of_replacements_is_free_while_an_old_tree_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["new", "old"] {
            fs::create_dir(directory.path().join(name)).unwrap();
            fs::write(directory.path().join(name).join(name), "").unwrap();
        }
        let share = share(directory.path());
        // All disk threads are busy, so that the removal has to wait.
        let busy: Vec<_> = (0..16)
            .map(|_| {
                let (free, wait) = mpsc::channel::<()>();
                share.pool.submit(move || assert!(wait.recv().is_err()));
                free
            })
            .collect();
        let (files, intent) = (Files::boxed(&share), Intent { aside: true, ..Intent::default() });
        let (new, old) = (path("/new"), path("/old"));
        let mut renamed = pin!(files.rename(&new, &old, &intent));
        assert!(poll!(&mut renamed).is_pending());
        assert!(directory.path().join("old/new").exists());
        drop(share.replacing.lock());
        drop(busy);
        renamed.await.unwrap();
        let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["old"]);
    }

    /// Formerly, a COPY could replace a file between the comparison of its version and its replacement.
    #[tokio::test]
    #[expect(clippy::await_holding_lock, reason = "another request waits for it, or does not")]
    async fn a_copy_replaces_nothing_while_another_request_replaces_a_version() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("file"), "old").unwrap();
        let share = share(directory.path());
        let instead = Arc::new(Instead::of(&share, b"/file", Vec::new()).unwrap());
        let copy = instead.creation_path(b"/file");
        let copy = String::from_utf8(copy).unwrap();
        fs::write(directory.path().join(copy.trim_start_matches('/')), "new").unwrap();
        let content = || fs::read_to_string(directory.path().join("file")).unwrap();
        let replacing = share.replacing.lock();
        let named = tokio::spawn(instead.name());
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(content(), "old");
        drop(replacing);
        named.await.unwrap().unwrap();
        assert_eq!(content(), "new");
    }

    #[tokio::test]
    #[expect(clippy::await_holding_lock, reason = "another request waits for it, or does not")]
    async fn replacements_in_one_share_do_not_wait_for_another_share() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = directories.each_ref().map(|directory| share(directory.path()));
        fs::write(directories[1].path().join("a"), "").unwrap();
        let _replacing = one.replacing.lock();
        let (files, intent) = (Files::boxed(&other), Intent::default());
        files.rename(&path("/a"), &path("/b"), &intent).await.unwrap();
        assert!(directories[1].path().join("b").exists());
    }
}
