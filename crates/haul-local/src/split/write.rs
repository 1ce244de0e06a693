//! Writers of split files, and of plain files that may replace a split folder.
//!
//! An incomplete split file is `.NAME.haul-part/LENGTH/`, named after the length of its parts, so
//! that a later run with another length does not resume it. In it, each part is a file of the inner
//! storage, with a part file of its own. The commit renames every part, and then the folder (or the
//! part, if there is only one). If a run is killed in between, the next one finds parts with final
//! names and renames them back to part files.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use haul_storage::journal::{JournalPath, PartJournal};
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Held, Lock, Range, RangeSet, ReadAt,
    RelPath, Result, StorageExt as _, WriteAt, Writes, journal_name, part_name,
};
use tokio::sync::Mutex;

use super::layout::{cut, number_of, part_path};
use super::place::{beside, remove_if_exists};
use super::read::SplitReader;
use super::{Rule, Shared};
use crate::storage::LocalStorage;

/// If this many writers of parts are open, an idle one (if any) is dropped before another is opened: each takes a
/// descriptor.
const OPEN_PARTS: usize = 64;

/// Attempts to lock the part folder: another run may finish and remove it between look-up and lock.
const RACES: usize = 16;

#[derive(Debug)]
pub(super) struct SplitWriter {
    shared: Arc<Shared>,
    rule: Rule,
    path: RelPath,
    /// `.NAME.haul-part`
    outer: RelPath,
    /// `.NAME.haul-part/LENGTH`
    folder: RelPath,
    options: CreateOptions,
    journal: PartJournal,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: BTreeMap<u64, Arc<dyn WriteAt>>,
    /// Parts that were committed.
    named: BTreeSet<u64>,
    /// Number of parts, including earlier ones that were never opened.
    count: u64,
    lock: Option<Lock>,
    ended: bool,
}

impl SplitWriter {
    pub(super) async fn create(
        shared: Arc<Shared>,
        rule: Rule,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self> {
        let outer = beside(path, &part_name(path.name()))?;
        let lock = shared.part_folder(path, &outer).await?;
        let folder = child(&outer, &rule.part.to_string())?;
        let found = match options.resume && shared.inner.find(&folder).await?.is_some() {
            true => Some(shared.restore_part_files(&folder, rule.part).await?),
            false => None,
        };
        let length = found.map(|(_, length)| length);
        let journal = shared.journal(path).await?;
        let journal = PartJournal::look(journal, options, length, Writes::AnyOrder).await?;
        let mut count = found.map_or(0, |(count, _)| count);
        if !journal.resumes() {
            count = 0;
            let journal = beside(path, &journal_name(path.name()))?;
            remove_if_exists(&shared, &journal).await?;
            for entry in shared.inner.list_sorted(&outer).await? {
                remove_if_exists(&shared, &entry.path).await?;
            }
            shared.inner.create_dir(&folder).await?;
        }
        let writer = Self {
            shared,
            rule,
            path: path.clone(),
            outer,
            folder,
            options: options.clone(),
            journal,
            state: Mutex::new(State { count, lock, ..State::default() }),
        };
        writer.part(0).await?;
        writer.journal.start(&writer).await?;
        Ok(writer)
    }

    /// The writer of a part.
    pub(super) async fn part(&self, number: u64) -> Result<Arc<dyn WriteAt>> {
        let mut state = self.state.lock().await;
        if state.ended {
            return Err(self.error(ErrorKind::InvalidInput, "it is committed or aborted"));
        }
        self.part_of(&mut state, number).await
    }

    async fn part_of(&self, state: &mut State, number: u64) -> Result<Arc<dyn WriteAt>> {
        if let Some(part) = state.open.get(&number) {
            return Ok(Arc::clone(part));
        }
        if state.open.len() >= OPEN_PARTS {
            // Dropping a writer leaves its part file.
            let idle = state.open.iter().find(|(_, part)| Arc::strong_count(part) == 1);
            if let Some(number) = idle.map(|(number, _)| *number) {
                state.open.remove(&number);
            }
        }
        let start = number * self.rule.part;
        let size = self.options.size.map(|size| size.saturating_sub(start).min(self.rule.part));
        // Parts that must not be resumed were removed with their folder; the journal covers the
        // whole file.
        let sparse = self.options.sparse;
        let options = CreateOptions { resume: true, size, sparse, ..CreateOptions::default() };
        let part = self.shared.inner.create(&part_path(&self.folder, number), &options).await?;
        state.open.insert(number, Arc::clone(&part));
        state.count = state.count.max(number + 1);
        Ok(part)
    }

    fn error(&self, kind: ErrorKind, cause: &str) -> Error {
        let location = self.shared.inner.location();
        Error::new(kind, "write").at(location.display(&self.path)).because(cause)
    }
}

impl Shared {
    /// Creates the folder of an incomplete file, unless it exists, and locks it; `None` if the inner storage has no
    /// locks.
    async fn part_folder(&self, path: &RelPath, outer: &RelPath) -> Result<Option<Lock>> {
        for _ in 0..RACES {
            match self.inner.create_dir(outer).await {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            let Some(before) = self.inner.find(outer).await? else { continue };
            if !before.is_dir() {
                // The part file of a run that did not split; `Busy` if that run is still writing.
                let file = self.inner.create(path, &CreateOptions::default()).await?;
                file.abort(false).await?;
                continue;
            }
            let lock = match self.inner.lock(outer).await {
                Ok(lock) => Some(lock),
                Err(error) if error.kind() == ErrorKind::Unsupported => None,
                Err(error) => return Err(error),
            };
            let after = self.inner.find(outer).await?;
            if after.is_some_and(|after| after.id == before.id) {
                return Ok(lock);
            }
        }
        Err(Error::new(ErrorKind::Busy, "create").at(self.inner.location().display(path)))
    }

    /// The journal is beside the file; `None` if the inner storage is not local.
    async fn journal(&self, path: &RelPath) -> Result<Option<JournalPath>> {
        let inner: &dyn Any = &*self.inner;
        match inner.downcast_ref::<LocalStorage>() {
            Some(local) => local.journal(path).await.map(Some),
            None => Ok(None),
        }
    }

    /// Renames committed parts back to part files. Returns the number of parts, and the length of
    /// the file up to the end of the last one.
    async fn restore_part_files(&self, folder: &RelPath, part: u64) -> Result<(u64, u64)> {
        let (mut count, mut length) = (0, 0);
        for entry in self.inner.list_sorted(folder).await? {
            let name = entry.path.name();
            let number = match number_of(name) {
                Some(number) => {
                    self.inner.rename(&entry.path, &beside(&entry.path, &part_name(name))?).await?;
                    number
                }
                None => match number_of_part_file(name) {
                    Some(number) => number,
                    None => continue,
                },
            };
            if number >= count {
                (count, length) = (number + 1, number * part + entry.size);
            }
        }
        Ok((count, length))
    }

    /// Removes the part folder of a run that split, since a part file needs its name.
    pub(super) async fn clear_part_folder(&self, path: &RelPath) -> Result<()> {
        let outer = beside(path, &part_name(path.name()))?;
        if self.inner.find(&outer).await?.is_some_and(|entry| entry.is_dir()) {
            let lock = self.part_folder(path, &outer).await?;
            remove_if_exists(self, &outer).await?;
            drop(lock);
        }
        Ok(())
    }
}

/// The number of the part whose part file has this name.
fn number_of_part_file(name: &[u8]) -> Option<u64> {
    let digits = name.iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count();
    let number = number_of(name.get(1..=digits)?)?;
    (part_name(&name[1..=digits]) == name).then_some(number)
}

fn child(folder: &RelPath, name: &str) -> Result<RelPath> {
    folder.join(name).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "create").at(folder).because(error.to_string())
    })
}

#[async_trait]
impl WriteAt for SplitWriter {
    fn held(&self) -> &Held {
        self.journal.held()
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        self.journal.record(ranges).await
    }

    async fn write_at(&self, offset: u64, mut block: Block) -> Result<()> {
        for (number, range) in cut(Range::new(offset, block.len() as u64), self.rule.part) {
            let rest = split_off(&mut block, usize::try_from(range.len()).unwrap_or(usize::MAX));
            let head = std::mem::replace(&mut block, rest);
            self.part(number).await?.write_at(range.start(), head).await?;
        }
        Ok(())
    }

    /// Not possible: the inner storage copies to the same offset, but a byte's offset in its part is
    /// not its offset in the file.
    async fn copy_from(&self, _: &dyn ReadAt, _: Range) -> Result<bool> {
        Ok(false)
    }

    async fn sync(&self) -> Result<()> {
        let sync = async {
            let count = self.state.lock().await.count;
            for number in 0..count {
                self.part(number).await?.sync().await?;
            }
            Ok(())
        };
        self.journal.synced(sync).await
    }

    async fn reopen(&self, uncached: bool) -> Result<Arc<dyn ReadAt>> {
        let count = self.state.lock().await.count;
        let mut open = Vec::new();
        for number in 0..count {
            open.push(self.part(number).await?.reopen(uncached).await?);
        }
        let (shared, path) = (Arc::clone(&self.shared), self.path.clone());
        Ok(Arc::new(SplitReader::growing(shared, path, self.rule.part, open)))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let mut state = self.state.lock().await;
        if state.ended {
            return Err(self.error(ErrorKind::InvalidInput, "it is committed or aborted"));
        }
        let count = size.div_ceil(self.rule.part).max(1);
        let each = CommitOptions { replace: true, expected: None, ..options.clone() };
        for number in 0..count {
            if state.named.contains(&number) {
                continue;
            }
            let length = (size - number * self.rule.part).min(self.rule.part);
            self.part_of(&mut state, number).await?.commit(length, &each).await?;
            state.open.remove(&number);
            state.named.insert(number);
        }
        for number in count..state.count {
            self.part_of(&mut state, number).await?.abort(false).await?;
            state.open.remove(&number);
        }
        state.count = count;
        let inner = &self.shared.inner;
        // A split folder contains nothing but parts.
        for entry in inner.list_sorted(&self.folder).await? {
            if number_of(entry.path.name()).is_none() {
                remove_if_exists(&self.shared, &entry.path).await?;
            }
        }
        let (from, is_folder) = match count {
            1 => (part_path(&self.folder, 0), false),
            _ => (self.folder.clone(), true),
        };
        self.shared.check(&self.path, options).await?;
        self.shared.rename_into_place((&from, is_folder), &self.path, options).await?;
        state.ended = true;
        remove_if_exists(&self.shared, &self.outer).await?;
        state.lock = None;
        self.journal.remove().await
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        let mut state = self.state.lock().await;
        if std::mem::replace(&mut state.ended, true) {
            return Ok(());
        }
        for part in std::mem::take(&mut state.open).into_values() {
            part.abort(keep).await?;
        }
        if !keep {
            remove_if_exists(&self.shared, &self.outer).await?;
            self.journal.remove().await?;
        }
        state.lock = None;
        Ok(())
    }
}

/// Splits a block at `at` without copying: the head remains in `block`, the rest is returned.
fn split_off(block: &mut Block, at: usize) -> Block {
    let mut rest = Block::new();
    let mut before = 0;
    for piece in block.pieces() {
        let start = at.saturating_sub(before).min(piece.len());
        rest.push(piece.slice(start..));
        before += piece.len();
    }
    block.truncate(at);
    rest
}

/// A file that is not split, and the writer of the inner storage for it.
#[derive(Debug)]
pub(super) struct PlainWriter {
    pub(super) shared: Arc<Shared>,
    pub(super) path: RelPath,
    pub(super) inner: Arc<dyn WriteAt>,
}

#[async_trait]
impl WriteAt for PlainWriter {
    fn held(&self) -> &Held {
        self.inner.held()
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        self.inner.record(ranges).await
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        self.inner.write_at(offset, block).await
    }

    async fn copy_from(&self, source: &dyn ReadAt, range: Range) -> Result<bool> {
        self.inner.copy_from(source, range).await
    }

    async fn sync(&self) -> Result<()> {
        self.inner.sync().await
    }

    async fn reopen(&self, uncached: bool) -> Result<Arc<dyn ReadAt>> {
        self.inner.reopen(uncached).await
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let options = &self.shared.compared(&self.path, options).await?;
        let outcome = self.inner.commit(size, options).await;
        self.shared
            .or_replace_via_rename(&self.path, outcome, || self.inner.commit(size, options))
            .await
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        self.inner.abort(keep).await
    }
}

impl Shared {
    /// If `outcome` failed because a split folder is in the way: moves the folder aside and runs `again`.
    pub(super) async fn or_replace_via_rename<F: Future<Output = Result<()>>>(
        &self,
        path: &RelPath,
        outcome: Result<()>,
        again: impl FnOnce() -> F,
    ) -> Result<()> {
        match outcome {
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                match self.layout(path).await? {
                    Some(_) => self.replace_via_rename(path, again()).await,
                    None => Err(error),
                }
            }
            outcome => outcome,
        }
    }
}
