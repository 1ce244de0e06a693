//! [`Storage`] over split folders: most calls go to the inner storage first; if that finds a folder,
//! it may be a split file.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use haul_storage::{
    Block, Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryStream,
    Error, ErrorKind, LinkKind, LinkStatus, Location, Lock, Metadata, Range, ReadAt, RelPath,
    Result, SmallFile, Space, Storage, StorageExt as _, Whole, WriteAt,
};

use super::layout::part_path;
use super::place::Present;
use super::read::SplitReader;
use super::write::{PlainWriter, SplitWriter};
use super::{Shared, SplitStorage};

impl Shared {
    fn error(&self, kind: ErrorKind, operation: &'static str, path: &RelPath) -> Error {
        Error::new(kind, operation).at(self.inner.location().display(path))
    }

    /// The entry itself, or the split file if it is a split folder.
    async fn seen(&self, entry: Entry) -> Result<Entry> {
        if entry.is_dir()
            && let Some(layout) = self.layout(&entry.path).await?
        {
            return Ok(layout.entry(&entry.path));
        }
        Ok(entry)
    }

    /// The options for a commit to `path` in the inner storage. That compares a plain file with the expected version; a
    /// split folder is compared here.
    pub(super) async fn compared(
        &self,
        path: &RelPath,
        options: &CommitOptions,
    ) -> Result<CommitOptions> {
        let compares = self.capabilities.conditional_commits && options.replaced().is_some();
        let found = if compares { self.layout(path).await? } else { None };
        let Some(layout) = found else { return Ok(options.clone()) };
        let checked = options.check(Some(&layout.identity(path)));
        checked.map_err(|error| error.at(self.inner.location().display(path)))?;
        Ok(CommitOptions { expected: None, ..options.clone() })
    }

    /// Checks that a commit may replace the version at `path`.
    pub(super) async fn check(&self, path: &RelPath, options: &CommitOptions) -> Result<()> {
        if !self.capabilities.conditional_commits || options.replaced().is_none() {
            return Ok(());
        }
        let found = match self.inner.find(path).await? {
            Some(entry) => Some(self.seen(entry).await?.identity()),
            None => None,
        };
        let checked = options.check(found.as_ref());
        checked.map_err(|error| error.at(self.inner.location().display(path)))
    }

    async fn seen_batch(&self, batch: Result<Vec<Entry>>) -> Vec<Result<Vec<Entry>>> {
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => return vec![Err(error)],
        };
        let mut items = Vec::new();
        let mut entries = Vec::with_capacity(batch.len());
        for entry in batch {
            match self.seen(entry).await {
                Ok(entry) => entries.push(entry),
                Err(error) => items.push(Err(error)),
            }
        }
        items.push(Ok(entries));
        items
    }

    async fn create(
        self: &Arc<Self>,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Arc<dyn WriteAt>> {
        if !self.joins() || path.is_root() {
            return self.inner.create(path, options).await;
        }
        self.recover(path).await?;
        if let Some(rule) = self.rule()
            && options.size.is_none_or(|size| size > rule.longest)
        {
            let writer = SplitWriter::create(Arc::clone(self), rule, path, options).await?;
            return Ok(Arc::new(writer));
        }
        self.clear_part_folder(path).await?;
        let inner = self.inner.create(path, options).await?;
        Ok(Arc::new(PlainWriter { shared: Arc::clone(self), path: path.clone(), inner }))
    }

    async fn copy_parts(self: &Arc<Self>, from: &RelPath, to: &RelPath) -> Result<()> {
        let Some(layout) = self.layout(from).await? else {
            return Err(self.error(ErrorKind::IsADirectory, "copy", from));
        };
        if self.present(to).await? != Present::Nothing {
            return Err(self.error(ErrorKind::AlreadyExists, "copy", to));
        }
        // Built in a part folder, which is never taken for a split file, and renamed when it is complete.
        let rule = super::Rule { longest: layout.part, part: layout.part };
        let options = CreateOptions { size: Some(layout.size()), ..CreateOptions::default() };
        let writer = SplitWriter::create(Arc::clone(self), rule, to, &options).await?;
        let outcome = self.copy_into(&layout, from, &writer).await;
        if outcome.is_err() {
            // The first error is the one to report.
            let _ = writer.abort(false).await;
        }
        outcome
    }

    async fn copy_into(
        &self,
        layout: &super::layout::Layout,
        from: &RelPath,
        writer: &SplitWriter,
    ) -> Result<()> {
        for number in (0..).take(layout.parts.len()) {
            let source = self.inner.open(&part_path(from, number)).await?;
            writer.copy_part(number, &*source).await?;
        }
        let mode = layout.parts.first().and_then(|first| first.mode);
        let metadata = Metadata { mode, ..Metadata::default() };
        let options = CommitOptions { metadata, replace: false, sync: false, expected: None };
        writer.commit(layout.size(), &options).await
    }
}

impl SplitWriter {
    /// Copies a whole part, within the kernel if possible.
    async fn copy_part(&self, number: u64, source: &dyn ReadAt) -> Result<()> {
        let part = self.part(number).await?;
        let range = Range::between(0, source.identity().size);
        if part.copy_from(source, range).await? {
            return Ok(());
        }
        let mut blocks = source.read_at(range);
        let mut offset = 0;
        while let Some(block) = blocks.next().await {
            let block = block?;
            let length = block.len() as u64;
            part.write_at(offset, block).await?;
            offset += length;
        }
        Ok(())
    }
}

#[async_trait]
impl Storage for SplitStorage {
    fn location(&self) -> &Location {
        self.shared.inner.location()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn set_lanes(&self, lanes: usize) {
        self.shared.inner.set_lanes(lanes);
    }

    fn link(&self) -> LinkStatus {
        self.shared.inner.link()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        let entry = self.shared.inner.stat(path).await?;
        self.shared.seen(entry).await
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        let mut outcomes = self.shared.inner.stat_many(paths).await;
        for outcome in &mut outcomes {
            if outcome.as_ref().is_ok_and(Entry::is_dir) {
                let found =
                    std::mem::replace(outcome, Err(Error::new(ErrorKind::NotFound, "stat")));
                *outcome = match found {
                    Ok(entry) => self.shared.seen(entry).await,
                    Err(error) => Err(error),
                };
            }
        }
        outcomes
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        let shared = &self.shared;
        if !shared.joins() {
            return shared.inner.list(path).await;
        }
        if shared.layout(path).await?.is_some() {
            return Err(shared.error(ErrorKind::NotADirectory, "list", path));
        }
        let batches = shared.inner.list(path).await?;
        let shared = Arc::clone(shared);
        let seen = batches.then(move |batch| {
            let shared = Arc::clone(&shared);
            async move { stream::iter(shared.seen_batch(batch).await) }
        });
        Ok(seen.flatten().boxed())
    }

    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        self.shared.inner.create_dir_as(path, mode).await
    }

    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()> {
        let shared = &self.shared;
        if let LinkKind::Hard(existing) = link
            && shared.layout(existing).await?.is_some()
        {
            let error = shared.error(ErrorKind::Unsupported, "create link", path);
            return Err(error.because("a split file cannot have hard links"));
        }
        shared.recover_if_split(path).await?;
        let outcome = shared.inner.create_link(path, link, replace).await;
        let again = || shared.inner.create_link(path, link, replace);
        shared.or_replace_via_rename(path, outcome, again).await
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        let shared = &self.shared;
        match shared.inner.remove(path).await {
            Err(error) if error.kind() == ErrorKind::NotEmpty => {
                let Some(layout) = shared.layout(path).await? else { return Err(error) };
                // From the end, so that an interrupted removal leaves a shorter file without gaps.
                for part in layout.parts.iter().rev() {
                    shared.inner.remove(&part.path).await?;
                }
                shared.inner.remove(path).await
            }
            outcome => outcome,
        }
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let shared = &self.shared;
        if !shared.joins() || from == to {
            return shared.inner.rename(from, to).await;
        }
        shared.recover_if_split(to).await?;
        match (shared.present(from).await?, shared.present(to).await?) {
            (from_kind @ (Present::File | Present::SplitFolder), Present::SplitFolder)
            | (from_kind @ Present::SplitFolder, Present::File | Present::Directory) => {
                let options = CommitOptions {
                    metadata: Metadata::default(),
                    replace: true,
                    sync: false,
                    expected: None,
                };
                let from = (from, from_kind == Present::SplitFolder);
                shared.rename_into_place(from, to, &options).await
            }
            _ => shared.inner.rename(from, to).await,
        }
    }

    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        self.shared.recover_if_split(to).await?;
        match self.shared.inner.copy(from, to).await {
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                self.shared.copy_parts(from, to).await
            }
            outcome => outcome,
        }
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        match self.shared.layout(path).await? {
            Some(_) => Ok(None),
            None => self.shared.inner.digest(path, kind).await,
        }
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        match self.shared.layout(path).await? {
            Some(_) => self.shared.inner.metadata(&part_path(path, 0)).await,
            None => self.shared.inner.metadata(path).await,
        }
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let Some(layout) = self.shared.layout(path).await? else {
            return self.shared.inner.set_metadata(path, metadata).await;
        };
        for part in &layout.parts {
            self.shared.inner.set_metadata(&part.path, metadata).await?;
        }
        Ok(())
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        match self.shared.inner.open(path).await {
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                let Some(layout) = self.shared.layout(path).await? else { return Err(error) };
                let shared = Arc::clone(&self.shared);
                Ok(Arc::new(SplitReader::stored(shared, path.clone(), &layout)))
            }
            opened => opened,
        }
    }

    async fn open_reading(&self, path: &RelPath, _: Range) -> Result<Arc<dyn ReadAt>> {
        self.open(path).await
    }

    fn prefetch(&self, path: &RelPath) {
        self.shared.inner.prefetch(path);
    }

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        self.shared.inner.part_name(path)
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        self.shared.create(path, options).await
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        match self.shared.inner.read_whole(path, limit).await {
            Err(error) if error.kind() == ErrorKind::IsADirectory => {
                let Some(layout) = self.shared.layout(path).await? else { return Err(error) };
                let size = layout.size();
                if size > limit {
                    let cause = format!("it has {size} bytes, expected at most {limit}");
                    return Err(self.shared.error(ErrorKind::Changed, "read", path).because(cause));
                }
                let reader = SplitReader::stored(Arc::clone(&self.shared), path.clone(), &layout);
                let mut whole = Block::new();
                let mut blocks = reader.read_at(Range::between(0, size));
                while let Some(block) = blocks.next().await {
                    whole.append(block?);
                }
                let entry = layout.entry(path);
                let (identity, metadata) = (entry.identity(), entry.metadata());
                Ok(Whole::new(whole.into_bytes(), identity, metadata))
            }
            whole => whole,
        }
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        let (shared, size) = (&self.shared, bytes.len() as u64);
        if shared.rule().is_none_or(|rule| size <= rule.longest) {
            shared.recover_if_split(path).await?;
            let options = &shared.compared(path, options).await?;
            let outcome = shared.inner.write_whole(path, bytes.clone(), options).await;
            let again = || shared.inner.write_whole(path, bytes, options);
            return shared.or_replace_via_rename(path, outcome, again).await;
        }
        let create = CreateOptions { size: Some(size), ..CreateOptions::default() };
        let writer = shared.create(path, &create).await?;
        let outcome = match writer.write_at(0, bytes.into()).await {
            Ok(()) => writer.commit(size, options).await,
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            // The first error is the one to report.
            let _ = writer.abort(false).await;
        }
        outcome
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        let mut outcomes = self.shared.inner.read_many(paths.clone(), limit).await;
        for (outcome, path) in outcomes.iter_mut().zip(&paths) {
            if is_a_directory(outcome) {
                *outcome = self.read_whole(path, limit).await;
            }
        }
        outcomes
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        let compares = files.iter().any(|file| file.options.replaced().is_some());
        if compares || self.shared.rule().is_some() {
            return self.write_each(files).await;
        }
        let mut outcomes = self.shared.inner.write_many(files.clone()).await;
        for (outcome, file) in outcomes.iter_mut().zip(files) {
            if is_a_directory(outcome) {
                *outcome = self.write_whole(&file.path, file.bytes, &file.options).await;
            }
        }
        outcomes
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        self.shared.inner.space(path).await
    }

    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        match self.shared.layout(path).await? {
            // Not computed for split files.
            Some(_) => Ok(None),
            None => self.shared.inner.allocated(path).await,
        }
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        self.shared.inner.lock(path).await
    }
}

/// A folder was found instead of a file: it may be a split file.
fn is_a_directory<T>(outcome: &Result<T>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::IsADirectory)
}
