//! [`Storage`] for [`MemoryStorage`].

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;

use super::lock::lock;
use super::read::MemoryReader;
use super::shared::Shared;
use super::tree::{Content, Node, Refusal, Tree};
use super::write::MemoryWriter;
use super::{MemoryStorage, Operation};
use crate::{
    Block, Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryStream,
    ErrorKind, LinkKind, LinkStatus, Location, Lock, Metadata, Range, ReadAt, RelPath, Result,
    SmallFile, Space, Storage, StorageExt, Whole, WriteAt, part_name,
};

impl MemoryStorage {
    /// The entries of a directory, each batch read from its position when it is consumed.
    fn listed_by_position(&self, directory: RelPath) -> EntryStream {
        let shared = Arc::clone(&self.shared);
        let batch = move |position: usize| {
            let (shared, directory) = (Arc::clone(&shared), directory.clone());
            async move {
                let found = lock(&shared.tree).list(&directory).ok()?;
                let found = found.into_iter().skip(position).take(shared.options.list_batch);
                let named =
                    found.filter_map(|(name, node)| Some((directory.join(&name).ok()?, node)));
                let batch: Vec<Entry> =
                    named.map(|(path, node)| shared.entry(path, &node)).collect();
                let next = position + batch.len();
                (!batch.is_empty()).then_some((Ok(batch), next))
            }
        };
        Box::pin(stream::unfold(0, batch))
    }
}

#[async_trait]
impl Storage for MemoryStorage {
    fn location(&self) -> &Location {
        &self.shared.location
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn set_lanes(&self, lanes: usize) {
        if let Some(link) = &self.shared.link {
            link.set_lanes(lanes);
        }
    }

    fn link(&self) -> LinkStatus {
        self.shared.link.as_ref().map(|link| link.status()).unwrap_or_default()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        let work = |tree: &mut Tree| Ok(self.shared.entry(path.clone(), &*tree.find(path)?));
        self.shared.perform(Operation::Stat, path, work).await
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        let work = |tree: &mut Tree| tree.list(path);
        let found = self.shared.perform(Operation::List, path, work).await?;
        if self.shared.options.lists_by_position {
            return Ok(self.listed_by_position(path.clone()));
        }
        let mut batches: Vec<Result<Vec<Entry>>> = Vec::new();
        let mut batch = Vec::new();
        for (name, node) in found {
            let Ok(below) = path.join(&name) else { continue };
            if let Some(failure) = self.shared.faults.of_entry(&below) {
                batches.push(Err(self.shared.ordered(Operation::ListEntry, &below, failure)));
                continue;
            }
            batch.push(self.shared.entry(below, &node));
            if batch.len() == self.shared.options.list_batch {
                batches.push(Ok(std::mem::take(&mut batch)));
            }
        }
        if !batch.is_empty() {
            batches.push(Ok(batch));
        }
        Ok(Box::pin(stream::iter(batches)))
    }

    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        let work = |tree: &mut Tree| {
            let node = tree.node(Content::Directory(std::collections::BTreeMap::new()));
            if let Some(mode) = mode {
                node.lock().mode = mode & 0o777;
            }
            tree.attach(path, node, false)
        };
        self.shared.perform(Operation::CreateDir, path, work).await
    }

    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()> {
        let work = |tree: &mut Tree| {
            let capabilities = &self.shared.capabilities;
            let node = match link {
                LinkKind::Symbolic(target) if capabilities.symlinks => {
                    tree.node(Content::Symlink(target.clone()))
                }
                LinkKind::Hard(target) if capabilities.hard_links => {
                    let node = tree.find(target)?;
                    if matches!(node.lock().content, Content::Directory(_)) {
                        return Err(ErrorKind::IsADirectory.into());
                    }
                    node
                }
                _ => return Err(ErrorKind::Unsupported.into()),
            };
            tree.attach(path, node, replace)
        };
        self.shared.perform(Operation::CreateLink, path, work).await
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        self.shared.perform(Operation::Remove, path, |tree| tree.remove(path)).await
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let replace = self.shared.capabilities.rename;
        let work = |tree: &mut Tree| tree.rename(from, to, replace);
        self.shared.perform(Operation::Rename, from, work).await
    }

    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let work = |tree: &mut Tree| {
            if !self.shared.capabilities.server_copy {
                return Err(ErrorKind::Unsupported.into());
            }
            let data = tree.find(from)?.lock().data()?.clone();
            self.shared.room(tree, data.size(), data.written().total())?;
            let node = tree.node(Content::File(data));
            tree.attach(to, node, false)
        };
        self.shared.perform(Operation::Copy, from, work).await
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        if !self.shared.capabilities.digests.contains(&kind) {
            return Ok(None);
        }
        let work = |tree: &mut Tree| {
            let node = file(tree, path)?;
            let mut state = node.lock();
            Ok(Some(state.data()?.digest(kind)))
        };
        let digest = self.shared.perform(Operation::Digest, path, work).await?;
        Ok(match self.shared.options.digest {
            Some(claimed) => digest.map(|_| claimed),
            None => digest,
        })
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        let work = |tree: &mut Tree| Ok(self.shared.metadata(&*tree.find(path)?));
        self.shared.perform(Operation::Metadata, path, work).await
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let work = |tree: &mut Tree| {
            tree.find(path)?.lock().set(metadata, &self.shared.capabilities);
            Ok(())
        };
        self.shared.perform(Operation::SetMetadata, path, work).await
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let work = |tree: &mut Tree| file(tree, path);
        let node = self.shared.perform(Operation::Open, path, work).await?;
        Ok(Arc::new(MemoryReader::new(&self.shared, path.clone(), node)))
    }

    async fn open_reading(&self, path: &RelPath, first: Range) -> Result<Arc<dyn ReadAt>> {
        let work = |tree: &mut Tree| file(tree, path);
        let node = self.shared.perform(Operation::Open, path, work).await?;
        Ok(Arc::new(MemoryReader::new(&self.shared, path.clone(), node).with_first(first)))
    }

    fn prefetch(&self, _path: &RelPath) {}

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        part_name(path.name())
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        let work = |tree: &mut Tree| MemoryWriter::start(&self.shared, tree, path, options);
        let writer = self.shared.perform(Operation::Create, path, work).await?;
        Ok(Arc::new(writer))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let shared = &self.shared;
        let call = shared.begin(Operation::ReadWhole, path).await?;
        let fold = |refusal| shared.error(Operation::ReadWhole, path, refusal);
        shared.wait_rtt(Operation::ReadWhole, path).await?;
        let node = file(&lock(&shared.tree), path).map_err(fold)?;
        let content = {
            let mut state = node.lock();
            let data = state.data().map_err(fold)?;
            if data.size() > limit {
                let cause = format!("it has {} bytes, expected at most {limit}", data.size());
                return Err(fold(Refusal { kind: ErrorKind::Changed, cause }));
            }
            data.read(Range::new(0, limit))
        };
        shared.send(Operation::ReadWhole, path, content.len() as u64).await?;
        let (content, failure) = call.verdict.distort(content);
        if let Some(failure) = failure {
            return Err(shared.ordered(Operation::ReadWhole, path, failure));
        }
        let mut metadata = shared.metadata(&node);
        metadata.xattrs = None;
        let identity = shared.identity(&node);
        shared.end(&call, path, Whole { bytes: content.into_bytes(), identity, metadata })
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        let shared = &self.shared;
        let call = shared.begin(Operation::WriteWhole, path).await?;
        shared.wait_rtt(Operation::WriteWhole, path).await?;
        shared.send(Operation::WriteWhole, path, bytes.len() as u64).await?;
        let (block, failure) = call.verdict.distort(Block::from(bytes));
        if let Some(failure) = failure {
            return Err(shared.ordered(Operation::WriteWhole, path, failure));
        }
        let done = write_whole(shared, path, &block, options);
        done.map_err(|refusal| shared.commit_error(Operation::WriteWhole, path, refusal))?;
        shared.end(&call, path, ())
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        self.read_each(paths, limit).await
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        self.write_each(files).await
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        let Some(capacity) = self.shared.options.capacity else { return Ok(None) };
        self.shared.wait_rtt(Operation::Stat, path).await?;
        let free = capacity.saturating_sub(lock(&self.shared.tree).used());
        Ok(Some(Space {
            free,
            most: free,
            block: 0,
            volume: None,
            compact: false,
            shares: self.shared.capabilities.server_copy,
        }))
    }

    async fn allocated(&self, _path: &RelPath) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        let work = |tree: &mut Tree| {
            if !self.shared.capabilities.lock {
                return Err(ErrorKind::Unsupported.into());
            }
            if !tree.locked.insert(path.clone()) {
                return Err(Refusal::new(ErrorKind::Busy, "another run holds its lock"));
            }
            Ok(Lock::new(Held { tree: Arc::clone(&self.shared.tree), path: path.clone() }))
        };
        self.shared.perform(Operation::Lock, path, work).await
    }
}

fn write_whole(
    shared: &Shared,
    path: &RelPath,
    block: &Block,
    options: &CommitOptions,
) -> Result<(), Refusal> {
    let mut tree = lock(&shared.tree);
    let size = block.len() as u64;
    shared.room(&tree, size, size)?;
    shared.check(&tree, path, options)?;
    let mut data = shared.new_data(path);
    data.write(0, block).map_err(Refusal::not_the_pattern)?;
    let node = tree.node(Content::File(data));
    tree.attach(path, Arc::clone(&node), options.replace)?;
    node.lock().set(&options.metadata, &shared.capabilities);
    Ok(())
}

/// The regular file at `path`.
fn file(tree: &Tree, path: &RelPath) -> Result<Arc<Node>, Refusal> {
    let node = tree.find(path)?;
    node.lock().data()?;
    Ok(node)
}

/// A lock that is held.
#[derive(Debug)]
struct Held {
    tree: Arc<Mutex<Tree>>,
    path: RelPath,
}

impl Drop for Held {
    fn drop(&mut self) {
        lock(&self.tree).locked.remove(&self.path);
    }
}
