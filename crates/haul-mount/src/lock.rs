//! Locks: of data between threads, without poisoning (no state here is left half changed by a panic), and of files
//! between processes.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How many times haul retries a lock that another process holds, and the pause before each retry.
const FILE_TRIES: u32 = 20;
const FILE_PAUSE: Duration = Duration::from_millis(50);

/// Locks `mutex`, also if a thread has panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks a file. A mount that has just ended, or a process that is being started, may hold the lock for a moment.
///
/// # Errors
/// `WouldBlock` if another process holds the lock for a second; other errors of `flock`.
pub(crate) fn lock_file(file: &File) -> io::Result<()> {
    let mut left = FILE_TRIES;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if left > 0 => {
                left -= 1;
                thread::sleep(FILE_PAUSE);
            }
            outcome => return outcome.map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, the lock of a cache was not retried: a mount right after another one could be refused.
    #[test]
    fn a_lock_that_is_soon_released_is_acquired() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let [one, other] = [(); 2].map(|()| File::open(path.path()).unwrap());
        lock_file(&one).unwrap();
        let release = thread::spawn(move || {
            thread::sleep(FILE_PAUSE);
            drop(one);
        });
        lock_file(&other).unwrap();
        release.join().unwrap();
    }
}
