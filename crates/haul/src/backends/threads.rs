//! The threads that lanes run on: what encrypts should not wait for what writes to a disk.

use std::sync::{Mutex, PoisonError};
use std::thread;

use haul_storage::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime};

/// Started when the first host is.
#[derive(Debug, Default)]
pub(super) struct LaneThreads {
    runtime: Mutex<Option<Runtime>>,
}

impl LaneThreads {
    /// Where lanes are to be spawned.
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
        // Nobody waits for connections to be closed politely: the process ends.
        if let Some(runtime) = runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn start() -> Result<Runtime> {
    // The engine and the disk have a core of their own. Blocks that move between more threads than
    // there are cores cost more than what is done side by side gains.
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let threads = cores.saturating_sub(1).clamp(1, 4);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("lanes")
        .enable_all()
        .build()
        .map_err(|error| Error::from_io("start threads", error))
}
