//! A temporary file that shows whether two locations are one directory: through a server of this machine, two
//! names of a host, a linked or mounted directory.
//!
//! A killed run leaves its markers. `sync --delete` removes those that are older than a day or whose process, on this
//! machine, has ended, and `mv` those in the source directories that it removes.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::StreamExt as _;
use haul_storage::{
    CommitOptions, Entry, Error, ErrorKind, Metadata, RelPath, RelPathError, Result, Storage,
    StorageExt as _, Timestamp, temporary_name,
};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// The start of a marker's name. The process ID, the time in ns since 1970, a hash of the machine and [`END`] follow.
const PREFIX: &[u8] = b".haul.mark-";

/// The end of a temporary name.
const END: &[u8] = b".haul-temp";

/// The age from which a marker is no longer in use. Two machines may disagree about the time.
const STALE: Duration = Duration::from_secs(86_400);

/// The marker of a directory; [`Marker::remove`] removes it.
#[derive(Debug)]
pub struct Marker<'a> {
    storage: &'a dyn Storage,
    directory: &'a RelPath,
    name: Vec<u8>,
    modified: Option<Timestamp>,
}

impl<'a> Marker<'a> {
    /// Creates a marker in `directory`.
    ///
    /// # Errors
    ///
    /// Those of the lookup of `directory` and of writing. If nothing can be created in it, usually nothing can be
    /// removed from it either.
    pub async fn set(storage: &'a dyn Storage, directory: &'a RelPath) -> Result<Self> {
        let unique = format!("mark-{}-{}-{}", std::process::id(), now().as_nanos(), *MACHINE);
        Self::named(storage, directory, temporary_name(b"haul", &unique)).await
    }

    /// Creates a marker with this name.
    ///
    /// # Errors
    ///
    /// As [`Marker::set`].
    async fn named(
        storage: &'a dyn Storage,
        directory: &'a RelPath,
        name: Vec<u8>,
    ) -> Result<Self> {
        let modified = storage.stat(directory).await?.modified;
        let marker = Self { storage, directory, name, modified };
        let options = CommitOptions {
            metadata: Metadata::default(),
            replace: false,
            sync: false,
            expected: None,
        };
        storage.write_whole(&marker.path(directory)?, Bytes::new(), &options).await?;
        Ok(marker)
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    fn path(&self, directory: &RelPath) -> Result<RelPath> {
        directory.join(&self.name).map_err(invalid)
    }

    /// Whether it is in a directory of another storage: that has an empty file of this name, and does not find an
    /// unused name (some sites respond to every URL with a page). Whether the marker is gone after its removal would
    /// prove less, because of caches.
    ///
    /// # Errors
    ///
    /// Those of the lookup, unless they mean that it is not there: servers may deny access to names that begin with a
    /// dot.
    pub async fn is_in(&self, storage: &dyn Storage, directory: &RelPath) -> Result<bool> {
        if !has_empty_file(storage, &self.path(directory)?).await? {
            return Ok(false);
        }
        let unused = temporary_name(b"haul", &format!("mark-{}-{}", std::process::id(), u64::MAX));
        let unused = directory.join(&unused).map_err(invalid)?;
        Ok(!has_empty_file(storage, &unused).await?)
    }

    /// Whether its directory lists it: some servers hide names that begin with a dot.
    ///
    /// # Errors
    ///
    /// Those of listing.
    pub async fn is_listed(&self) -> Result<bool> {
        let mut listing = self.storage.list(self.directory).await?;
        while let Some(batch) = listing.next().await {
            if batch?.iter().any(|entry| entry.path.name() == self.name) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes it, unless another run has, and restores the directory's time where times can be set.
    ///
    /// # Errors
    ///
    /// That of removing.
    pub async fn remove(self) -> Result<()> {
        self.remove_only().await?;
        if self.modified.is_some() && self.storage.capabilities().times {
            let metadata = Metadata { modified: self.modified, ..Metadata::default() };
            // Failures are ignored: a copy of the directory then gets the time of this removal.
            drop(self.storage.set_metadata(self.directory, &metadata).await);
        }
        Ok(())
    }

    /// Like [`Marker::remove`], for a directory whose entries may have changed meanwhile: its time is not restored.
    ///
    /// # Errors
    ///
    /// That of removing.
    pub async fn remove_only(&self) -> Result<()> {
        match self.storage.remove(&self.path(self.directory)?).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether there is a file at `path` that is empty or of unknown size (Apache sends no length of 0).
async fn has_empty_file(storage: &dyn Storage, path: &RelPath) -> Result<bool> {
    match storage.find(path).await {
        Ok(found) => {
            Ok(found.is_some_and(|entry| entry.is_file() && entry.known_size().unwrap_or(0) == 0))
        }
        Err(error) if is_not_there(error.kind()) => Ok(false),
        Err(error) => Err(error),
    }
}

const fn is_not_there(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

fn invalid(error: RelPathError) -> Error {
    Error::new(ErrorKind::InvalidInput, "access").because(error.to_string())
}

/// Whether a name is that of a marker.
pub fn is_marker(name: &[u8]) -> bool {
    parsed(name).is_some()
}

/// Whether an entry is a marker that a killed run has left, or the part file of one. A file with content is none.
pub fn is_stale_marker(entry: &Entry) -> bool {
    entry.is_file() && entry.known_size() == Some(0) && has_stale_name(entry.path.name())
}

fn has_stale_name(name: &[u8]) -> bool {
    parsed(marker_of_part(name).unwrap_or(name)).is_some_and(|marker| {
        let is_old = now().saturating_sub(marker.set_at) > STALE;
        is_old || marker.machine == *MACHINE && has_ended(marker.process)
    })
}

/// The marker whose part file on a server has this name.
fn marker_of_part(name: &[u8]) -> Option<&[u8]> {
    let name = name.strip_prefix(b".").filter(|name| name.starts_with(PREFIX))?;
    let end = name.windows(END.len()).position(|part| part == END)? + END.len();
    (end < name.len()).then(|| &name[..end])
}

/// The parts of a marker's name.
struct Parsed {
    process: u32,
    /// Time since 1970.
    set_at: Duration,
    machine: String,
}

fn parsed(name: &[u8]) -> Option<Parsed> {
    let unique = name.strip_prefix(PREFIX)?.strip_suffix(END)?;
    let mut parts = std::str::from_utf8(unique).ok()?.splitn(3, '-');
    let process = parts.next()?.parse().ok()?;
    let nanos: u128 = parts.next()?.parse().ok()?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    let machine = parts.next().unwrap_or_default().to_owned();
    Some(Parsed { process, set_at: Duration::from_secs(seconds), machine })
}

/// Distinguishes machines, and the containers of a machine: their processes have the same numbers.
static MACHINE: LazyLock<String> = LazyLock::new(|| {
    let read = |path| std::fs::read(path).unwrap_or_default();
    let known = [
        read("/etc/machine-id"),
        read("/proc/sys/kernel/hostname"),
        process_namespace().unwrap_or_default(),
    ];
    blake3::hash(&known.concat()).to_hex()[..8].to_owned()
});

/// The namespace in which process IDs are valid; `None` if it is not known.
fn process_namespace() -> Option<Vec<u8>> {
    let target = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(target.into_os_string().into_encoded_bytes())
}

/// Removes a marker that a killed run has left, and restores the time of its directory, which may be finished.
///
/// # Errors
/// Those of looking up the directory, of removing and of setting the time.
pub async fn remove_stale_marker(storage: &dyn Storage, path: &RelPath) -> Result<()> {
    let directory = path.parent().unwrap_or_default();
    let modified = storage.stat(&directory).await?.modified;
    storage.remove(path).await?;
    match modified.is_some() && storage.capabilities().times {
        true => {
            storage.set_metadata(&directory, &Metadata { modified, ..Metadata::default() }).await
        }
        false => Ok(()),
    }
}

/// Whether a process of this machine has certainly ended. `/proc` does not show that: it may hide processes of others.
fn has_ended(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    let is_gone = |process| test_kill_process(process) == Err(Errno::SRCH);
    process_namespace().is_some() && process.is_none_or(is_gone)
}

/// Removes the markers that killed runs have left in a directory of a disk, which this run has locked. Failures are
/// ignored: the next run tries it again.
pub async fn remove_stale_markers(storage: &dyn Storage, directory: &RelPath) {
    let Ok(mut listing) = storage.list(directory).await else { return };
    while let Some(batch) = listing.next().await {
        let entries = batch.into_iter().flatten();
        for entry in entries.filter(is_stale_marker) {
            drop(storage.remove(&entry.path).await);
        }
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::is_part_name;

    fn name_at(process: u32, at: Duration, machine: &str) -> Vec<u8> {
        temporary_name(b"haul", &format!("mark-{process}-{}-{machine}", at.as_nanos()))
    }

    #[test]
    fn a_marker_is_stale_after_a_day_or_the_end_of_its_process() {
        // No process has the largest number.
        let (ended, own) = (u32::MAX, std::process::id());
        let fresh = name_at(ended, now(), "another");
        let old = name_at(own, now() - 2 * STALE, &MACHINE);
        assert!(is_marker(&fresh) && is_part_name(&fresh) && !has_stale_name(&fresh));
        assert!(is_marker(&old) && has_stale_name(&old));
        assert!(!has_stale_name(&name_at(own, now(), &MACHINE)));
        let left = name_at(ended, now(), &MACHINE);
        let part = temporary_name(&left, "0123456789abcdef");
        assert!(!is_marker(&part) && !has_stale_name(&temporary_name(&fresh, "0123")));
        if cfg!(target_os = "linux") {
            assert!(has_stale_name(&left) && has_stale_name(&part));
        }
        for other in ["haul.mark-7-1.haul-temp", ".haul.clock.haul-temp", ".haul.mark-x.haul-temp"]
        {
            assert!(!is_marker(other.as_bytes()), "{other}");
        }
    }
}
