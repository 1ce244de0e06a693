//! The uploader: the names of part files on servers contain a hash of it.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::lock::{FileLock, Locked};
use crate::part::unique;
use crate::private::{create_private, replace_private};

/// The file in the directory of journals that holds a random number.
const FILE: &str = "uploader";
/// Digits of the random number, 128 bits.
const NUMBER_DIGITS: usize = 32;
/// Digits of an ID, 64 bits.
const ID_DIGITS: usize = 16;
/// Maximum number of processes that have a number of their own at the same time.
const PROCESSES: u32 = 64;

/// The uploaders of this process, by their directories of journals.
static KNOWN: LazyLock<Mutex<HashMap<PathBuf, Weak<Uploader>>>> = LazyLock::new(Mutex::default);
/// A number that no other process has.
static PROCESS: LazyLock<String> = LazyLock::new(unique);
/// The IDs in use by uploads of this process.
static RESERVED: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);

/// A machine and a directory of journals.
#[derive(Debug)]
pub(super) struct Uploader {
    /// Identifies it in later runs as well; `None` if nothing can be stored.
    number: Option<String>,
    /// The number of this process, which a later process may reuse, and the lock that reserves it. `None` if there are
    /// too many processes or no locks.
    process: Option<(u32, FileLock)>,
}

impl Uploader {
    /// The uploader with this directory of journals. Without one, or if nothing can be written there, later runs are
    /// other uploaders.
    pub(super) fn of(journals: Option<&Path>) -> Arc<Self> {
        let brief = || Arc::new(Self { number: None, process: None });
        let Some(journals) = journals else { return brief() };
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uploader) = known.get(journals).and_then(Weak::upgrade) {
            return uploader;
        }
        let Ok(uploader) = Self::open(journals).map(Arc::new) else { return brief() };
        known.retain(|_, uploader| uploader.strong_count() > 0);
        known.insert(journals.to_owned(), Arc::downgrade(&uploader));
        uploader
    }

    fn open(journals: &Path) -> io::Result<Self> {
        let path = journals.join(FILE);
        if number_in(&path).is_none() {
            let number = random_number()?;
            // Of several processes that begin at once, the first one creates the file. A damaged file is replaced, and
            // a missing one too where creating it fails: file systems without hard links.
            drop(create_private(&path, number.as_bytes()));
            if number_in(&path).is_none() {
                replace_private(&path, number.as_bytes())?;
            }
        }
        // Read again: another process may have created it.
        let number = number_in(&path).ok_or(io::ErrorKind::InvalidData)?;
        let lock = |process| FileLock::acquire(journals.join(format!("{FILE}-{process}.lock")));
        Ok(Self { number: Some(number + &machine()), process: free_process(lock) })
    }

    /// Whether later runs are the same uploader.
    pub(super) const fn is_lasting(&self) -> bool {
        self.number.is_some()
    }

    /// The ID of a file that is uploaded to the address `key`: digits and letters.
    pub(super) fn id(&self, key: &[u8]) -> String {
        match &self.number {
            Some(number) => id(number, "upload", key),
            None => Self::own_id(key),
        }
    }

    /// Like [`Self::id`], different for each of the processes that run at the same time.
    pub(super) fn process_id(&self, key: &[u8]) -> String {
        match (&self.number, &self.process) {
            (Some(number), Some((process, _))) => id(number, &process.to_string(), key),
            _ => Self::own_id(key),
        }
    }

    /// Like [`Self::id`], of this process and no other one.
    pub(super) fn own_id(key: &[u8]) -> String {
        id(&PROCESS, "process", key)
    }
}

/// An ID that one task of this process uses.
#[derive(Debug)]
pub(super) struct Reserved(String);

impl Reserved {
    /// Reserves an ID until the returned value is dropped; `None` if it is reserved already.
    pub(super) fn of(id: String) -> Option<Self> {
        let is_free = reserved().insert(id.clone());
        is_free.then(|| Self(id))
    }

    pub(super) fn id(&self) -> &str {
        &self.0
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        reserved().remove(&self.0);
    }
}

fn reserved() -> MutexGuard<'static, HashSet<String>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lowest number that no other process has locked, and its lock. `None` if there is none, or there are no locks.
fn free_process(lock: impl Fn(u32) -> Locked) -> Option<(u32, FileLock)> {
    for process in 0..PROCESSES {
        match lock(process) {
            Locked::Yes(lock) => return Some((process, lock)),
            Locked::ByAnother => {}
            Locked::Unsupported => return None,
        }
    }
    None
}

fn number_in(path: &Path) -> Option<String> {
    let mut number = String::new();
    File::open(path).ok()?.take(NUMBER_DIGITS as u64 + 1).read_to_string(&mut number).ok()?;
    let is_number = number.len() == NUMBER_DIGITS;
    (is_number && number.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(number)
}

fn random_number() -> io::Result<String> {
    let mut bytes = [0; NUMBER_DIGITS / 2];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Distinguishes machines that share a home directory. Empty if unknown, as in most containers. (The host name would
/// not do instead: that of a container differs in each run.)
fn machine() -> String {
    fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

/// The hash reveals neither numbers nor addresses.
fn id(number: &str, purpose: &str, key: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("haul part file on a server");
    for part in [number.as_bytes(), purpose.as_bytes(), key] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let mut id = hasher.finalize().to_hex().to_string();
    id.truncate(ID_DIGITS);
    id
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn an_id_outlives_its_process_and_damage_gives_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Uploader::open(directory.path()).unwrap().id(b"k");
        let first = open();
        assert_eq!(open(), first);
        fs::write(directory.path().join(FILE), "0123").unwrap();
        let next = open();
        assert_ne!(next, first);
        assert_eq!(open(), next);
    }

    /// Formerly, each replaced the file of the others, and had an ID that no later run has.
    #[test]
    fn processes_that_begin_at_once_have_one_number() {
        for _ in 0..50 {
            let directory = tempfile::tempdir().unwrap();
            let (begin, path) = (Barrier::new(4), directory.path());
            let open = || {
                begin.wait();
                Uploader::open(path).unwrap().id(b"k")
            };
            let ids: HashSet<_> = thread::scope(|scope| {
                let opening: Vec<_> = (0..4).map(|_| scope.spawn(open)).collect();
                opening.into_iter().map(|id| id.join().unwrap()).collect()
            });
            assert_eq!(ids, HashSet::from([Uploader::open(path).unwrap().id(b"k")]));
        }
    }

    #[test]
    fn processes_that_run_at_once_have_different_ids_and_a_later_one_has_one_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Uploader::open(directory.path()).unwrap();
        let (first, second) = (open(), open());
        let ids = [&first, &second].map(|uploader| uploader.process_id(b"k"));
        assert_ne!(ids[0], ids[1]);
        assert_eq!(first.id(b"k"), second.id(b"k"));
        drop(first);
        assert_eq!(open().process_id(b"k"), ids[0]);
    }

    #[test]
    fn a_file_system_without_locks_is_tried_once() {
        let tries = Cell::new(0);
        let process = free_process(|_| {
            tries.set(tries.get() + 1);
            Locked::Unsupported
        });
        assert!(process.is_none());
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn two_addresses_have_different_ids() {
        let uploader = Uploader::of(None);
        assert_ne!(uploader.id(b"one"), uploader.id(b"two"));
        let directory = tempfile::tempdir().unwrap();
        let uploader = Uploader::open(directory.path()).unwrap();
        assert_ne!(uploader.id(b"one"), uploader.id(b"two"));
        assert_ne!(uploader.process_id(b"one"), uploader.process_id(b"two"));
    }
}
