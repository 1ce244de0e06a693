//! A storage with one flaw; everything else is passed to the storage inside.

#![expect(clippy::unwrap_used, reason = "it is part of a test")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use haul_storage::memory::MemoryStorage;
use haul_storage::{
    Block, BlockStream, Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry,
    EntryKind, EntryStream, Error, ErrorKind, Held, Identity, LinkKind, LinkStatus, Location, Lock,
    Metadata, Range, RangeSet, ReadAt, RelPath, Result, Retry, SmallFile, SourceVersion, Space,
    Storage, StorageExt, Whole, WriteAt, part_name,
};

/// The flaw of a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    CommitIgnoresReplace,
    CommitIgnoresSize,
    CommitForgetsMetadata,
    WholeIgnoresReplace,
    CommitIgnoresExpected,
    WholeIgnoresExpected,
    RefusedCommitIsRetried,
    WholeIgnoresLimit,
    WholeLosesLastByte,
    NameTakenBeforeCommit,
    PartFileRemainsAfterAbort,
    PartFileForgotten,
    PartFileAlwaysFound,
    PartFileNotEmptied,
    WrongBytesBehindABlockBorder,
    LastByteOfARangeMissing,
    RangeOverrun,
    BeyondTheEndIsAnError,
    RecheckIsStale,
    IdentityIsMadeUp,
    DataLeftOutOfExtents,
    WritesAreAppended,
    LongBlocksAreCutShort,
    LinksInPathsAreFollowed,
    LinksAreOpened,
    FilesAreWrittenThroughLinks,
    LinkReplacesUnrequested,
    HardLinksAreCopies,
    CopyReplaces,
    CopyFromDoesNothing,
    RenameLosesTheOld,
    RenameToItselfRemoves,
    RemoveTakesAll,
    RemoveOfNothingIsFine,
    CreateDirTwiceIsFine,
    CreateDirMakesParents,
    ListingStopsAfter1000,
    ListingRepeatsItself,
    ListingIsRecursive,
    ListingHasOtherTimes,
    NamesAreTrimmed,
    NamesAreDecoded,
    NotFoundIsIo,
    TimesAreRoundedUp,
    ModesAreMasked,
    SettingResetsTheRest,
    SettingTheImpossibleFails,
    AttributesAreLost,
    EveryLockIsGranted,
    LocksAreNeverReleased,
    LanesBreakIt,
    RecheckNeverEnds,
    FilesAreReplacedInPlace,
    PlantedPartFilesAreFollowed,
    RecordsAreLost,
    RecordsAreOfAnySource,
    RecordsAreMixed,
    RecordsOutliveTheirFile,
    DigestIsNotReported,
    DigestIsOfTheBeginning,
}

#[derive(Debug)]
pub struct Broken {
    inside: Arc<MemoryStorage>,
    claims: Capabilities,
    flaw: Option<Flaw>,
    /// Locks that are never released.
    stuck: Mutex<Vec<Lock>>,
    /// The ranges recorded for all files together.
    records: Arc<Mutex<RangeSet>>,
}

impl Broken {
    /// A storage that is correct except for one flaw.
    pub fn with(flaw: Flaw) -> Arc<Self> {
        let inside = MemoryStorage::builder().with_records().with_digests().build();
        let mut claims = inside.capabilities().clone();
        if flaw == Flaw::SettingTheImpossibleFails {
            claims.times = false;
        }
        Arc::new(Self {
            inside,
            claims,
            flaw: Some(flaw),
            stuck: Mutex::default(),
            records: Arc::default(),
        })
    }

    /// A storage without a flaw that declares `claims` instead of the capabilities of `inside`.
    pub fn claiming(inside: Arc<MemoryStorage>, claims: Capabilities) -> Arc<Self> {
        Arc::new(Self {
            inside,
            claims,
            flaw: None,
            stuck: Mutex::default(),
            records: Arc::default(),
        })
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The path that is actually used.
    async fn real(&self, path: &RelPath) -> RelPath {
        if self.is(Flaw::LinksInPathsAreFollowed) {
            let mut real = RelPath::root();
            for name in path.components() {
                if let Ok(Entry { kind: EntryKind::Symlink(target), .. }) =
                    self.inside.stat(&real).await
                {
                    real = real.with_name(target).unwrap_or(real);
                }
                real = real.join(name).unwrap();
            }
            return real;
        }
        let Ok(text) = std::str::from_utf8(path.as_bytes()) else { return path.clone() };
        let changed = match self.flaw {
            Some(Flaw::NamesAreTrimmed) => {
                text.split('/').map(str::trim).collect::<Vec<_>>().join("/")
            }
            Some(Flaw::NamesAreDecoded) => text.replace("%41", "A"),
            _ => return path.clone(),
        };
        RelPath::parse(changed).unwrap_or_else(|_| path.clone())
    }

    fn fold<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| match error.kind() {
            ErrorKind::Changed if self.is(Flaw::RefusedCommitIsRetried) => {
                error.with_retry(Retry::FromStart)
            }
            ErrorKind::NotFound if self.is(Flaw::NotFoundIsIo) => {
                Error::new(ErrorKind::Io, error.operation())
            }
            _ => error,
        })
    }
}

#[async_trait]
impl Storage for Broken {
    fn location(&self) -> &Location {
        self.inside.location()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.claims
    }

    fn set_lanes(&self, lanes: usize) {
        if lanes == 0 && self.is(Flaw::LanesBreakIt) {
            self.inside.faults().on_any().fail(ErrorKind::Unreachable);
        }
        self.inside.set_lanes(lanes);
    }

    fn link(&self) -> LinkStatus {
        self.inside.link()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        let entry = self.fold(self.inside.stat(&self.real(path).await).await)?;
        Ok(entry.at(path.clone()))
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        let mut entries = self.fold(self.inside.list_sorted(&self.real(path).await).await)?;
        match self.flaw {
            Some(Flaw::ListingStopsAfter1000) => entries.truncate(1000),
            Some(Flaw::ListingRepeatsItself) => entries.extend(entries.first().cloned()),
            Some(Flaw::ListingIsRecursive) => {
                for dir in entries.clone().iter().filter(|entry| entry.is_dir()) {
                    entries.extend(self.inside.list_sorted(&dir.path).await?);
                }
            }
            Some(Flaw::ListingHasOtherTimes) => {
                for time in entries.iter_mut().filter_map(|entry| entry.modified.as_mut()) {
                    time.seconds += 3600;
                }
            }
            _ => {}
        }
        Ok(stream::iter([Ok(entries)]).boxed())
    }

    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        let path = &self.real(path).await;
        if self.is(Flaw::CreateDirMakesParents)
            && let Some(parent) = path.parent()
        {
            self.inside.create_dir_all(&parent).await?;
        }
        match self.fold(self.inside.create_dir_as(path, mode).await) {
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists
                    && self.is(Flaw::CreateDirTwiceIsFine) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()> {
        let path = &self.real(path).await;
        let replace = replace || self.is(Flaw::LinkReplacesUnrequested);
        match link {
            LinkKind::Hard(target) if self.is(Flaw::HardLinksAreCopies) => {
                let whole = self.inside.read_whole(target, 1 << 30).await?;
                let options = CommitOptions {
                    metadata: whole.metadata,
                    replace,
                    sync: false,
                    expected: None,
                };
                self.inside.write_whole(path, whole.bytes, &options).await
            }
            _ => self.fold(self.inside.create_link(path, link, replace).await),
        }
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        let path = &self.real(path).await;
        if self.is(Flaw::RemoveTakesAll) {
            return self.inside.remove_all(path).await;
        }
        match self.fold(self.inside.remove(path).await) {
            Err(error)
                if error.kind() == ErrorKind::NotFound && self.is(Flaw::RemoveOfNothingIsFine) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let (from, to) = (&self.real(from).await, &self.real(to).await);
        if self.is(Flaw::RenameToItselfRemoves) && from == to {
            return self.inside.remove(from).await;
        }
        if self.is(Flaw::RenameLosesTheOld)
            && self.inside.find(to).await?.is_some_and(|old| old.is_dir())
        {
            self.inside.remove_all(to).await?;
        }
        self.fold(self.inside.rename(from, to).await)
    }

    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let (from, to) = (&self.real(from).await, &self.real(to).await);
        if self.is(Flaw::CopyReplaces) && self.inside.find(to).await?.is_some_and(|e| e.is_file()) {
            self.inside.remove(to).await?;
        }
        self.fold(self.inside.copy(from, to).await)
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        let path = &self.real(path).await;
        match self.flaw {
            Some(Flaw::DigestIsNotReported) => Ok(None),
            Some(Flaw::DigestIsOfTheBeginning) => {
                let whole = self.inside.read_whole(path, u64::MAX).await?;
                let beginning = &whole.bytes[..whole.bytes.len().min(65_536)];
                Ok(Some(Digest::of(kind, beginning)))
            }
            _ => self.fold(self.inside.digest(path, kind).await),
        }
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        self.fold(self.inside.metadata(&self.real(path).await).await)
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let path = &self.real(path).await;
        let mut metadata = metadata.clone();
        match self.flaw {
            Some(Flaw::TimesAreRoundedUp) => {
                if let Some(time) = &mut metadata.modified
                    && time.nanos == 999_999_999
                {
                    *time = haul_storage::Timestamp { seconds: time.seconds + 1, nanos: 0 };
                }
            }
            Some(Flaw::ModesAreMasked) => metadata.mode = metadata.mode.map(|mode| mode & !0o022),
            Some(Flaw::SettingResetsTheRest) => {
                metadata.mode = metadata.mode.or(Some(0o644));
            }
            Some(Flaw::SettingTheImpossibleFails) if metadata.modified.is_some() => {
                return Err(Error::new(ErrorKind::Unsupported, "set metadata"));
            }
            Some(Flaw::AttributesAreLost) => {
                if let Some(xattrs) = &mut metadata.xattrs {
                    xattrs.truncate(1);
                }
            }
            _ => {}
        }
        self.fold(self.inside.set_metadata(path, &metadata).await)
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let mut path = self.real(path).await;
        if self.is(Flaw::LinksAreOpened)
            && let EntryKind::Symlink(target) = self.inside.stat(&path).await?.kind
        {
            path = path.with_name(target).unwrap();
        }
        let inside = self.fold(self.inside.open(&path).await)?;
        let mut identity = inside.identity().clone();
        if self.is(Flaw::IdentityIsMadeUp) {
            identity.modified = None;
        }
        Ok(Arc::new(BrokenReader { inside, identity, flaw: self.flaw }))
    }

    async fn open_reading(&self, path: &RelPath, _: Range) -> Result<Arc<dyn ReadAt>> {
        self.open(path).await
    }

    fn prefetch(&self, path: &RelPath) {
        self.inside.prefetch(path);
    }

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        self.inside.part_name(path)
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        let mut path = self.real(path).await;
        if self.is(Flaw::FilesAreWrittenThroughLinks)
            && let Some(Entry { kind: EntryKind::Symlink(target), .. }) =
                self.inside.find(&path).await?
        {
            path = path.with_name(target).unwrap();
        }
        let mut options = options.clone();
        match self.flaw {
            Some(Flaw::PartFileForgotten) => options.resume = false,
            Some(Flaw::PartFileNotEmptied) => options.resume = true,
            _ => {}
        }
        if let Some(source) =
            options.source.as_mut().filter(|_| self.is(Flaw::RecordsAreOfAnySource))
        {
            *source = SourceVersion { name: "any".to_owned(), identity: Identity::default() };
        }
        let part = path.with_name(part_name(path.name())).unwrap();
        if self.is(Flaw::PlantedPartFilesAreFollowed)
            && let Some(Entry { kind: EntryKind::Symlink(target), .. }) =
                self.inside.find(&part).await?
        {
            self.inside.resize(path.with_name(target).unwrap().as_bytes(), 0);
        }
        let inside = self.fold(self.inside.create(&path, &options).await)?;
        if self.is(Flaw::NameTakenBeforeCommit) {
            self.inside.add_file(path.as_bytes(), "");
        }
        let mut held = inside.held().clone();
        if options.resume && held.is_recorded() {
            let mut wrong = match self.flaw {
                Some(Flaw::RecordsAreMixed) => self.records.lock().unwrap().clone(),
                _ => RangeSet::new(),
            };
            if self.is(Flaw::PartFileAlwaysFound) {
                wrong.insert(Range::new(0, 100));
            }
            if self.is(Flaw::RecordsOutliveTheirFile) && matches!(held, Held::StartedOver(_)) {
                wrong.insert(Range::new(0, 100));
            }
            if !wrong.is_empty() {
                held = Held::Ranges(wrong);
            }
        }
        let (end, records) = (AtomicU64::new(0), Arc::clone(&self.records));
        Ok(Arc::new(BrokenWriter { inside, held, flaw: self.flaw, end, records }))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let limit = if self.is(Flaw::WholeIgnoresLimit) { u64::MAX } else { limit };
        let mut whole = self.fold(self.inside.read_whole(&self.real(path).await, limit).await)?;
        if self.is(Flaw::WholeLosesLastByte) && whole.bytes.len() == 4097 {
            whole.bytes.truncate(4096);
        }
        Ok(whole)
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        let mut options = options.clone();
        if self.is(Flaw::WholeIgnoresReplace) {
            options.replace = true;
        }
        if self.is(Flaw::WholeIgnoresExpected) {
            options.expected = None;
        }
        if self.is(Flaw::FilesAreReplacedInPlace)
            && options.replace
            && self.inside.find(path).await?.is_some_and(|old| old.is_file())
        {
            self.inside.resize(path.as_bytes(), 0);
            self.inside.overwrite(path.as_bytes(), 0, bytes);
            return Ok(());
        }
        self.fold(self.inside.write_whole(&self.real(path).await, bytes, &options).await)
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        self.read_each(paths, limit).await
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        self.write_each(files).await
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        self.inside.space(&self.real(path).await).await
    }

    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        self.inside.allocated(&self.real(path).await).await
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        match self.flaw {
            Some(Flaw::EveryLockIsGranted) => Ok(Lock::new(())),
            Some(Flaw::LocksAreNeverReleased) => {
                let lock = self.inside.lock(path).await?;
                self.stuck.lock().unwrap().push(lock);
                Ok(Lock::new(()))
            }
            _ => self.fold(self.inside.lock(&self.real(path).await).await),
        }
    }
}

#[derive(Debug)]
struct BrokenReader {
    inside: Arc<dyn ReadAt>,
    identity: Identity,
    flaw: Option<Flaw>,
}

#[async_trait]
impl ReadAt for BrokenReader {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        self.inside.is_ranged()
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.inside.metadata().await
    }

    async fn recheck(&self) -> Result<Identity> {
        match self.flaw {
            Some(Flaw::RecheckIsStale) => Ok(self.identity.clone()),
            Some(Flaw::RecheckNeverEnds) => std::future::pending().await,
            _ => self.inside.recheck().await,
        }
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        self.inside.grown().await
    }

    fn read_at(&self, range: Range) -> BlockStream {
        const BORDER: u64 = 1 << 20;
        let size = self.identity.size;
        match self.flaw {
            Some(Flaw::WrongBytesBehindABlockBorder)
                if range.start() < BORDER && range.end().min(size) > BORDER =>
            {
                let head = self.inside.read_at(Range::between(range.start(), BORDER));
                let tail = Range::between(BORDER, range.end().min(size));
                let wrong = self.inside.read_at(Range::new(tail.start() - 1, tail.len()));
                head.chain(wrong).boxed()
            }
            Some(Flaw::LastByteOfARangeMissing) if range.len() == 32_769 => {
                self.inside.read_at(Range::new(range.start(), range.len() - 1))
            }
            Some(Flaw::RangeOverrun) if range.len() == 1025 => {
                self.inside.read_at(Range::new(range.start(), range.len() + 1))
            }
            Some(Flaw::BeyondTheEndIsAnError) if range.start() > size => {
                stream::iter([Err(Error::new(ErrorKind::InvalidInput, "read"))]).boxed()
            }
            _ => self.inside.read_at(range),
        }
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        let found = self.inside.next_data(from).await?;
        if self.flaw == Some(Flaw::DataLeftOutOfExtents) {
            return Ok(found.filter(|data| data.len() != 10).or(self.inside.next_data(10).await?));
        }
        Ok(found)
    }
}

#[derive(Debug)]
struct BrokenWriter {
    inside: Arc<dyn WriteAt>,
    held: Held,
    flaw: Option<Flaw>,
    end: AtomicU64,
    records: Arc<Mutex<RangeSet>>,
}

#[async_trait]
impl WriteAt for BrokenWriter {
    fn held(&self) -> &Held {
        &self.held
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        ranges.iter().for_each(|range| self.records.lock().unwrap().insert(range));
        if self.flaw == Some(Flaw::RecordsAreLost) {
            return Ok(());
        }
        self.inside.record(ranges).await
    }

    async fn write_at(&self, offset: u64, mut block: Block) -> Result<()> {
        let end = self.end.fetch_add(block.len() as u64, Ordering::SeqCst);
        match self.flaw {
            Some(Flaw::WritesAreAppended) => self.inside.write_at(end, block).await,
            Some(Flaw::LongBlocksAreCutShort) => {
                let length = block.pieces().iter().take(1024).map(Bytes::len).sum();
                block.truncate(length);
                self.inside.write_at(offset, block).await
            }
            _ => self.inside.write_at(offset, block).await,
        }
    }

    async fn copy_from(&self, source: &dyn ReadAt, range: Range) -> Result<bool> {
        if self.flaw == Some(Flaw::CopyFromDoesNothing) {
            return Ok(true);
        }
        let blocks: Vec<Block> = source.read_at(range).try_collect().await?;
        let mut offset = range.start();
        for block in blocks {
            let length = block.len() as u64;
            self.inside.write_at(offset, block).await?;
            offset += length;
        }
        Ok(true)
    }

    async fn sync(&self) -> Result<()> {
        self.inside.sync().await
    }

    async fn reopen(&self, uncached: bool) -> Result<Arc<dyn ReadAt>> {
        self.inside.reopen(uncached).await
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let mut options = options.clone();
        if matches!(self.flaw, Some(Flaw::CommitIgnoresReplace | Flaw::NameTakenBeforeCommit)) {
            options.replace = true;
        }
        if self.flaw == Some(Flaw::CommitForgetsMetadata) {
            options.metadata = Metadata::default();
        }
        if self.flaw == Some(Flaw::CommitIgnoresExpected) {
            options.expected = None;
        }
        let written = self.end.load(Ordering::SeqCst);
        let longer = self.flaw == Some(Flaw::CommitIgnoresSize) && written > size;
        let committed = self.inside.commit(if longer { written } else { size }, &options).await;
        committed.map_err(|error| match self.flaw {
            Some(Flaw::RefusedCommitIsRetried) => error.with_retry(Retry::FromStart),
            _ => error,
        })
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        self.inside.abort(keep || self.flaw == Some(Flaw::PartFileRemainsAfterAbort)).await
    }
}
