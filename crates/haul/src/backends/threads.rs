//! The threads that lanes run on, so that encryption does not wait for disk writes.

use std::sync::{Mutex, PoisonError};
use std::thread;

use haul_storage::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};

/// Started when the first host is opened.
#[derive(Debug, Default)]
pub(super) struct LaneThreads {
    runtime: Mutex<Option<Runtime>>,
}

impl LaneThreads {
    /// The runtime on which to spawn lanes.
    pub(super) fn handle(&self) -> Result<Handle> {
        let mut runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        match &*runtime {
            Some(runtime) => Ok(runtime.handle().clone()),
            None => Ok(runtime.insert(start()?).handle().clone()),
        }
    }
}

impl Drop for LaneThreads {
    fn drop(&mut self) {
        let runtime = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A runtime that is dropped waits for its threads, and panics if it is dropped by async code. The connections
        // need no orderly close.
        if let Some(runtime) = runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn start() -> Result<Runtime> {
    // One core is left to the engine and the disk. With more threads than cores, moving blocks
    // between threads costs more than parallelism gains.
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let threads = cores.saturating_sub(1).clamp(1, 4);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("lanes")
        .enable_all()
        .build()
        .map_err(|error| Error::from_io("start threads", error))
}
