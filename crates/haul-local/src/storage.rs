//! [`LocalStorage`]: each call that needs the disk becomes a job on a disk thread (a listing, one for each batch; a
//! copy, one for each step).

use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use haul_storage::journal::JournalPath;
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryStream, Error,
    ErrorKind, LinkKind, LinkStatus, Location, Lock, Metadata, Range, ReadAt, RelPath, Result,
    SmallFile, Space, Storage, Whole, WorkPool, WriteAt, part_name,
};
use rustix::fs::{Mode, OFlags};

use crate::copy::Copying;
use crate::dir::Tree;
use crate::list;
use crate::options::LocalOptions;
use crate::platform;
use crate::read::LocalReader;
use crate::volume::Volume;
use crate::write::{COPY_STEP, LocalWriter, Part, sync_directory};

/// A local directory tree.
#[derive(Debug, Clone)]
pub struct LocalStorage {
    volume: Arc<Volume>,
    pool: WorkPool,
}

impl LocalStorage {
    /// Opens the directory `root`. Links in `root` itself are followed, those below it are not.
    /// Blocks for a moment.
    ///
    /// # Errors
    /// If it is not a directory or cannot be opened, or no thread can be started.
    pub fn open(root: &Path, options: LocalOptions) -> Result<Arc<Self>> {
        const OPERATION: &str = "open";
        let location = Location::Local(root.to_path_buf());
        let fold = |error| Error::from_io(OPERATION, error).at(&location);
        let resolved = fs::canonicalize(root).map_err(fold)?;
        if !resolved.is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, OPERATION).at(&location));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&resolved, flags, Mode::empty())
            .map_err(|errno| fold(errno.into()))?;
        let pool = match &options.pool {
            Some(pool) => pool.clone(),
            None => WorkPool::new("haul-disk", options.threads).map_err(fold)?,
        };
        let platform = platform::choose(options.portable);
        let volume = Volume::new(location, resolved, Tree::new(directory), platform, options);
        Ok(Arc::new(Self { volume: Arc::new(volume), pool }))
    }

    /// The journal of `path`.
    pub(crate) async fn journal(&self, path: &RelPath) -> Result<JournalPath> {
        let find = |volume: &Arc<Volume>, path: &RelPath| {
            volume.at("create", path, |directory, _| Ok(volume.journal(directory, path)))
        };
        self.run(path, find).await
    }

    /// Makes the name of `path` durable: syncs the directory that holds it.
    pub(crate) async fn sync_name(&self, path: &RelPath) -> Result<()> {
        let (volume, path) = (Arc::clone(&self.volume), path.clone());
        let sync =
            move || volume.at("sync directory", &path, |directory, _| sync_directory(directory));
        self.pool.run(sync).await
    }

    /// Runs `work` on a disk thread, ahead of bulk work: it is short, and much else waits for it.
    async fn run<T: Send + 'static>(
        &self,
        path: &RelPath,
        work: impl FnOnce(&Arc<Volume>, &RelPath) -> T + Send + 'static,
    ) -> T {
        let (volume, path) = (Arc::clone(&self.volume), path.clone());
        self.pool.run_first(move || work(&volume, &path)).await
    }
}

#[async_trait]
impl Storage for LocalStorage {
    fn location(&self) -> &Location {
        &self.volume.location
    }

    fn capabilities(&self) -> &Capabilities {
        &self.volume.capabilities
    }

    fn set_lanes(&self, _: usize) {}

    fn link(&self) -> LinkStatus {
        LinkStatus { open: 1, ..LinkStatus::default() }
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        self.run(path, |volume, path| volume.stat(path)).await
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        let volume = Arc::clone(&self.volume);
        self.pool.run(move || paths.iter().map(|path| volume.stat(path)).collect()).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        list::list(Arc::clone(&self.volume), self.pool.clone(), path).await
    }

    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        self.run(path, move |volume, path| volume.create_dir(path, mode)).await
    }

    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()> {
        let link = link.clone();
        self.run(path, move |volume, path| volume.create_link(path, &link, replace)).await
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        self.run(path, |volume, path| volume.remove(path)).await
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let to = to.clone();
        self.run(from, move |volume, from| volume.rename(from, &to)).await
    }

    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let to = to.clone();
        let begin = move |volume: &Arc<Volume>, from: &RelPath| Copying::begin(volume, from, &to);
        let mut rest = Some(self.run(from, begin).await?);
        while let Some(copying) = rest {
            rest = self.pool.run(move || copying.step(COPY_STEP)).await?;
        }
        Ok(())
    }

    async fn digest(&self, _path: &RelPath, _kind: DigestKind) -> Result<Option<Digest>> {
        Ok(None)
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        self.run(path, |volume, path| volume.metadata(path)).await
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let metadata = metadata.clone();
        self.run(path, move |volume, path| volume.set_metadata(path, &metadata)).await
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let pool = self.pool.clone();
        let work = |volume: &Arc<Volume>, path: &RelPath| -> Result<Arc<dyn ReadAt>> {
            let (file, stat) = volume.open_file("open", path)?;
            let (volume, file) = (Arc::clone(volume), Arc::new(file));
            Ok(Arc::new(LocalReader::new(volume, pool, path.clone(), file, stat)))
        };
        self.run(path, work).await
    }

    async fn open_reading(&self, path: &RelPath, _: Range) -> Result<Arc<dyn ReadAt>> {
        self.open(path).await
    }

    fn prefetch(&self, _path: &RelPath) {}

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        part_name(path.name())
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        let options = options.clone();
        let create = move |volume: &Arc<Volume>, path: &RelPath| {
            Part::create(Arc::clone(volume), path, &options)
        };
        let part = self.run(path, create).await?;
        Ok(Arc::new(LocalWriter::new(part, self.pool.clone())))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let (volume, path) = (Arc::clone(&self.volume), path.clone());
        self.pool.run(move || volume.read_whole(&path, limit)).await
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        let (volume, path, options) = (Arc::clone(&self.volume), path.clone(), options.clone());
        self.pool.run(move || volume.write_whole(&path, bytes, &options)).await
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        let volume = Arc::clone(&self.volume);
        let read = move || paths.iter().map(|path| volume.read_whole(path, limit)).collect();
        self.pool.run(read).await
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        let volume = Arc::clone(&self.volume);
        let write =
            move |file: SmallFile| volume.write_whole(&file.path, file.bytes, &file.options);
        self.pool.run(move || files.into_iter().map(write).collect()).await
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        self.run(path, |volume, path| volume.space(path)).await
    }

    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        self.run(path, |volume, path| volume.allocated(path)).await
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        self.run(path, |volume, path| volume.lock(path)).await
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::StorageExt as _;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn storages(root: &Path) -> [Arc<LocalStorage>; 2] {
        [false, true].map(|portable| {
            let pool = Some(WorkPool::new("test", 1).unwrap());
            let options = LocalOptions { portable, pool, ..LocalOptions::default() };
            LocalStorage::open(root, options).unwrap()
        })
    }

    #[test]
    fn a_copy_in_steps_is_whole_and_a_dropped_one_leaves_nothing() {
        const STEP: usize = 100_000;
        let root = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..10 * STEP + 7).map(|at| (at % 251) as u8).collect();
        fs::write(root.path().join("source"), &bytes).unwrap();
        for storage in storages(root.path()) {
            let begin = || Copying::begin(&storage.volume, &path("source"), &path("copy")).unwrap();
            let (mut steps, mut rest) = (0, Some(begin()));
            while let Some(copying) = rest {
                rest = copying.step(STEP as u64).unwrap();
                steps += 1;
            }
            // A reflink takes one step.
            assert!(steps == 11 || steps == 1 && !storage.volume.options.portable, "{steps}");
            assert!(fs::read(root.path().join("copy")).unwrap() == bytes);
            fs::remove_file(root.path().join("copy")).unwrap();
            drop(begin());
            assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        }
    }

    /// Formerly, a copy was one job, and everything else waited for its end.
    #[tokio::test]
    async fn other_jobs_run_between_the_steps_of_a_copy() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("source"), b"content").unwrap();
        for storage in storages(root.path()) {
            let copy = root.path().join("copy");
            let copied = copy.clone();
            let (from, to) = (path("source"), path("copy"));
            // The disk thread is blocked until the first job of the copy and another job are queued.
            let (begin, waits) = std::sync::mpsc::channel::<()>();
            storage.pool.submit(move || waits.recv().unwrap());
            let (outcome, is_over, ()) = futures_util::join!(
                storage.copy(&from, &to),
                storage.pool.run(move || copied.exists()),
                async { begin.send(()).unwrap() }
            );
            outcome.unwrap();
            assert!(!is_over);
            storage.remove(&to).await.unwrap();
            assert!(storage.find(&to).await.unwrap().is_none() && !copy.exists());
        }
    }
}
