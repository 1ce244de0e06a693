//! Requests the attributes of files that are being read again before they expire.
//!
//! Before it passes a read on, the kernel requests attributes that are too old (GETATTR), and the program waits for the
//! response, over a web server for two RTTs. So they are requested in the background a few RTTs earlier, for as long as
//! the file is read.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_storage::{ErrorKind, Medium, RelPath, Storage};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

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
    in_flight: Arc<Mutex<HashSet<RelPath>>>,
}

/// Removes a path from those in flight when the request ends or is dropped.
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
    pub(crate) fn new(
        storage: &Arc<dyn Storage>,
        cache: &Arc<Mutex<AttributeCache>>,
        started: Instant,
        runtime: &Handle,
    ) -> Self {
        Self {
            storage: Arc::clone(storage),
            cache: Arc::clone(cache),
            started,
            age: lock(cache).age(),
            runtime: runtime.clone(),
            in_flight: Arc::default(),
        }
    }

    /// A file is read whose attributes may be used for `valid`. Requests them if that is not for long.
    pub(crate) fn on_read(&self, path: &RelPath, valid: Duration) {
        let earliest = self.age / EARLIEST;
        if valid > earliest || self.storage.capabilities().medium != Medium::Link {
            return;
        }
        let rtt = self.storage.link().rtt.unwrap_or_default();
        if valid > (rtt * RTTS).clamp(earliest / 2, earliest)
            || !lock(&self.in_flight).insert(path.clone())
        {
            return;
        }
        let request = InFlight { path: path.clone(), all: Arc::clone(&self.in_flight) };
        let (storage, cache) = (Arc::clone(&self.storage), Arc::clone(&self.cache));
        let (started, age) = (self.started, self.age);
        self.runtime.spawn(async move {
            let at = started.elapsed();
            let entry = match timeout(age, storage.stat(&request.path)).await {
                Ok(Ok(entry)) => Some(Arc::new(entry)),
                Ok(Err(error)) if error.kind() == ErrorKind::NotFound => None,
                // The kernel's own request reports the error, if it persists.
                Ok(Err(_)) | Err(_) => return,
            };
            lock(&cache).put(&request.path, entry, at, started.elapsed());
        });
    }
}
