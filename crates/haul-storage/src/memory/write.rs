//! [`WriteAt`] for memory.

use std::any::Any;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::Operation;
use super::lock::lock;
use super::read::MemoryReader;
use super::shared::Shared;
use super::tree::{Content, Node, Refusal, Tree};
use crate::{
    Block, CommitOptions, CreateOptions, ErrorKind, Held, Range, RangeSet, ReadAt, RelPath, Result,
    WriteAt, Writes, part_name,
};

/// A part file being written. Dropping the writer simulates a killed run: the part file stays and another
/// writer may resume it.
#[derive(Debug)]
pub(super) struct MemoryWriter {
    shared: Arc<Shared>,
    path: RelPath,
    node: Arc<Node>,
    /// The name of the part file; `None` if part files do not outlive their writer.
    part: Option<RelPath>,
    held: Held,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    /// Neither committed nor aborted.
    live: bool,
    /// Where an in-order write has to begin: anywhere in here at first, later exactly at the end of the
    /// last write.
    next: Range,
}

impl MemoryWriter {
    pub(super) fn start(
        shared: &Arc<Shared>,
        tree: &mut Tree,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self, Refusal> {
        let existing = tree.find_or_none(path)?;
        if existing.is_some_and(|node| matches!(node.lock().content, Content::Directory(_))) {
            return Err(ErrorKind::IsADirectory.into());
        }
        shared.room(tree, options.size.unwrap_or(0), 0)?;
        let (part, found) = if shared.capabilities.resume {
            let part = path.with_name(part_name(path.name())).map_err(|error| Refusal {
                kind: ErrorKind::InvalidInput,
                cause: format!("its part file's name {error}"),
            })?;
            let found = tree.find_or_none(&part)?;
            (Some(part), found)
        } else {
            (None, None)
        };
        if found.as_ref().is_some_and(|node| node.lock().held) {
            return Err(Refusal::new(ErrorKind::Busy, "another run is writing its part file"));
        }
        let found = found.filter(|_| options.resume);
        let held = held(shared, found.as_deref(), options)?;
        let is_same = held.is_recorded() || options.source.is_none();
        let resumed = found.filter(|_| is_same && !matches!(held, Held::StartedOver(_)));
        let node = match resumed {
            Some(node) => node,
            None => {
                let node = tree.node(Content::File(shared.new_data(path)));
                if let Some(part) = &part {
                    tree.attach(part, Arc::clone(&node), true)?;
                }
                node
            }
        };
        let prefix = {
            let mut state = node.lock();
            let data = state.data()?;
            if let Some(size) = options.size
                && !options.sparse
                && size > data.size()
            {
                data.resize(size);
            }
            let prefix = data.written().prefix();
            state.held = true;
            if let Some(source) = options.source.as_ref().filter(|_| held.is_recorded()) {
                state.recorded = Some((source.to_string(), held.ranges()));
            }
            prefix
        };
        Ok(Self {
            shared: Arc::clone(shared),
            path: path.clone(),
            node,
            part,
            held,
            progress: Mutex::new(Progress { live: true, next: Range::new(0, prefix) }),
        })
    }

    fn store(&self, offset: u64, block: &Block) -> Result<(), Refusal> {
        let tree = lock(&self.shared.tree);
        self.check_live()?;
        let range = Range::new(offset, block.len() as u64);
        self.shared.room(&tree, range.end(), range.len())?;
        if self.shared.capabilities.writes == Writes::InOrder {
            let next = &mut lock(&self.progress).next;
            if offset < next.start() || offset > next.end() {
                let cause = format!("it is written in order, and offset {offset} is not the next");
                return Err(Refusal { kind: ErrorKind::InvalidInput, cause });
            }
            self.node.lock().data()?.resize(offset);
            *next = Range::new(range.end(), 0);
        }
        self.node.lock().data()?.write(offset, block).map_err(Refusal::not_the_pattern)
    }

    fn finish(&self, size: u64, options: &CommitOptions) -> Result<(), Refusal> {
        let mut tree = lock(&self.shared.tree);
        self.check_live()?;
        self.shared.room(&tree, size, 0)?;
        if self.shared.capabilities.writes == Writes::InOrder {
            let written = self.node.lock().data()?.written().prefix();
            if written != size {
                let cause = format!("{written} bytes were written in order, not {size}");
                return Err(Refusal { kind: ErrorKind::InvalidInput, cause });
            }
        }
        self.shared.check(&tree, &self.path, options)?;
        tree.attach(&self.path, Arc::clone(&self.node), options.replace)?;
        if let Some(part) = &self.part {
            // The part file may have been removed; the content is in the node all the same.
            drop(tree.detach(part));
        }
        let mut state = self.node.lock();
        state.data()?.resize(size);
        state.held = false;
        state.recorded = None;
        state.modified = tree.tick();
        state.set(&options.metadata, &self.shared.capabilities);
        lock(&self.progress).live = false;
        Ok(())
    }

    fn check_live(&self) -> Result<(), Refusal> {
        if lock(&self.progress).live {
            return Ok(());
        }
        Err(Refusal::new(ErrorKind::InvalidInput, "it is committed or aborted already"))
    }
}

#[async_trait]
impl WriteAt for MemoryWriter {
    fn held(&self) -> &Held {
        &self.held
    }

    /// Simulates a local journal: the record does not cross the link.
    async fn record(&self, ranges: RangeSet) -> Result<()> {
        let call = self.shared.begin(Operation::Record, &self.path).await?;
        if let Some((_, recorded)) = &mut self.node.lock().recorded {
            ranges.iter().for_each(|range| recorded.insert(range));
        }
        self.shared.end(&call, &self.path, ())
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        const WRITE: Operation = Operation::Write;
        let (shared, path) = (&self.shared, &self.path);
        let call = shared.begin(WRITE, path).await?;
        shared.send(WRITE, path, block.len() as u64).await?;
        let (block, failure) = call.verdict.distort(block);
        self.store(offset, &block).map_err(|refusal| shared.error(WRITE, path, refusal))?;
        if let Some(failure) = failure {
            return Err(shared.ordered(WRITE, path, failure));
        }
        shared.end(&call, path, ())
    }

    async fn copy_from(&self, source: &dyn ReadAt, range: Range) -> Result<bool> {
        const COPY: Operation = Operation::CopyFrom;
        let (shared, path) = (&self.shared, &self.path);
        let call = shared.begin(COPY, path).await?;
        shared.wait_rtt(COPY, path).await?;
        let source = (source as &dyn Any).downcast_ref::<MemoryReader>();
        let Some(source) = source.filter(|_| shared.capabilities.server_copy) else {
            return shared.end(&call, path, false);
        };
        let block = source.node().lock().data().map(|data| data.read(range));
        let stored = block.and_then(|block| self.store(range.start(), &block));
        stored.map_err(|refusal| shared.error(COPY, path, refusal))?;
        shared.end(&call, path, true)
    }

    async fn sync(&self) -> Result<()> {
        let work = |_: &mut Tree| self.check_live();
        self.shared.perform(Operation::Sync, &self.path, work).await
    }

    async fn reopen(&self, _uncached: bool) -> Result<Arc<dyn ReadAt>> {
        self.shared.perform(Operation::Reopen, &self.path, |_| Ok(())).await?;
        let node = Arc::clone(&self.node);
        Ok(Arc::new(MemoryReader::new(&self.shared, self.path.clone(), node)))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        // Not through `perform`, because `finish` locks the tree itself.
        let call = self.shared.begin(Operation::Commit, &self.path).await?;
        self.shared.wait_rtt(Operation::Commit, &self.path).await?;
        let done = self.finish(size, options);
        done.map_err(|refusal| self.shared.commit_error(Operation::Commit, &self.path, refusal))?;
        self.shared.end(&call, &self.path, ())
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        let work = |tree: &mut Tree| {
            self.check_live()?;
            lock(&self.progress).live = false;
            self.node.lock().held = false;
            match &self.part {
                Some(part) if !keep => tree.detach(part).map(drop),
                _ => Ok(()),
            }
        };
        self.shared.perform(Operation::Abort, &self.path, work).await
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        if lock(&self.progress).live {
            self.node.lock().held = false;
        }
    }
}

/// What an existing part file holds of the source.
fn held(shared: &Shared, found: Option<&Node>, options: &CreateOptions) -> Result<Held, Refusal> {
    let records = shared.options.records && shared.capabilities.resume;
    let Some(source) = options.source.as_ref().filter(|_| records) else {
        return Ok(Held::Unrecorded);
    };
    let Some(node) = found else { return Ok(Held::Ranges(RangeSet::new())) };
    let mut state = node.lock();
    let writes = shared.capabilities.writes;
    let data = state.data()?;
    let length = match writes {
        Writes::InOrder => data.written().prefix(),
        Writes::AnyOrder => data.size(),
    };
    Ok(match &state.recorded {
        Some((of, ranges)) if *of == source.to_string() => Held::of(ranges.clone(), length, writes),
        Some((of, _)) => Held::StartedOver(format!("it belongs to another source ({of})")),
        None => Held::StartedOver("it has no journal".to_owned()),
    })
}
