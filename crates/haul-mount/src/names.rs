//! Nodes and the entries at their paths: from the spool first, then the cache of attributes, then the storage.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, RelPath, Result, Retry, SpecialKind, Storage,
};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::attributes::{Ages, AttributeCache, Known};
use crate::directory::Directory;
use crate::fuse::{Attributes, Kind, NAME_MAX, ROOT, Reply, attributes, entry, no_entry};
use crate::listed::{Listed, MOST_NAMES};
use crate::lock::lock;
use crate::refresh::Refreshes;
use crate::survey::Survey;
use crate::tree::Tree;
use crate::write::Overlay;

/// Number of nodes from which listings add no more, about 300 bytes each.
const MOST_NODES: usize = 200_000;

/// The pause before a request to the storage is repeated; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// How long the kernel may use attributes of a file in the spool.
const LOCAL_AGE: Duration = Duration::from_secs(1);

/// How entries are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown {
    /// User and group of all entries.
    pub(crate) owner: (u32, u32),
    /// Permission bits that no entry but a link has.
    pub(crate) umask: u32,
    /// How long attributes are used.
    pub(crate) ages: Ages,
    /// A request fails after this time.
    pub(crate) timeout: Duration,
}

/// The names of a directory of a storage.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) root: RelPath,
    pub(crate) shown: Shown,
    started: Instant,
    tree: Mutex<Tree>,
    cache: Arc<Mutex<AttributeCache>>,
    survey: Survey,
    refreshes: Option<Refreshes>,
    local: Option<Local>,
    runtime: Handle,
}

/// The state of a mount that can be written.
#[derive(Debug)]
struct Local {
    overlay: Arc<Overlay>,
    listed: Mutex<Listed>,
}

impl Names {
    /// The directory `root` of a storage. With an `overlay`, its files are shown instead of the storage's.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        root: RelPath,
        shown: Shown,
        overlay: Option<Arc<Overlay>>,
        runtime: &Handle,
    ) -> Arc<Self> {
        let started = Instant::now();
        let cache = Arc::new(Mutex::new(AttributeCache::new(shown.ages)));
        let survey = Survey::new(&storage, &cache, started, shown.timeout, runtime);
        survey.begin(&root);
        let refreshes = Refreshes::new(&storage, &cache, started, runtime);
        Arc::new(Self {
            storage,
            root,
            shown,
            started,
            tree: Mutex::new(Tree::new(MOST_NODES)),
            cache,
            survey,
            refreshes,
            local: overlay.map(|overlay| {
                let listed = Mutex::new(Listed::new(shown.ages.entry));
                Local { overlay, listed }
            }),
            runtime: runtime.clone(),
        })
    }

    /// The time since this was created.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The table of nodes.
    pub(crate) fn tree(&self) -> std::sync::MutexGuard<'_, Tree> {
        lock(&self.tree)
    }

    /// The path of a node in the storage.
    pub(crate) fn path(&self, node: u64) -> Result<RelPath, Errno> {
        let path = self.tree().path(node).ok_or(Errno::STALE)?;
        Ok(self.root.join_path(&path))
    }

    /// The path of a name in the directory `parent`.
    pub(crate) fn path_below(&self, parent: u64, name: &[u8]) -> Result<RelPath, Errno> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.path(parent)?.join(name).map_err(|_| Errno::NOENT)
    }

    /// What is known about a path without a request.
    pub(crate) fn cached(&self, path: &RelPath) -> Option<Known> {
        if let Some(local) = &self.local
            && let Some(entry) = local.overlay.entry(path)
        {
            let valid = LOCAL_AGE.min(self.shown.ages.entry);
            return Some(Known { entry: Some(entry), valid });
        }
        let now = self.now();
        let known = lock(&self.cache).get(path, now);
        if known.is_some() {
            return known;
        }
        let listed = || lock(&self.local.as_ref()?.listed).missing(path, now);
        let valid = self.survey.missing(path, now).or_else(listed)?;
        Some(Known { entry: None, valid })
    }

    /// A file is read: its attributes are requested again before they expire.
    pub(crate) fn on_read(&self, node: u64) {
        let Some(refreshes) = &self.refreshes else { return };
        let Ok(path) = self.path(node) else { return };
        let known = lock(&self.cache).get(&path, self.now());
        if let Some(Known { entry: Some(_), valid }) = known
            && !self.is_local(&path)
        {
            refreshes.on_read(&path, valid);
        }
    }

    /// A path is looked up, and nothing is known about it.
    pub(crate) fn looked_up(&self, path: &RelPath) {
        self.survey.looked_up(path);
    }

    /// The entry at a path, or its absence: from memory, or by a request.
    pub(crate) async fn known(self: &Arc<Self>, path: &RelPath) -> Result<Known> {
        if let Some(known) = self.cached(path) {
            return Ok(known);
        }
        let mut requested = pin!(self.requested(path));
        tokio::select! {
            biased;
            known = &mut requested => return known,
            // A listing that has been in flight for longer may arrive first.
            () = self.survey.listed(path) => {}
        }
        match self.cached(path) {
            Some(known) => Ok(known),
            None => requested.await,
        }
    }

    /// The entry at a path of the storage, or its absence, by a request.
    pub(crate) async fn requested(self: &Arc<Self>, path: &RelPath) -> Result<Known> {
        let at = self.now();
        let entry = match self.retried(|| self.storage.stat(path)).await {
            Ok(entry) => Some(Arc::new(entry)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            // Some servers describe only what is below their root.
            Err(error) if error.kind() == ErrorKind::Unsupported && *path == self.root => {
                Some(Arc::new(Entry::new(path.clone(), EntryKind::Directory, 0)))
            }
            Err(error) => return Err(error),
        };
        if entry.is_none() {
            self.list_parent(path);
        }
        let valid = lock(&self.cache).put(path, entry.clone(), at, self.now());
        Ok(Known { entry, valid })
    }

    /// Reads a directory as far as the entry at a position, which it returns.
    ///
    /// # Errors
    /// If the listing failed before its end. The next call begins it anew.
    pub(crate) async fn listed(
        &self,
        directory: &mut Directory,
        position: u64,
    ) -> Result<Option<Arc<Entry>>> {
        if directory.is_new() {
            let listed = self.survey.read(directory.path()).await;
            if let Some(entries) = listed {
                directory.fill(&entries);
            }
        }
        let requested = self.now();
        if directory.is_new() {
            directory.begin(requested);
        }
        let note = |batch: &[Arc<Entry>]| {
            lock(&self.cache).put_listed(batch.iter(), requested, self.now());
        };
        let found = directory.entry(&*self.storage, position, note).await?;
        if let Some((began, entries)) = directory.take_whole() {
            self.survey.hold(directory.path(), began, entries);
        }
        Ok(found)
    }

    /// Records that an entry was changed or removed here, just now.
    pub(crate) fn record(&self, path: &RelPath, entry: Option<Arc<Entry>>) {
        let now = self.now();
        lock(&self.cache).put(path, entry, now, now);
        self.changed(path);
    }

    /// A file of this size was opened. If attributes show another size, it has changed since they were requested.
    pub(crate) fn opened(&self, path: &RelPath, size: u64) {
        let known = self.cached(path).and_then(|known| known.entry);
        if known.is_some_and(|entry| entry.known_size() != Some(size)) {
            self.forget(path);
        }
    }

    /// Forgets what the storage has reported about a path.
    pub(crate) fn forget(&self, path: &RelPath) {
        lock(&self.cache).change(path, self.now());
        self.changed(path);
    }

    /// Listings that were requested before no longer hold for a path: it may exist even if they do not have it.
    fn changed(&self, path: &RelPath) {
        self.survey.changed(path);
        if let Some(local) = &self.local {
            lock(&local.listed).changed(path);
        }
    }

    /// Forgets what the storage has reported about a directory and all below it.
    pub(crate) fn forget_below(&self, path: &RelPath) {
        lock(&self.cache).change_below(path, self.now());
        self.changed(path);
        if let Some(local) = &self.local {
            lock(&local.listed).forget(path);
        }
    }

    /// The node of a file follows it to another name in its directory. Returns the directory's node and the name
    /// before, for which the kernel may know the node.
    pub(crate) fn move_node(&self, from: &RelPath, to: &RelPath) -> Option<(u64, Vec<u8>)> {
        let path = from.relative_to(&self.root)?;
        let mut tree = self.tree();
        let parent = tree.find_path(&path.parent()?)?;
        tree.find(parent, path.name())?;
        tree.rename((parent, path.name()), (parent, to.name()));
        Some((parent, path.name().to_vec()))
    }

    /// An entry was created here.
    pub(crate) fn created(&self, path: &RelPath) {
        self.forget(path);
        self.changed_in_parent(path);
    }

    /// An entry was removed here.
    pub(crate) fn forget_removed(&self, path: &RelPath) {
        self.record(path, None);
        self.changed_in_parent(path);
    }

    /// The directory of a path has other entries than before, and so another modification time. Its listing holds for
    /// all names that were not changed themselves.
    pub(crate) fn changed_in_parent(&self, path: &RelPath) {
        if let Some(parent) = path.parent() {
            lock(&self.cache).change(&parent, self.now());
            self.survey.changed_attributes(&parent);
        }
    }

    /// An empty directory was created here.
    pub(crate) fn created_directory(&self, path: &RelPath) {
        self.forget(path);
        self.survey.created_empty(path);
        self.changed_in_parent(path);
        if let Some(local) = &self.local {
            lock(&local.listed).created_empty(path, self.now());
        }
    }

    /// Whether programs may see a longer file than the version that a handle reads. `ended`: path and length of that
    /// version, if a read goes beyond its end.
    pub(crate) fn outgrows(&self, ended: Option<(RelPath, u64)>) -> bool {
        let Some((path, size)) = ended else { return false };
        match self.cached(&path).and_then(|known| known.entry) {
            Some(entry) => entry.known_size().is_some_and(|shown| shown > size),
            // With an age of 0, no attributes are cached.
            None => self.shown.ages.entry.is_zero(),
        }
    }

    /// Whether a file of the spool is shown at a path.
    pub(crate) fn is_local(&self, path: &RelPath) -> bool {
        self.local.as_ref().is_some_and(|local| local.overlay.entry(path).is_some())
    }

    /// Entries in the spool that are in a directory.
    pub(crate) fn local_entries(&self, directory: &RelPath) -> Vec<Arc<Entry>> {
        self.local.as_ref().map(|local| local.overlay.entries(directory)).unwrap_or_default()
    }

    /// What is shown of an entry of a listing: a file of the spool may have taken its place since.
    pub(crate) fn current(&self, entry: &Arc<Entry>) -> Arc<Entry> {
        let local = self.local.as_ref().and_then(|local| local.overlay.entry(&entry.path));
        local.unwrap_or_else(|| Arc::clone(entry))
    }

    /// Lists the directory of a missing path in the background: probably, more missing names will be looked up in it.
    fn list_parent(self: &Arc<Self>, path: &RelPath) {
        let (Some(local), Some(parent)) = (&self.local, path.parent()) else { return };
        if !self.storage.capabilities().complete_lists {
            // A name that is not listed may exist.
            return;
        }
        // If the RTT is long, `survey` has listed it, or is listing it.
        if self.survey.lists(&parent) {
            return;
        }
        let Some(number) = lock(&local.listed).begin(&parent, self.now()) else { return };
        let names = Arc::clone(self);
        self.runtime.spawn(async move {
            let at = names.now();
            let found = names.names_in(&parent).await;
            if let Some(local) = &names.local {
                lock(&local.listed).finish(&parent, number, at, found);
            }
        });
    }

    async fn names_in(&self, directory: &RelPath) -> Option<HashSet<Vec<u8>>> {
        let mut stream = self.storage.list(directory).await.ok()?;
        let mut names = HashSet::new();
        while let Some(batch) = stream.next().await {
            names.extend(batch.ok()?.iter().map(|entry| entry.path.name().to_vec()));
            if names.len() > MOST_NAMES {
                return None;
            }
        }
        Some(names)
    }

    /// Retries transient failures of a request, until the timeout.
    pub(crate) async fn retried<T, F: Future<Output = Result<T>>>(
        &self,
        run: impl Fn() -> F,
    ) -> Result<T> {
        let mut attempts = Attempts::new(self.shown.timeout);
        loop {
            let error = match run().await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if !attempts.wait_for_retry(&error).await {
                return Err(error);
            }
        }
    }

    /// The attributes of an entry, as the kernel gets them.
    pub(crate) fn attributes(&self, node: u64, entry: &Entry) -> Attributes {
        let (kind, default_mode) = match &entry.kind {
            EntryKind::File => (Kind::File, 0o644),
            EntryKind::Directory => (Kind::Directory, 0o755),
            EntryKind::Symlink(_) => (Kind::Symlink, 0o777),
            EntryKind::Special(special) => (kind_of(*special), 0),
        };
        let size = match &entry.kind {
            EntryKind::Symlink(target) => target.len() as u64,
            _ => entry.known_size().unwrap_or(0),
        };
        let mask = if kind == Kind::Symlink { 0 } else { self.shown.umask };
        Attributes {
            node,
            kind,
            mode: entry.mode.unwrap_or(default_mode) & !mask,
            size,
            modified: entry.modified.unwrap_or_default(),
            // 1 for a directory: programs do not derive its number of subdirectories. 0 would mean that it was removed.
            links: match kind {
                Kind::Directory => 1,
                _ => u32::try_from(entry.links).unwrap_or(1).max(1),
            },
            owner: self.shown.owner,
        }
    }

    /// The response to LOOKUP of the name of a path. The kernel gets a reference to the node.
    pub(crate) fn lookup_response(&self, parent: u64, path: &RelPath, known: &Known) -> Reply {
        let Some(found) = &known.entry else { return no_entry(known.valid).into() };
        self.survey.found(path, found.is_dir());
        let name = path.name();
        let referred = self.tree().refer(parent, name);
        match referred {
            Some(node) => Reply::referring(entry(&self.attributes(node, found), known.valid), node),
            None => Errno::STALE.into(),
        }
    }

    /// The response to GETATTR.
    pub(crate) fn getattr_response(&self, node: u64, known: &Known) -> Reply {
        match &known.entry {
            // If the root were reported once as anything but a directory, the kernel would never use it again.
            Some(entry) if node == ROOT && !entry.is_dir() => Errno::NOTDIR.into(),
            Some(entry) => attributes(&self.attributes(node, entry), known.valid).into(),
            None => Errno::NOENT.into(),
        }
    }

    /// The response to GETATTR of an entry that was removed, and that a process has open.
    pub(crate) fn removed_response(&self, node: u64, entry: &Entry) -> Reply {
        let removed = Attributes { links: 0, ..self.attributes(node, entry) };
        attributes(&removed, self.shown.ages.missing).into()
    }
}

/// The attempts of one request to the storage.
#[derive(Debug)]
pub(crate) struct Attempts {
    started: Instant,
    pause: Duration,
    timeout: Duration,
}

impl Attempts {
    /// The first attempt begins now; `timeout` is for all.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { started: Instant::now(), pause: FIRST_PAUSE, timeout }
    }

    /// Waits before the next attempt; false at once if there is none.
    pub(crate) async fn wait_for_retry(&mut self, error: &Error) -> bool {
        let is_late = self.started.elapsed() + self.pause >= self.timeout;
        if error.retry() != Retry::Later || is_late {
            return false;
        }
        sleep(self.pause).await;
        self.pause *= 2;
        true
    }
}

const fn kind_of(special: SpecialKind) -> Kind {
    match special {
        SpecialKind::Fifo => Kind::Fifo,
        SpecialKind::Socket => Kind::Socket,
        SpecialKind::BlockDevice => Kind::BlockDevice,
        SpecialKind::CharDevice => Kind::CharDevice,
        // Without a mode from the storage, it has no permission bits.
        SpecialKind::Unknown => Kind::File,
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::memory::{MemoryStorage, Operation, SimulatedLink};
    use tokio::task::yield_now;

    use super::*;
    use crate::fuse::Body;

    fn names() -> Arc<Names> {
        names_of(MemoryStorage::new(), None)
    }

    fn names_of(storage: Arc<MemoryStorage>, overlay: Option<Arc<Overlay>>) -> Arc<Names> {
        let age = Duration::from_secs(5);
        let ages = Ages { entry: age, missing: age, most: 10 };
        let shown = Shown { owner: (1, 2), umask: 0, ages, timeout: age };
        Names::new(storage, RelPath::root(), shown, overlay, &Handle::current())
    }

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    /// Looks up a missing name in `d`. A listing that this may start has finished when this returns.
    async fn miss(names: &Arc<Names>) {
        assert_eq!(names.requested(&path("d/none")).await.unwrap().entry, None);
        for _ in 0..100 {
            yield_now().await;
        }
    }

    /// Formerly, each created file caused its directory and all below it to be listed again.
    #[tokio::test(start_paused = true)]
    async fn the_listing_of_a_directory_holds_while_files_are_created_in_it() {
        let link = SimulatedLink::new(Duration::from_millis(50), 62_500_000);
        let storage = MemoryStorage::builder().with_link(link).build();
        storage.add_file("d/old", "");
        storage.stat(&RelPath::root()).await.unwrap();
        let names = names_of(storage, None);
        sleep(Duration::from_secs(1)).await;
        for name in ["d/1", "d/2", "d/3"] {
            let file = path(name);
            assert_eq!(names.cached(&file).unwrap().entry, None);
            names.created(&file);
            assert_eq!(names.cached(&file), None);
        }
    }

    /// Formerly, a file that was uploaded after its directory had been listed was missing after a chmod.
    #[tokio::test]
    async fn a_file_that_was_changed_after_the_listing_is_not_missing() {
        let storage = MemoryStorage::new();
        storage.add_file("d/old", "");
        let names = names_of(Arc::clone(&storage), Some(Arc::default()));
        miss(&names).await;
        let file = path("d/new");
        assert_eq!(names.cached(&file).unwrap().entry, None);
        storage.add_file("d/new", "");
        let entry = Arc::new(Entry::new(file.clone(), EntryKind::File, 0));
        names.record(&file, Some(entry));
        names.forget(&file);
        assert_eq!(names.cached(&file), None);
        assert!(names.cached(&path("d/other")).is_some());
    }

    #[tokio::test]
    async fn a_name_that_an_incomplete_listing_omits_is_not_missing() {
        let incomplete =
            MemoryStorage::builder().with_capabilities(|can| can.complete_lists = false);
        let storage = incomplete.build();
        storage.add_file("d/old", "");
        let names = names_of(Arc::clone(&storage), Some(Arc::default()));
        miss(&names).await;
        assert_eq!(names.cached(&path("d/hidden")), None);
        assert_eq!(storage.faults().count(Operation::List), 0);
    }

    #[tokio::test]
    async fn only_an_entry_that_was_removed_has_no_links() {
        let names = names();
        let mut entry = Entry::new(RelPath::parse("a").unwrap(), EntryKind::File, 1);
        // A server may report anything.
        entry.links = 0;
        assert_eq!(names.attributes(9, &entry).links, 1);
        let Body::Bytes(body) = names.removed_response(9, &entry).body else {
            panic!("no attributes")
        };
        assert_eq!(body[80..84], 0_u32.to_ne_bytes());
    }

    #[tokio::test]
    async fn a_name_longer_than_name_max_is_refused() {
        let names = names();
        assert!(names.path_below(ROOT, &[b'n'; NAME_MAX]).is_ok());
        assert_eq!(names.path_below(ROOT, &[b'n'; NAME_MAX + 1]), Err(Errno::NAMETOOLONG));
    }
}
