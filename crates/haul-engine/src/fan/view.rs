//! The source as one host sees it: shared data comes from the store.
//!
//! The content of files, small files, listings and open files are shared. Everything else (what a path is
//! now, whether a file has changed) is requested from the source each time.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use haul_storage::{
    Capabilities, Digest, DigestKind, Entry, EntryStream, LinkStatus, Location, Metadata, ReadAt,
    ReadOnly, RelPath, Result, Space, Storage, UNKNOWN_SIZE, Whole,
};

use tokio::sync::OwnedMutexGuard;

use super::memo::{Key, Lookup};
use super::reader::SharedReader;
use super::seat::Seat;
use super::store::{Store, Wanted};

/// The sources that hosts share, each once.
#[derive(Debug, Default)]
pub struct Sources {
    known: Mutex<Vec<Arc<Source>>>,
}

/// One source, and the target number of lanes of each host.
#[derive(Debug)]
struct Source {
    number: usize,
    storage: Arc<dyn Storage>,
    /// The target number of lanes of each host's window, by seat.
    lanes: Mutex<Vec<usize>>,
}

impl Sources {
    /// `storage` as the host on `seat` sees it.
    pub fn view(&self, storage: &Arc<dyn Storage>, seat: &Arc<Seat>) -> Arc<dyn Storage> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let source = known.iter().find(|source| Arc::ptr_eq(&source.storage, storage));
        let source = source.map(Arc::clone).unwrap_or_else(|| {
            let (number, storage) = (known.len(), Arc::clone(storage));
            let source = Arc::new(Source { number, storage, lanes: Mutex::default() });
            known.push(Arc::clone(&source));
            source
        });
        Arc::new(View { source, seat: Arc::clone(seat) })
    }
}

impl Source {
    /// Sets the target of one host; the storage gets the highest of all.
    fn set_target(&self, seat: usize, lanes: usize) {
        let most = {
            let mut targets = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            if targets.len() <= seat {
                targets.resize(seat + 1, 0);
            }
            targets[seat] = lanes;
            targets.iter().copied().max().unwrap_or(lanes)
        };
        self.storage.set_lanes(most);
    }
}

/// A source as one host sees it.
#[derive(Debug)]
struct View {
    source: Arc<Source>,
    seat: Arc<Seat>,
}

impl View {
    fn storage(&self) -> &dyn Storage {
        &*self.source.storage
    }

    fn store(&self) -> &Store {
        self.seat.store()
    }

    fn key(&self, path: &RelPath) -> Key {
        (self.source.number, path.clone())
    }

    /// This host loads a value, and the others wait for it while `others` is held.
    fn promise(&self, what: Wanted, key: &Key, others: OwnedMutexGuard<()>) -> Promise {
        Promise { seat: Arc::clone(&self.seat), what, key: Some(key.clone()), _others: others }
    }

    /// Counts the bytes of a small file and caches them for the others.
    fn cache(&self, mut promise: Promise, mut whole: Whole) -> Whole {
        whole.bytes = self.store().meter.count(whole.bytes);
        if let Some(key) = promise.fulfil() {
            self.store().put_whole(&key, self.seat.number(), whole.clone());
        }
        whole
    }

    /// Lists a directory, and caches the listing for the others if it is not too long.
    async fn list_for_all(&self, path: &RelPath, mut promise: Promise) -> Result<EntryStream> {
        let mut listing = self.storage().list(path).await?;
        let mut batches = Vec::new();
        let mut bytes = 0;
        // The rest of a listing that is not cached: it is too long, or each host must see its own error.
        let rest = loop {
            match listing.next().await {
                None => break None,
                Some(Ok(batch)) => {
                    bytes += batch.iter().map(entry_bytes).sum::<u64>();
                    batches.push(batch);
                    if bytes > self.store().longest_listing() {
                        break Some(listing);
                    }
                }
                Some(Err(error)) => {
                    break Some(stream::once(async { Err(error) }).chain(listing).boxed());
                }
            }
        };
        let batches = Arc::new(batches);
        let (shared, bytes) =
            if rest.is_none() { (Some(Arc::clone(&batches)), bytes) } else { (None, 0) };
        if let Some(key) = promise.fulfil() {
            self.store().put_listing(&key, self.seat.number(), shared, bytes);
        }
        let listed = replay(batches);
        Ok(match rest {
            None => listed,
            Some(rest) => listed.chain(rest).boxed(),
        })
    }
}

/// A value that this host loads for all. If it is dropped before `fulfil` is called, loading has failed, and
/// one of the waiting hosts tries.
struct Promise {
    seat: Arc<Seat>,
    what: Wanted,
    key: Option<Key>,
    _others: OwnedMutexGuard<()>,
}

impl Promise {
    /// The key under which the caller now stores the value; the others wait until the promise is dropped.
    fn fulfil(&mut self) -> Option<Key> {
        self.key.take()
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.seat.store().abandon(self.what, key);
        }
    }
}

fn replay(batches: Arc<Vec<Vec<Entry>>>) -> EntryStream {
    let indices = stream::iter(0..batches.len());
    indices.map(move |index| Ok(batches[index].clone())).boxed()
}

/// About what an entry takes in memory.
fn entry_bytes(entry: &Entry) -> u64 {
    let tag = entry.tag.as_ref().map_or(0, String::len);
    (size_of::<Entry>() + entry.path.as_bytes().len() + tag) as u64
}

#[async_trait]
impl ReadOnly for View {
    /// A change would affect the copies of the other hosts.
    fn why_read_only(&self) -> &'static str {
        "it is the source of a copy to many hosts"
    }

    fn location(&self) -> &Location {
        self.storage().location()
    }

    fn capabilities(&self) -> &Capabilities {
        self.storage().capabilities()
    }

    fn set_lanes(&self, lanes: usize) {
        self.source.set_target(self.seat.number(), lanes);
    }

    fn link(&self) -> LinkStatus {
        self.storage().link()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        self.storage().stat(path).await
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.storage().stat_many(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        let key = self.key(path);
        loop {
            match self.store().look_up_listing(&key, self.seat.number()) {
                Lookup::Ready(Some(batches)) => return Ok(replay(batches)),
                Lookup::Ready(None) => return self.storage().list(path).await,
                Lookup::Wait(other) => drop(other.lock().await),
                Lookup::Load(others) => {
                    let promise = self.promise(Wanted::Listing, &key, others);
                    return self.list_for_all(path, promise).await;
                }
            }
        }
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        self.storage().digest(path, kind).await
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        self.storage().metadata(path).await
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let key = self.key(path);
        let file = loop {
            match self.store().look_up_file(&key, self.seat.number()) {
                Lookup::Ready(file) => break file,
                Lookup::Wait(other) => drop(other.lock().await),
                Lookup::Load(others) => {
                    let mut promise = self.promise(Wanted::File, &key, others);
                    let reader = self.storage().open(path).await?;
                    if reader.identity().size == UNKNOWN_SIZE {
                        // A file of unknown length is not shared: each host reads for itself.
                        return Ok(reader);
                    }
                    let ranged = self.storage().capabilities().ranged_reads && reader.is_ranged();
                    promise.fulfil();
                    let seat = self.seat.number();
                    break self.store().put_file(key.clone(), seat, reader, ranged);
                }
            }
        };
        Ok(Arc::new(SharedReader::new(file, key, Arc::clone(&self.seat))))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let key = self.key(path);
        loop {
            match self.store().look_up_whole(&key, self.seat.number()) {
                Lookup::Ready(whole) if whole.bytes.len() as u64 <= limit => return Ok(whole),
                Lookup::Ready(_) => return self.storage().read_whole(path, limit).await,
                Lookup::Wait(other) => drop(other.lock().await),
                Lookup::Load(others) => {
                    let promise = self.promise(Wanted::Whole, &key, others);
                    let whole = self.storage().read_whole(path, limit).await?;
                    return Ok(self.cache(promise, whole));
                }
            }
        }
    }

    /// First reads, in one call, all files that no host has requested yet, and only then waits for those that other
    /// hosts load: two hosts with the same files in another order never wait for each other (deadlock otherwise).
    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        let mut outcomes: Vec<Option<Result<Whole>>> = Vec::with_capacity(paths.len());
        let mut making = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            let key = self.key(path);
            outcomes.push(match self.store().look_up_whole(&key, self.seat.number()) {
                Lookup::Ready(whole) if whole.bytes.len() as u64 <= limit => Some(Ok(whole)),
                Lookup::Load(others) => {
                    making.push((index, self.promise(Wanted::Whole, &key, others)));
                    None
                }
                Lookup::Ready(_) | Lookup::Wait(_) => None,
            });
        }
        if !making.is_empty() {
            let wanted = making.iter().map(|(index, _)| paths[*index].clone()).collect();
            let read = self.storage().read_many(wanted, limit).await;
            for ((index, promise), whole) in making.into_iter().zip(read) {
                outcomes[index] = Some(whole.map(|whole| self.cache(promise, whole)));
            }
        }
        let mut all = Vec::with_capacity(paths.len());
        for (path, outcome) in paths.iter().zip(outcomes) {
            all.push(match outcome {
                Some(outcome) => outcome,
                None => ReadOnly::read_whole(self, path, limit).await,
            });
        }
        all
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        self.storage().space(path).await
    }

    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        self.storage().allocated(path).await
    }
}
