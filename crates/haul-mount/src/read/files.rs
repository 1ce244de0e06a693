//! The open files, by the numbers that the kernel has for them.
//!
//! The kernel caches pages per file, not per version: data that it reads through one handle is seen through the others.
//! So its pages stay valid at an OPEN only if the last one was for the same version, and no process has another version
//! open. As long as one does, the file is opened for direct I/O, which bypasses the pages.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use haul_storage::{
    Block, Error, ErrorKind, Identity, Range, ReadAt, RelPath, Result, UNKNOWN_SIZE,
};
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::blocks::{Key, STEP};
use super::context::Context;
use super::expected::Expected;
use super::source::Source;
use crate::lock::lock;
use crate::status::{OpenFile, Status};

/// Most versions of files that are remembered, so that their blocks are found again.
const MOST_VERSIONS: usize = 10_000;

/// Most open files that the status lists.
pub(crate) const MOST_LISTED: usize = 1_000;

/// The open files.
#[derive(Debug)]
pub(crate) struct Files {
    opener: Arc<Opener>,
    handles: Mutex<Handles>,
    /// Files that are opened ahead.
    expected: Mutex<Expected<Ahead>>,
    started: Instant,
}

#[derive(Debug, Default)]
struct Handles {
    open: HashMap<u64, Arc<Handle>>,
    next: u64,
}

/// A file that is open.
#[derive(Debug)]
struct Handle {
    path: RelPath,
    content: Mutex<Content>,
    /// Whether it is a handle of the kernel, which reads the added bytes if the file grows.
    follows: bool,
    /// Bytes that were read.
    read: AtomicU64,
}

/// A file that is being opened ahead. Dropping it cancels that.
#[derive(Debug)]
struct Ahead(JoinHandle<Result<Content>>);

impl Drop for Ahead {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens files, and finds those that are open already.
#[derive(Debug)]
struct Opener {
    context: Arc<Context>,
    runtime: Runtime,
    /// Longest file that is read as a whole.
    most_whole: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The latest version of each file that is open.
    open: HashMap<RelPath, Weak<Source>>,
    /// Earlier versions that may still be open.
    outdated: HashMap<RelPath, Vec<Weak<Source>>>,
    versions: Versions,
}

/// The content of an open file.
#[derive(Debug, Clone)]
enum Content {
    /// It is read in ranges.
    Ranged(Arc<Source>),
    /// It was read as a whole: its server has no ranges, or does not know its size.
    Whole(Arc<Whole>),
}

/// A file that was read as a whole.
#[derive(Debug)]
struct Whole {
    bytes: Bytes,
    /// Its size differs from the one that the server reports.
    has_other_size: bool,
    _room: Room,
}

/// Room for the content of a file that is read as a whole, until it is dropped.
#[derive(Debug)]
struct Room {
    context: Arc<Context>,
    bytes: u64,
}

impl Room {
    /// `None` if other files take too much of it.
    fn take(context: &Arc<Context>, bytes: u64) -> Option<Self> {
        let has_room = context.blocks().pin(bytes);
        has_room.then(|| Self { context: Arc::clone(context), bytes })
    }

    /// Releases all but `bytes` bytes.
    fn shrink(&mut self, bytes: u64) {
        self.context.blocks().unpin(self.bytes.saturating_sub(bytes));
        self.bytes = self.bytes.min(bytes);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.context.blocks().unpin(self.bytes);
    }
}

/// A file that was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Its number.
    pub(crate) handle: u64,
    /// It is the same version as before, so that the kernel's pages and size are still right.
    pub(crate) is_same: bool,
    /// Its length in bytes.
    pub(crate) size: u64,
    /// The kernel has to read without pages: the size differs from the one that the server reports, or a process has
    /// another version open.
    pub(crate) is_direct: bool,
}

impl Files {
    /// No open files. `memory` is the budget of `context`.
    pub(crate) fn new(context: &Arc<Context>, memory: u64, runtime: &Runtime) -> Self {
        let (context, runtime) = (Arc::clone(context), runtime.clone());
        let opener = Opener { context, runtime, most_whole: memory / 4, state: Mutex::default() };
        let (handles, expected) = (Mutex::default(), Mutex::default());
        Self { opener: Arc::new(opener), handles, expected, started: Instant::now() }
    }

    /// A path is looked up: opens it ahead, if lookups tend to be followed by opens.
    pub(crate) fn expect(&self, path: &RelPath) {
        let now = self.started.elapsed();
        let mut expected = lock(&self.expected);
        let (is_expected, unused) = expected.on_lookup(path, now);
        if is_expected {
            let (opener, opened) = (Arc::clone(&self.opener), path.clone());
            let task = self.opener.runtime.spawn(async move {
                let source = opener.open_ahead(&opened).await?;
                source.fetch_head();
                Ok::<_, Error>(Content::Ranged(source))
            });
            expected.add(path.clone(), now, Ahead(task));
        }
        drop(expected);
        // Outside the lock: this abandons what is in flight.
        drop(unused);
    }

    /// A path that was looked up is no file.
    pub(crate) fn cancel_expected(&self, path: &RelPath) {
        let ahead = lock(&self.expected).on_other(path);
        drop(ahead);
    }

    /// Opens a file.
    pub(crate) async fn open(&self, path: &RelPath) -> Result<Opened> {
        let ahead = lock(&self.expected).on_open(path, self.started.elapsed());
        let ahead = match ahead {
            // If that failed, the request that follows reports it.
            Some(mut ahead) => (&mut ahead.0).await.ok().and_then(Result::ok),
            None => None,
        };
        let content = match ahead {
            Some(content) => content,
            None => self.opener.open(path).await?,
        };
        if let Content::Ranged(source) = &content {
            // The first block comes along with the open, unless it is in memory.
            source.fetch_head();
        }
        let (is_same, is_direct) = match &content {
            Content::Ranged(source) => self.opener.pages(source),
            Content::Whole(whole) => (false, whole.has_other_size),
        };
        let size = content.size();
        let handle = lock(&self.handles).add(path.clone(), content, true);
        Ok(Opened { handle, is_same, size, is_direct })
    }

    /// Opens the present version of a file for this program, not for the kernel, without an effect on the kernel's
    /// pages. Returns its number.
    pub(crate) async fn open_anew(&self, path: &RelPath) -> Result<u64> {
        let content = self.opener.open(path).await?;
        Ok(lock(&self.handles).add(path.clone(), content, false))
    }

    /// The response to an OPEN was not delivered: the kernel still has the pages of an earlier version, and will not
    /// close the file.
    pub(crate) fn undelivered(&self, handle: u64) {
        self.mark_mixed(handle);
        self.release(handle);
    }

    /// The kernel's pages of an open file may get other contents than its version has, so the next handle does not use
    /// them. The caller opens this one without `keep_cache`.
    pub(crate) fn mark_mixed(&self, handle: u64) {
        if let Some(file) = self.handle(handle)
            && let Content::Ranged(source) = file.content()
        {
            lock(&self.opener.state).versions.show(&source, false);
        }
    }

    /// The content at a path was changed through this mount. The next version is a new one even if its size and its
    /// time in seconds are those of the one before.
    pub(crate) fn changed(&self, path: &RelPath) {
        let ahead = lock(&self.expected).on_other(path);
        drop(ahead);
        lock(&self.opener.state).forget(path);
    }

    /// Like [`Files::changed`], for all files at or below a path.
    pub(crate) fn changed_below(&self, path: &RelPath) {
        let ahead = lock(&self.expected).on_change(path);
        drop(ahead);
        let mut state = lock(&self.opener.state);
        let known = state.versions.known.keys().chain(state.open.keys());
        let below: Vec<_> = known.filter(|known| known.starts_with(path)).cloned().collect();
        below.iter().for_each(|path| state.forget(path));
    }

    /// Path and length of an open file.
    pub(crate) fn described(&self, handle: u64) -> Option<(RelPath, u64)> {
        let file = self.handle(handle)?;
        Some((file.path.clone(), file.content().size()))
    }

    /// Path and length of an open file, if a read goes beyond its end; `None` if not, if the file was read as a
    /// whole, or if the handle never follows.
    pub(crate) fn ended(&self, handle: u64, range: Range) -> Option<(RelPath, u64)> {
        let file = self.handle(handle).filter(|file| file.follows)?;
        match file.content() {
            Content::Ranged(source) if range.end() > source.identity().size => {
                Some((file.path.clone(), source.identity().size))
            }
            _ => None,
        }
    }

    /// Programs see a longer file than the one that a handle reads. If that is the file which was opened, and not one
    /// that has taken its name, all handles of the kernel to this version read the present one from now on.
    pub(crate) async fn follow(&self, handle: u64) {
        let Some(Content::Ranged(old)) = self.handle(handle).map(|file| file.content()) else {
            return;
        };
        let Some(reader) = old.grown().await else { return };
        let new = self.opener.source(old.path(), reader);
        for file in lock(&self.handles).open.values().filter(|file| file.follows) {
            file.replace(&old, &new);
        }
        // `old` is dropped here, outside the locks: this abandons what is in flight.
    }

    /// Reads what is in memory; `None` if anything has to be fetched.
    pub(crate) fn read_now(&self, handle: u64, range: Range) -> Option<Block> {
        let file = self.handle(handle)?;
        let block = match file.content() {
            Content::Ranged(source) => source.read_now(range),
            Content::Whole(whole) => Some(cut(&whole.bytes, range)),
        };
        block.inspect(|block| file.count(block))
    }

    /// Reads a range; shorter only at the end of the file.
    pub(crate) async fn read(&self, handle: u64, range: Range) -> Result<Block> {
        let file = self.handle(handle);
        let file = file.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "read"))?;
        let block = match file.content() {
            Content::Ranged(source) => source.read(range).await?,
            Content::Whole(whole) => cut(&whole.bytes, range),
        };
        file.count(&block);
        Ok(block)
    }

    /// The state of the mount.
    pub(crate) fn status(&self) -> Status {
        let (mut files, count) = {
            let handles = lock(&self.handles);
            let described = handles.open.iter().map(|(handle, file)| {
                let read = file.read.load(Ordering::Relaxed);
                OpenFile::new(*handle, file.path.clone(), file.content().size(), read)
            });
            (described.take(MOST_LISTED).collect::<Vec<_>>(), handles.open.len())
        };
        files.sort_by_key(|file| file.handle);
        self.opener.context.status(files, count)
    }

    /// An open file. It is shared so that the lock is not held while blocks are looked up.
    fn handle(&self, handle: u64) -> Option<Arc<Handle>> {
        lock(&self.handles).open.get(&handle).cloned()
    }

    /// Closes a file.
    pub(crate) fn release(&self, handle: u64) {
        let (closed, left) = {
            let mut handles = lock(&self.handles);
            (handles.open.remove(&handle), handles.open.len())
        };
        // Outside the lock: this abandons what is in flight.
        drop(closed);
        self.opener.forget_closed(left);
    }
}

impl Opener {
    async fn open(&self, path: &RelPath) -> Result<Content> {
        let reader = self.reader(path).await?;
        let size = reader.identity().size;
        match has_ranges(&*reader) {
            true => Ok(Content::Ranged(self.source(path, reader))),
            false => Ok(Content::Whole(Arc::new(self.open_whole(path, size).await?))),
        }
    }

    /// Opens a file ahead. Fails if it would have to be read as a whole: that is too much for a file that may never be
    /// opened.
    async fn open_ahead(&self, path: &RelPath) -> Result<Arc<Source>> {
        let reader = self.reader(path).await?;
        match has_ranges(&*reader) {
            true => Ok(self.source(path, reader)),
            false => Err(Error::new(ErrorKind::Unsupported, "open")),
        }
    }

    /// Opens a file at the storage; the first blocks are requested in the same flight, unless the first one of the
    /// last known version is in memory.
    async fn reader(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let latest = lock(&self.state).versions.latest(path);
        let has_head = latest.is_some_and(|number| {
            self.context.blocks().contains(Key { version: number, index: 0 })
        });
        let first = Range::new(0, if has_head { 0 } else { STEP });
        self.context.storage.open_reading(path, first).await
    }

    async fn open_whole(&self, path: &RelPath, size: u64) -> Result<Whole> {
        let failed = |kind, cause: &str| {
            let at = self.context.storage.location().display(path);
            Error::new(kind, "open").at(at).because(cause)
        };
        let mut limit = size.min(self.most_whole);
        loop {
            // This is retried: other files are closed sooner or later.
            let full = "other files that have to be read as a whole take the memory";
            let room = Room::take(&self.context, limit);
            let mut room = room.ok_or_else(|| failed(ErrorKind::Busy, full))?;
            let whole = match self.context.storage.read_whole(path, limit).await {
                Ok(whole) => whole,
                // It has grown.
                Err(error) if error.kind() == ErrorKind::Changed && limit < self.most_whole => {
                    limit = self.most_whole;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Changed => {
                    let long =
                        "the server sends it only from its start, and it is too long for that";
                    return Err(failed(ErrorKind::Unsupported, long));
                }
                Err(error) => return Err(error),
            };
            let length = whole.bytes.len() as u64;
            room.shrink(length);
            let (bytes, has_other_size) = (whole.bytes, length != size);
            return Ok(Whole { bytes, has_other_size, _room: room });
        }
    }

    /// What the kernel may do with its pages of a file that is opened: whether they are of this version, and whether it
    /// has to read without them, because a process reads another version into them.
    fn pages(&self, source: &Source) -> (bool, bool) {
        let mut state = lock(&self.state);
        let is_mixed = state.has_other(source);
        let was_shown = state.versions.show(source, !is_mixed);
        (was_shown && !is_mixed, is_mixed)
    }

    /// The source of a file that `reader` has opened: an existing one, if it is the same version.
    fn source(&self, path: &RelPath, reader: Arc<dyn ReadAt>) -> Arc<Source> {
        let mut state = lock(&self.state);
        if let Some(source) = state.open.get(path).and_then(Weak::upgrade)
            && source.identity() == reader.identity()
            && source.identity().distinguishes_versions()
        {
            return source;
        }
        let known = state.versions.get(path, reader.identity());
        let number = known.unwrap_or_else(|| self.context.next_version());
        if known.is_none() {
            state.versions.put(path, reader.identity(), number);
        }
        let source = Source::new(&self.context, path.clone(), reader, number, &self.runtime);
        let earlier = state.open.insert(path.clone(), Arc::downgrade(&source));
        if let Some(earlier) = earlier.filter(|earlier| earlier.strong_count() > 0) {
            state.outdated.entry(path.clone()).or_default().push(earlier);
        }
        source
    }

    /// Drops entries of files that are closed, if there are many. `open` is the number of open files.
    fn forget_closed(&self, open: usize) {
        let mut state = lock(&self.state);
        if state.open.len() > 2 * open + 64 {
            state.open.retain(|_, source| source.strong_count() > 0);
        }
        if state.outdated.len() > open + 64 {
            state.outdated.retain(|_, earlier| {
                earlier.retain(|source| source.strong_count() > 0);
                !earlier.is_empty()
            });
        }
    }
}

impl State {
    /// Whether another version of a file is open.
    fn has_other(&mut self, source: &Source) -> bool {
        let path = source.path();
        if let Some(earlier) = self.outdated.get_mut(path) {
            earlier.retain(|one| one.strong_count() > 0);
            if earlier.is_empty() {
                self.outdated.remove(path);
            }
        }
        let all = self.outdated.get(path).into_iter().flatten().chain(self.open.get(path));
        let mut open = all.filter_map(Weak::upgrade);
        // After a change through this mount, versions that look the same have different numbers.
        let can_distinguish = source.identity().distinguishes_versions();
        let is_other = |one: &Source| can_distinguish && one.number() != source.number();
        open.any(|one| one.identity() != source.identity() || is_other(&one))
    }

    /// Forgets the versions of a file. Those that are open are earlier ones from now on.
    fn forget(&mut self, path: &RelPath) {
        self.versions.known.remove(path);
        if let Some(open) = self.open.remove(path).filter(|open| open.strong_count() > 0) {
            self.outdated.entry(path.clone()).or_default().push(open);
        }
    }
}

/// Whether a file can be read in ranges.
fn has_ranges(reader: &dyn ReadAt) -> bool {
    reader.is_ranged() && reader.identity().size != UNKNOWN_SIZE
}

impl Handles {
    fn add(&mut self, path: RelPath, content: Content, follows: bool) -> u64 {
        self.next += 1;
        let (content, read) = (Mutex::new(content), AtomicU64::new(0));
        let handle = Handle { path, content, follows, read };
        self.open.insert(self.next, Arc::new(handle));
        self.next
    }
}

impl Handle {
    fn content(&self) -> Content {
        lock(&self.content).clone()
    }

    /// Reads another version from now on, if it reads `old`.
    fn replace(&self, old: &Arc<Source>, new: &Arc<Source>) {
        let mut content = lock(&self.content);
        if matches!(&*content, Content::Ranged(source) if Arc::ptr_eq(source, old)) {
            *content = Content::Ranged(Arc::clone(new));
        }
    }

    fn count(&self, block: &Block) {
        self.read.fetch_add(block.len() as u64, Ordering::Relaxed);
    }
}

impl Content {
    fn size(&self) -> u64 {
        match self {
            Self::Ranged(source) => source.identity().size,
            Self::Whole(whole) => whole.bytes.len() as u64,
        }
    }
}

fn cut(bytes: &Bytes, range: Range) -> Block {
    let at = |offset| usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
    Block::from(bytes.slice(at(range.start())..at(range.end())))
}

/// The last known version of each file.
#[derive(Debug, Default)]
struct Versions {
    known: HashMap<RelPath, Known>,
    /// In the order of their insertion.
    order: VecDeque<(RelPath, u64)>,
}

#[derive(Debug)]
struct Known {
    identity: Identity,
    number: u64,
    /// Whether the kernel's pages of the file are of this version.
    is_shown: bool,
}

impl Versions {
    /// The number of this version, if it is the last known one and can be distinguished from others.
    fn get(&self, path: &RelPath, identity: &Identity) -> Option<u64> {
        let known = self.known.get(path)?;
        (known.identity == *identity && identity.distinguishes_versions()).then_some(known.number)
    }

    /// The number of the last known version of a file.
    fn latest(&self, path: &RelPath) -> Option<u64> {
        self.known.get(path).map(|known| known.number)
    }

    /// Sets whether pages of the kernel are of this version. Returns whether they were.
    fn show(&mut self, source: &Source, is_shown: bool) -> bool {
        match self.known.get_mut(source.path()) {
            Some(known) if known.number == source.number() => {
                std::mem::replace(&mut known.is_shown, is_shown)
            }
            _ => false,
        }
    }

    fn put(&mut self, path: &RelPath, identity: &Identity, number: u64) {
        let known = Known { identity: identity.clone(), number, is_shown: false };
        self.known.insert(path.clone(), known);
        self.order.push_back((path.clone(), number));
        while self.order.len() > MOST_VERSIONS {
            let Some((path, number)) = self.order.pop_front() else { return };
            if self.known.get(&path).is_some_and(|known| known.number == number) {
                self.known.remove(&path);
            }
        }
    }
}
