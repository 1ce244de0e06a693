//! Storages that can only be read.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryStream, LinkKind,
    LinkStatus, Location, Lock, Metadata, Range, ReadAt, RelPath, Result, SmallFile, Space,
    Storage, StorageExt, Whole, WriteAt,
};

/// A [`Storage`] that can only be read: operations that would change it fail with `Unsupported`. The
/// methods are those of [`Storage`].
#[async_trait]
#[expect(missing_docs, reason = "the methods of Storage")]
pub trait ReadOnly: Any + Debug + Send + Sync {
    /// Why it cannot be written, for users.
    fn why_read_only(&self) -> &'static str;

    fn location(&self) -> &Location;
    fn capabilities(&self) -> &Capabilities;
    fn set_lanes(&self, lanes: usize);
    fn link(&self) -> LinkStatus;
    async fn stat(&self, path: &RelPath) -> Result<Entry>;
    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>>;
    async fn list(&self, path: &RelPath) -> Result<EntryStream>;
    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>>;
    async fn metadata(&self, path: &RelPath) -> Result<Metadata>;
    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>>;
    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole>;
    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>>;
    async fn space(&self, path: &RelPath) -> Result<Option<Space>>;
    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>>;
}

fn refuse<T>(storage: &impl ReadOnly, operation: &'static str, path: &RelPath) -> Result<T> {
    Err(storage.unsupported(operation, path).because(storage.why_read_only()))
}

#[async_trait]
impl<R: ReadOnly> Storage for R {
    fn location(&self) -> &Location {
        ReadOnly::location(self)
    }

    fn capabilities(&self) -> &Capabilities {
        ReadOnly::capabilities(self)
    }

    fn set_lanes(&self, lanes: usize) {
        ReadOnly::set_lanes(self, lanes);
    }

    fn link(&self) -> LinkStatus {
        ReadOnly::link(self)
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        ReadOnly::stat(self, path).await
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        ReadOnly::stat_many(self, paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        ReadOnly::list(self, path).await
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        ReadOnly::digest(self, path, kind).await
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        ReadOnly::metadata(self, path).await
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        ReadOnly::open(self, path).await
    }

    async fn open_reading(&self, path: &RelPath, _: Range) -> Result<Arc<dyn ReadAt>> {
        ReadOnly::open(self, path).await
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        ReadOnly::read_whole(self, path, limit).await
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        ReadOnly::read_many(self, paths, limit).await
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        ReadOnly::space(self, path).await
    }

    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        ReadOnly::allocated(self, path).await
    }

    async fn create_dir_as(&self, path: &RelPath, _: Option<u32>) -> Result<()> {
        refuse(self, "create directory", path)
    }

    async fn create_link(&self, path: &RelPath, _: &LinkKind, _: bool) -> Result<()> {
        refuse(self, "create link", path)
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        refuse(self, "remove", path)
    }

    async fn rename(&self, from: &RelPath, _: &RelPath) -> Result<()> {
        refuse(self, "rename", from)
    }

    async fn copy(&self, from: &RelPath, _: &RelPath) -> Result<()> {
        refuse(self, "copy", from)
    }

    async fn set_metadata(&self, path: &RelPath, _: &Metadata) -> Result<()> {
        refuse(self, "set metadata", path)
    }

    /// Does nothing: a read-only storage is never a destination.
    fn prefetch(&self, _: &RelPath) {}

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        crate::part_name(path.name())
    }

    async fn create(&self, path: &RelPath, _: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        refuse(self, "create", path)
    }

    async fn write_whole(&self, path: &RelPath, _: Bytes, _: &CommitOptions) -> Result<()> {
        refuse(self, "write", path)
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        files.iter().map(|file| refuse(self, "write", &file.path)).collect()
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        refuse(self, "lock", path)
    }
}
