//! Open directories: listings that are read only as far as a process reads them.
//!
//! Positions count entries from the start. Entries that were passed are dropped, so that a directory of any length
//! takes bounded memory; a process that goes back beyond the buffered ones begins the listing anew.
//!
//! What a server lists is not trusted: an entry without a name, or with a name or target for which no program has room,
//! is left out. The kernel would fail the whole listing if a name is empty or longer than its `FUSE_NAME_MAX`, and
//! would pass the others to programs.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use haul_storage::{Entry, EntryKind, EntryStream, Error, RelPath, Result, Storage, is_part_name};

use crate::fuse::NAME_MAX;
use crate::lock::lock;

/// Entries that stay buffered after they were passed.
const BUFFERED: u64 = 4096;

/// Longest path of Linux in bytes, with the NUL at its end.
const PATH_MAX: usize = 4096;

/// The open directories, by the numbers that the kernel has for them.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    state: Mutex<(HashMap<u64, Arc<OpenDirectory>>, u64)>,
}

/// An open directory; requests for it wait for each other.
pub(crate) type OpenDirectory = tokio::sync::Mutex<Directory>;

impl Directories {
    /// Opens a directory. Nothing is requested yet. `local` are entries that are shown in it in any case, in
    /// place of those of the storage.
    pub(crate) fn open(&self, path: RelPath, local: Vec<Arc<Entry>>) -> u64 {
        let mut state = lock(&self.state);
        state.1 += 1;
        let handle = state.1;
        state.0.insert(handle, Arc::new(OpenDirectory::new(Directory::new(path, by_name(local)))));
        handle
    }

    /// An open directory.
    pub(crate) fn get(&self, handle: u64) -> Option<Arc<OpenDirectory>> {
        lock(&self.state).0.get(&handle).cloned()
    }

    /// Closes a directory.
    pub(crate) fn release(&self, handle: u64) {
        let closed = lock(&self.state).0.remove(&handle);
        drop(closed);
    }
}

/// Local entries by their names.
type Local = HashMap<Vec<u8>, Arc<Entry>>;

fn by_name(entries: Vec<Arc<Entry>>) -> Local {
    entries.into_iter().map(|entry| (entry.path.name().to_vec(), entry)).collect()
}

/// A listing, as far as it was read.
pub(crate) struct Directory {
    path: RelPath,
    stream: Option<EntryStream>,
    /// Whether the listing has been read to its end.
    is_complete: bool,
    /// The position of the first buffered entry.
    first: u64,
    buffered: VecDeque<Arc<Entry>>,
    local: Local,
    /// Names of local entries that were listed.
    listed_local: HashSet<Vec<u8>>,
    /// The error, if the last item of the stream so far was one.
    failed: Option<Error>,
    /// When it was requested, by [`Directory::begin`]; `None` before that, and once [`Directory::take_whole`] has
    /// returned it.
    requested: Option<Duration>,
    /// Whether entries were left out.
    is_partial: bool,
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Directory({}, {} entries buffered)", self.path, self.buffered.len())
    }
}

impl Directory {
    fn new(path: RelPath, local: Local) -> Self {
        let (stream, buffered, failed) = (None, VecDeque::new(), None);
        let listed_local = HashSet::new();
        let (first, is_complete, requested, is_partial) = (0, false, None, false);
        Self {
            path,
            stream,
            is_complete,
            first,
            buffered,
            local,
            listed_local,
            failed,
            requested,
            is_partial,
        }
    }

    /// Its path.
    pub(crate) const fn path(&self) -> &RelPath {
        &self.path
    }

    /// Whether no entry is known, and nothing was requested.
    pub(crate) fn is_new(&self) -> bool {
        self.stream.is_none() && !self.is_complete && self.buffered.is_empty()
    }

    /// Fills the listing with entries that are known already, instead of requesting them.
    pub(crate) fn fill(&mut self, entries: &[Arc<Entry>]) {
        let usable = entries.iter().filter(|entry| is_usable(entry));
        let shown = self.shown(usable.cloned().collect());
        self.buffered.extend(shown);
        let unlisted_local = self.unlisted_local();
        self.buffered.extend(unlisted_local);
        self.is_complete = true;
    }

    /// The listing is about to be requested, at `now`.
    pub(crate) fn begin(&mut self, now: Duration) {
        (self.requested, self.is_partial) = (Some(now), false);
    }

    /// All entries, and when they were requested. Returns them once, after the end of the listing; `None` if some were
    /// dropped or left out, if there are local ones, or if the listing was not requested ([`Directory::fill`]).
    pub(crate) fn take_whole(&mut self) -> Option<(Duration, Vec<Arc<Entry>>)> {
        if !self.is_complete || self.first > 0 || self.is_partial || !self.local.is_empty() {
            return None;
        }
        Some((self.requested.take()?, self.buffered.iter().cloned().collect()))
    }

    /// What is shown of a batch: local entries instead of the storage's, and none of the files that haul has beside
    /// them while they are uploaded.
    fn shown(&mut self, batch: Vec<Arc<Entry>>) -> Vec<Arc<Entry>> {
        if self.local.is_empty() {
            return batch;
        }
        let mut shown = Vec::with_capacity(batch.len());
        for entry in batch {
            let name = entry.path.name();
            match self.local.get(name) {
                Some(local) => {
                    self.listed_local.insert(name.to_vec());
                    shown.push(Arc::clone(local));
                }
                None if is_part_name(name) => {}
                None => shown.push(entry),
            }
        }
        shown
    }

    /// The local entries that the storage has not reported.
    fn unlisted_local(&self) -> Vec<Arc<Entry>> {
        let is_unlisted = |entry: &&Arc<Entry>| !self.listed_local.contains(entry.path.name());
        self.local.values().filter(is_unlisted).cloned().collect()
    }

    /// The entry at a position, if it is buffered.
    pub(crate) fn buffered(&self, position: u64) -> Option<Arc<Entry>> {
        let at = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.buffered.get(at).cloned()
    }

    /// Whether the entry at a position, or that there is none, is known without a request.
    pub(crate) fn is_known(&self, position: u64) -> bool {
        self.buffered(position).is_some() || (self.is_complete && position >= self.first)
    }

    /// The entry at a position; `None` after the last. `note` gets the entries of each batch that was read for this.
    ///
    /// # Errors
    /// If the listing failed before its end.
    pub(crate) async fn entry(
        &mut self,
        storage: &dyn Storage,
        position: u64,
        mut note: impl FnMut(&[Arc<Entry>]),
    ) -> Result<Option<Arc<Entry>>> {
        if position < self.first {
            *self = Self::new(self.path.clone(), std::mem::take(&mut self.local));
        }
        while !self.is_known(position) {
            if self.stream.is_none() {
                self.stream = Some(storage.list(&self.path).await?);
            }
            let Some(stream) = &mut self.stream else { continue };
            match stream.next().await {
                Some(Ok(batch)) => {
                    let all = batch.len();
                    let batch: Vec<_> = batch.into_iter().filter(is_usable).map(Arc::new).collect();
                    self.is_partial |= batch.len() < all;
                    note(&batch);
                    self.failed = None;
                    let shown = self.shown(batch);
                    self.buffered.extend(shown);
                }
                // The error concerns one entry, or ends the listing.
                Some(Err(error)) => {
                    self.failed = Some(error);
                    self.is_partial = true;
                }
                None => {
                    if let Some(error) = self.failed.take() {
                        // The next request begins anew.
                        self.stream = None;
                        self.first = 0;
                        self.buffered.clear();
                        self.listed_local.clear();
                        return Err(error);
                    }
                    self.is_complete = true;
                    self.stream = None;
                    let unlisted_local = self.unlisted_local();
                    self.buffered.extend(unlisted_local);
                }
            }
            while self.first + BUFFERED < position && self.buffered.pop_front().is_some() {
                self.first += 1;
            }
        }
        Ok(self.buffered(position))
    }
}

/// Whether programs have room for the name of an entry, and for the target if it is a link.
pub(crate) fn is_usable(entry: &Entry) -> bool {
    let has_room = match &entry.kind {
        EntryKind::Symlink(target) => target.len() < PATH_MAX,
        _ => true,
    };
    has_room && (1..=NAME_MAX).contains(&entry.path.name().len())
}

#[cfg(test)]
mod tests {
    use haul_storage::memory::MemoryStorage;

    use super::*;

    fn many() -> Arc<MemoryStorage> {
        let storage = MemoryStorage::new();
        (0..10_000).for_each(|number| storage.add_file(format!("d/{number:05}"), ""));
        storage
    }

    async fn name(directory: &mut Directory, storage: &MemoryStorage, at: u64) -> Option<String> {
        let entry = directory.entry(storage, at, |_| {}).await.unwrap();
        entry.map(|entry| entry.path.to_string())
    }

    #[tokio::test]
    async fn a_listing_is_read_only_as_far_as_needed() {
        let storage = many();
        let mut directory = Directory::new(RelPath::parse("d").unwrap(), Local::new());
        let mut noted = 0;
        let first = directory.entry(&*storage, 0, |batch| noted += batch.len()).await.unwrap();
        assert_eq!(first.unwrap().path, RelPath::parse("d/00000").unwrap());
        assert!(noted < 10_000, "{noted}");
        assert!(directory.is_known(1) && !directory.is_known(9_999));
    }

    #[tokio::test]
    async fn all_entries_are_taken_once_unless_some_are_missing() {
        let storage = MemoryStorage::new();
        (0..3).for_each(|number| storage.add_file(format!("d/{number}"), ""));
        let new = |local| Directory::new(RelPath::parse("d").unwrap(), local);
        let mut directory = new(Local::new());
        assert!(directory.is_new());
        directory.begin(Duration::from_secs(7));
        name(&mut directory, &storage, 2).await.unwrap();
        assert!(!directory.is_new() && directory.take_whole().is_none());
        assert_eq!(name(&mut directory, &storage, 3).await, None);
        let (requested, entries) = directory.take_whole().unwrap();
        assert_eq!((requested, entries.len()), (Duration::from_secs(7), 3));
        assert!(directory.take_whole().is_none());
        let local = Entry::new(RelPath::parse("d/3").unwrap(), EntryKind::File, 7);
        for (local, count) in [(Local::new(), 3), (by_name(vec![Arc::new(local)]), 4)] {
            let mut filled = new(local);
            filled.fill(&entries);
            assert_eq!(name(&mut filled, &storage, 2).await.as_deref(), Some("d/2"));
            assert_eq!(name(&mut filled, &storage, count).await, None);
            assert!(name(&mut filled, &storage, count - 1).await.is_some());
            assert!(filled.take_whole().is_none());
        }
        storage.add_file(format!("d/{}", "n".repeat(256)), "");
        let mut partial = new(Local::new());
        partial.begin(Duration::ZERO);
        assert_eq!(name(&mut partial, &storage, 3).await, None);
        assert!(partial.take_whole().is_none());
    }

    #[tokio::test]
    async fn a_process_may_go_back_to_entries_that_are_not_held() {
        let storage = many();
        let mut directory = Directory::new(RelPath::parse("d").unwrap(), Local::new());
        assert_eq!(name(&mut directory, &storage, 9_999).await.as_deref(), Some("d/09999"));
        assert!(directory.buffered.len() < 6_000, "{}", directory.buffered.len());
        assert_eq!(name(&mut directory, &storage, 10_000).await, None);
        assert_eq!(name(&mut directory, &storage, 3).await.as_deref(), Some("d/00003"));
        assert_eq!(name(&mut directory, &storage, 9_999).await.as_deref(), Some("d/09999"));
    }

    #[test]
    fn entries_without_a_name_or_with_a_long_name_or_target_are_left_out() {
        let usable =
            |at: &str| is_usable(&Entry::new(RelPath::parse(at).unwrap(), EntryKind::File, 0));
        assert!(usable("d/a") && usable(&format!("d/{}", "n".repeat(255))));
        assert!(!usable("") && !usable(&format!("d/{}", "n".repeat(256))));
        let link = |length| {
            let kind = EntryKind::Symlink(vec![b'x'; length]);
            Entry::new(RelPath::parse("d/a").unwrap(), kind, 0)
        };
        assert!(is_usable(&link(4095)) && !is_usable(&link(4096)));
    }

    #[tokio::test]
    async fn a_name_that_is_too_long_does_not_end_a_listing() {
        let storage = MemoryStorage::new();
        for name in ["a".repeat(5000), "b".to_owned()] {
            storage.add_file(format!("d/{name}"), "");
        }
        let mut directory = Directory::new(RelPath::parse("d").unwrap(), Local::new());
        assert_eq!(name(&mut directory, &storage, 0).await.as_deref(), Some("d/b"));
        assert_eq!(name(&mut directory, &storage, 1).await, None);
    }

    #[tokio::test]
    async fn a_missing_directory_is_an_error_each_time() {
        let storage = MemoryStorage::new();
        let mut directory = Directory::new(RelPath::parse("none").unwrap(), Local::new());
        for _ in 0..2 {
            assert!(directory.entry(&*storage, 0, |_| {}).await.is_err());
        }
    }

    #[tokio::test]
    async fn local_entries_take_the_place_of_those_of_the_storage() {
        let storage = MemoryStorage::new();
        for name in ["d/one", "d/two", "d/.new.haul-part"] {
            storage.add_file(name, "");
        }
        let local = |name: &str| {
            let path = RelPath::parse(name).unwrap();
            Arc::new(Entry::new(path, EntryKind::File, 7))
        };
        let entries = by_name(vec![local("d/two"), local("d/new")]);
        let mut directory = Directory::new(RelPath::parse("d").unwrap(), entries);
        let mut found = Vec::new();
        while let Some(entry) =
            directory.entry(&*storage, found.len() as u64, |_| {}).await.unwrap()
        {
            found.push((entry.path.to_string(), entry.size));
        }
        let expected = [("d/one", 0), ("d/two", 7), ("d/new", 7)];
        assert_eq!(found, expected.map(|(name, size)| (name.to_owned(), size)));
    }
}
