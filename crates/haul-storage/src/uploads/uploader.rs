//! The ID of the uploader, which part files on servers have in their names.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use super::lock::{FileLock, Locked};
use crate::part::unique;
use crate::private::replace_private;

/// The file in the directory of journals that holds a random number.
const FILE: &str = "uploader";
/// Digits of the random number, 128 bits.
const NUMBER_DIGITS: usize = 32;
/// Digits of an ID, 64 bits.
const ID_DIGITS: usize = 16;
/// Most processes that have an ID of their own at once.
const PROCESSES: u32 = 64;

/// Those of this process, by their directories.
static KNOWN: LazyLock<Mutex<HashMap<PathBuf, Weak<Uploader>>>> = LazyLock::new(Mutex::default);

/// A machine and a directory of journals.
#[derive(Debug)]
pub(super) struct Uploader {
    id: String,
    /// The ID of this process, which later processes have as well, and the lock that reserves it. `None` if there are
    /// too many processes or no locks.
    process: Option<(String, FileLock)>,
    /// The keys of the small files that this process is writing.
    writing: Mutex<HashSet<Vec<u8>>>,
}

impl Uploader {
    /// The uploader with this directory of journals. Without one, or if nothing can be written there, it lasts as long
    /// as the value that is returned.
    pub(super) fn of(journals: Option<&Path>) -> Arc<Self> {
        let brief = || Arc::new(Self { id: unique(), process: None, writing: Mutex::default() });
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
            replace_private(&path, random_number()?.as_bytes())?;
        }
        // Read again: of two processes that have written it at once, one has replaced the file of the other.
        let number = number_in(&path).ok_or(io::ErrorKind::InvalidData)?;
        let id = id(&number, &machine());
        let process = (0..PROCESSES).find_map(|process| {
            match FileLock::acquire(journals.join(format!("{FILE}-{process}.lock"))) {
                Locked::Yes(lock) => Some((format!("{id}-{process}"), lock)),
                Locked::ByAnother | Locked::Unsupported => None,
            }
        });
        Ok(Self { id, process, writing: Mutex::default() })
    }

    /// Letters, digits and `-`.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Reserves a small file until the returned value is dropped; `None` if it is reserved already.
    pub(super) fn reserve(self: &Arc<Self>, key: Vec<u8>) -> Option<Reserved> {
        let is_free = self.writing().insert(key.clone());
        is_free.then(|| Reserved { uploader: Arc::clone(self), key })
    }

    fn writing(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`Self::id`], different for each of the processes that run at the same time.
    fn process_id(&self) -> Option<&str> {
        self.process.as_ref().map(|(id, _)| &**id)
    }
}

/// A small file that one task of this process writes.
#[derive(Debug)]
pub(super) struct Reserved {
    uploader: Arc<Uploader>,
    key: Vec<u8>,
}

impl Reserved {
    pub(super) fn process_id(&self) -> Option<&str> {
        self.uploader.process_id()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.uploader.writing().remove(&self.key);
    }
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

/// Distinguishes machines that share a home directory.
fn machine() -> Vec<u8> {
    match fs::read("/etc/machine-id") {
        Ok(id) if !id.trim_ascii().is_empty() => id,
        _ => rustix::system::uname().nodename().to_bytes().to_vec(),
    }
}

/// The hash reveals neither the number nor the machine.
fn id(number: &str, machine: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("haul uploader");
    hasher.update(number.as_bytes()).update(machine);
    let mut id = hasher.finalize().to_hex().to_string();
    id.truncate(ID_DIGITS);
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_share_a_directory_have_different_ids() {
        let number = random_number().unwrap();
        assert_ne!(id(&number, b"one"), id(&number, b"two"));
        assert_ne!(number, random_number().unwrap());
    }

    #[test]
    fn an_id_outlives_its_process_and_damage_gives_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Uploader::open(directory.path()).unwrap().id;
        let first = open();
        assert_eq!(open(), first);
        fs::write(directory.path().join(FILE), "0123").unwrap();
        let next = open();
        assert_ne!(next, first);
        assert_eq!(open(), next);
    }

    #[test]
    fn processes_that_run_at_once_have_different_ids_and_a_later_one_has_one_of_them() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Uploader::open(directory.path()).unwrap();
        let (first, second) = (open(), open());
        let ids = [&first, &second].map(|uploader| uploader.process_id().unwrap().to_owned());
        assert_ne!(ids[0], ids[1]);
        assert_eq!(first.id, second.id);
        drop(first);
        assert_eq!(open().process_id(), Some(&*ids[0]));
    }
}
