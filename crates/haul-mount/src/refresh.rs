//! Requests the attributes of files that are being read again before they expire.
//!
//! Before it passes a read on, the kernel requests attributes that are too old (GETATTR), and the program waits for the
//! response, over a web server for two RTTs. So they are requested in the background before they expire, a few RTTs and
//! at least a quarter of their age earlier, for as long as the file is read.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_storage::{ErrorKind, Medium, RelPath, Storage};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::attributes::AttributeCache;
use crate::lock::lock;

/// Attributes are requested at most this part of their age before they expire, and at least half of that.
const EARLIEST: u32 = 2;

/// How many RTTs a response may take.
const RTTS: u32 = 4;

/// The requests of one mount.
#[derive(Debug)]
pub(crate) struct Refreshes {
    storage: Arc<dyn Storage>,
    cache: Arc<Mutex<AttributeCache>>,
    /// The clock of the cache began then.
    started: Instant,
    age: Duration,
    runtime: Handle,
    /// The paths of requests, and of failed ones until the attributes expire.
    in_flight: Arc<Mutex<HashSet<RelPath>>>,
}

/// Removes a path from those in flight when the task of its request ends or is dropped.
struct InFlight {
    path: RelPath,
    all: Arc<Mutex<HashSet<RelPath>>>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.path);
    }
}

impl Refreshes {
    /// `None` where requests take no time (on a disk), or attributes are not cached.
    pub(crate) fn new(
        storage: &Arc<dyn Storage>,
        cache: &Arc<Mutex<AttributeCache>>,
        started: Instant,
        runtime: &Handle,
    ) -> Option<Self> {
        let age = lock(cache).age();
        let pays = storage.capabilities().medium == Medium::Link && !age.is_zero();
        pays.then(|| Self {
            storage: Arc::clone(storage),
            cache: Arc::clone(cache),
            started,
            age,
            runtime: runtime.clone(),
            in_flight: Arc::default(),
        })
    }

    /// A file is read whose attributes may be used for `valid`. Requests them if that is not for long.
    pub(crate) fn on_read(&self, path: &RelPath, valid: Duration) {
        let earliest = self.age / EARLIEST;
        if valid > earliest {
            return;
        }
        let rtt = self.storage.link().rtt.unwrap_or_default();
        let is_early = valid > (rtt * RTTS).clamp(earliest / 2, earliest);
        if is_early || !lock(&self.in_flight).insert(path.clone()) {
            return;
        }
        let request = InFlight { path: path.clone(), all: Arc::clone(&self.in_flight) };
        let (storage, cache) = (Arc::clone(&self.storage), Arc::clone(&self.cache));
        let (started, age, expiry) = (self.started, self.age, Instant::now() + valid);
        self.runtime.spawn(async move {
            let at = started.elapsed();
            let entry = match timeout(age, storage.stat(&request.path)).await {
                Ok(Ok(entry)) => Some(Arc::new(entry)),
                Ok(Err(error)) if error.kind() == ErrorKind::NotFound => None,
                // The kernel's own request, once they expire, reports the error if it persists. Until then, each read
                // would send another one.
                Ok(Err(_)) | Err(_) => return sleep_until(expiry).await,
            };
            lock(&cache).put(&request.path, entry, at, started.elapsed());
        });
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::memory::{MemoryStorage, Operation, SimulatedLink};
    use tokio::time::sleep;

    use super::*;
    use crate::attributes::Ages;

    const AGE: Duration = Duration::from_secs(4);

    /// Formerly, each read sent one.
    #[tokio::test(start_paused = true)]
    async fn after_a_failed_request_the_attributes_expire_before_the_next_one() {
        let link = SimulatedLink::new(Duration::from_millis(20), 62_500_000);
        let memory = MemoryStorage::builder().with_link(link).build();
        memory.add_file("f", "");
        let (storage, path) =
            (Arc::clone(&memory) as Arc<dyn Storage>, RelPath::parse("f").unwrap());
        let entry = Arc::new(storage.stat(&path).await.unwrap());
        let ages = Ages { entry: AGE, missing: AGE, most: 10 };
        let (cache, started) = (Arc::new(Mutex::new(AttributeCache::new(ages))), Instant::now());
        let refreshes = Refreshes::new(&storage, &cache, started, &Handle::current()).unwrap();
        // Reads the file until its attributes expire, for 2 ages at most. Returns the number of requests, and the time.
        let read = async || {
            memory.faults().reset_count();
            let begun = started.elapsed();
            lock(&cache).put(&path, Some(Arc::clone(&entry)), begun, begun);
            while started.elapsed() < begun + 2 * AGE {
                let known = lock(&cache).get(&path, started.elapsed());
                let Some(known) = known else { break };
                refreshes.on_read(&path, known.valid);
                sleep(Duration::from_millis(10)).await;
            }
            (memory.faults().count(Operation::Stat), started.elapsed() - begun)
        };
        memory.faults().on(Operation::Stat).fail(ErrorKind::Unreachable);
        // The second time after the kernel's own request.
        for _ in 0..2 {
            assert_eq!(read().await, (1, AGE));
        }
        memory.faults().clear();
        let (requests, time) = read().await;
        assert!(requests > 1 && time == 2 * AGE, "{requests} in {time:?}");
    }
}
