//! Reads one file from several mirrors at once.
//!
//! ```text
//! open: all mirrors at once → the same file as the first? → reader: each range to the mirror that delivers it first
//! ```
//!
//! The first mirror, in order of preference, that opens and reports a length is the reference. The others must
//! have the same length and, unless a digest will check the content, the same modification time (where both report
//! one) or the same strong tag. A mirror that differs or cannot be opened is dropped with a warning. One that fails
//! while it is read rests, and is dropped only if it fails repeatedly or a retry cannot help; the others take over what
//! was in flight there.
//!
//! A wrong digest of the whole file does not show which mirror was wrong, so the file is then read anew, from
//! one mirror at a time ([`MirrorStorage::refuted`]).
//!
//! [`MirrorStorage`] works over storages of any kind. It is read-only and belongs to one transfer.

mod choice;
mod grace;
mod reader;
mod shared;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use haul_storage::{
    Capabilities, Digest, DigestKind, Entry, EntryStream, Error, ErrorKind, Identity, LinkStatus,
    Location, Medium, Metadata, ReadAt, ReadOnly, RelPath, Result, Retry, Space, Storage,
    StorageExt, StoredTimes, UNKNOWN_SIZE, Whole,
};

use self::choice::Failed;
use self::reader::MirrorReader;
use self::shared::{Shared, may_pass};

pub use self::grace::{too_late, within_grace, within_grace_unless};
pub use self::shared::Mirror;

/// A read-only storage of one file that is available from several mirrors.
pub struct MirrorStorage {
    location: Location,
    path: RelPath,
    mirrors: Arc<[Mirror]>,
    capabilities: Capabilities,
    is_proven: bool,
    shared: Arc<Shared>,
    trial: Mutex<Trial>,
}

/// State for reading one mirror at a time, after a wrong digest.
#[derive(Debug, Default)]
struct Trial {
    /// The only mirror to use; `None` for all.
    alone: Option<usize>,
    /// Mirrors that had wrong content, or failed permanently.
    refuted: Vec<usize>,
    /// Mirrors with transient failures; the others are tried before them.
    failing: Vec<usize>,
    /// Mirrors that have delivered bytes since the file was opened.
    read: Arc<Mutex<Vec<usize>>>,
}

impl MirrorStorage {
    /// A storage at `location` with the file `path`, available from `mirrors`, the preferred one first.
    /// `is_proven`: a digest will check the content. `warn` gets the name of each dropped mirror, and the
    /// reason.
    pub fn new(
        location: Location,
        path: RelPath,
        mirrors: Vec<Mirror>,
        is_proven: bool,
        warn: impl Fn(&str, &str) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let capabilities = capabilities(&mirrors);
        let shared = Shared::new(mirrors.len(), warn);
        Arc::new(Self {
            location,
            path,
            mirrors: mirrors.into(),
            capabilities,
            is_proven,
            shared: Arc::new(shared),
            trial: Mutex::default(),
        })
    }

    /// Downcasts a storage.
    pub fn of(storage: &dyn Storage) -> Option<&Self> {
        let any: &dyn Any = storage;
        any.downcast_ref()
    }

    /// The storages of all mirrors.
    pub fn storages(&self) -> impl Iterator<Item = &Arc<dyn Storage>> {
        self.mirrors.iter().map(|mirror| &mirror.storage)
    }

    /// The number of mirrors.
    pub fn count(&self) -> u32 {
        u32::try_from(self.mirrors.len()).unwrap_or(u32::MAX)
    }

    /// Reports that the bytes read have a wrong digest. Returns true if there is another way to read the
    /// file, which the next `open` takes.
    pub fn refuted(&self, cause: &str) -> bool {
        let mut trial = self.trial();
        let read = trial.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let culprit = trial.alone.or_else(|| <[usize; 1]>::try_from(read).ok().map(|[one]| one));
        if let Some(one) = culprit {
            trial.refuted.push(one);
            self.shared.warn(&self.mirrors[one], cause);
        }
        self.mirrors.len() > 1 && (self.try_next(&mut trial) || self.try_again(&mut trial))
    }

    /// The mirrors that may be used, the preferred one first.
    fn candidates(&self) -> Vec<usize> {
        if let Some(alone) = self.trial().alone {
            return vec![alone];
        }
        let choice = self.shared.choice();
        let all = 0..self.mirrors.len();
        all.filter(|mirror| !choice.is_dropped(*mirror)).collect()
    }

    /// Selects the next mirror, neither refuted nor failing, as the only one to use. False if none is left.
    fn try_next(&self, trial: &mut Trial) -> bool {
        let is_left =
            |mirror: &usize| !trial.refuted.contains(mirror) && !trial.failing.contains(mirror);
        trial.alone = (0..self.mirrors.len()).find(is_left);
        if let Some(mirror) = trial.alone {
            self.shared.choice().restore(mirror);
        }
        trial.alone.is_some()
    }

    /// The same, but mirrors that had transient failures are included again.
    fn try_again(&self, trial: &mut Trial) -> bool {
        trial.failing.clear();
        self.try_next(trial)
    }

    /// Selects the next mirror after an error of the only one to use. Returns the error if there was no such mirror, or
    /// the caller should pause before it tries another one, or none is left.
    fn replace_alone(&self, error: Error) -> Result<()> {
        let mut trial = self.trial();
        let Some(alone) = trial.alone else { return Err(error) };
        let passes = may_pass(&error);
        let list = if passes { &mut trial.failing } else { &mut trial.refuted };
        list.push(alone);
        let has_next = self.try_next(&mut trial);
        if !has_next && !self.try_again(&mut trial) {
            return Err(error);
        }
        if !passes {
            self.shared.warn(&self.mirrors[alone], &error.cause());
        }
        // Without a next one, those that had transient failures are tried again.
        if has_next { Ok(()) } else { Err(error.with_retry(Retry::Later)) }
    }

    /// Reads the whole file from the first mirror that sends it.
    async fn read_any(&self, limit: u64) -> Result<Whole> {
        let candidates = self.candidates();
        let mut first = None;
        for &index in &candidates {
            let mirror = &self.mirrors[index];
            match mirror.storage.read_whole(&mirror.path, limit).await {
                Ok(mut whole) => {
                    self.trial().read = Arc::new(Mutex::new(vec![index]));
                    if whole.identity.modified.is_some() {
                        whole.identity.tag = None;
                    }
                    return Ok(whole);
                }
                // It is longer than the limit, or changed while being read: the caller decides how to read it.
                Err(error) if error.kind() == ErrorKind::Changed => return Err(error),
                Err(error) => {
                    let error = error.at(&mirror.name);
                    let (now, passes) = (self.shared.now(), may_pass(&error));
                    let failed = self.shared.choice().failed(index, passes, &candidates, now);
                    if failed == Failed::Dropped {
                        self.shared.warn(mirror, &error.cause());
                    }
                    first.get_or_insert(error);
                }
            }
        }
        Err(first.unwrap_or_else(|| self.nothing_left("read")))
    }

    /// Opens the mirrors that may be used, and returns those that hold the same file.
    async fn open_alike(&self) -> Result<Vec<(usize, Arc<dyn ReadAt>)>> {
        let candidates = self.candidates();
        let opening = candidates.iter().map(|index| {
            let mirror = &self.mirrors[*index];
            mirror.storage.open(&mirror.path)
        });
        let outcomes = within_grace(opening.collect()).await;
        let (mut opened, mut failed) = (Vec::new(), Vec::new());
        for (index, outcome) in candidates.into_iter().zip(outcomes) {
            match outcome {
                Ok(reader) => opened.push((index, reader)),
                Err(error) => failed.push((index, error)),
            }
        }
        if opened.is_empty() {
            let first = failed.into_iter().find_map(|(index, error)| Some((index, error?)));
            return Err(match first {
                Some((index, error)) => error.at(&self.mirrors[index].name),
                None => Error::new(ErrorKind::Unreachable, "open").because("no mirror is left"),
            });
        }
        for (index, error) in failed {
            let cause = error.map_or_else(too_late, |error| error.cause());
            self.drop_mirror(index, &cause);
        }
        Ok(self.alike(opened))
    }

    /// Keeps the mirrors that hold the same file as the first one that reports a length. Drops the others.
    fn alike(&self, mut opened: Vec<(usize, Arc<dyn ReadAt>)>) -> Vec<(usize, Arc<dyn ReadAt>)> {
        let has_length =
            |(_, reader): &(usize, Arc<dyn ReadAt>)| reader.identity().size != UNKNOWN_SIZE;
        let reference = opened.iter().position(has_length).unwrap_or(0);
        let (first, known) = (opened[reference].0, opened[reference].1.identity().clone());
        opened.retain(|(index, reader)| {
            let step_ns = self.step_ns(first).max(self.step_ns(*index));
            let step_ns = (!self.is_proven).then_some(step_ns);
            let mismatch = match (*index == first, known.size) {
                (true, _) => None,
                // Without lengths to compare, a read cannot safely resume in it.
                (false, UNKNOWN_SIZE) => Some("it reports no length".to_owned()),
                (false, _) => difference(&known, reader.identity(), step_ns)
                    .map(|how| format!("{how} at {}", self.mirrors[first].name)),
            };
            if let Some(how) = &mismatch {
                self.drop_mirror(*index, how);
            }
            mismatch.is_none()
        });
        opened
    }

    fn drop_mirror(&self, mirror: usize, cause: &str) {
        self.shared.choice().drop_for_good(mirror);
        self.shared.warn(&self.mirrors[mirror], cause);
    }

    fn step_ns(&self, mirror: usize) -> u64 {
        self.mirrors[mirror].storage.capabilities().stored_times.step_ns
    }

    fn check(&self, path: &RelPath, operation: &'static str) -> Result<()> {
        if *path == self.path {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, operation).at(self.location.display(path)))
    }

    fn nothing_left(&self, operation: &'static str) -> Error {
        let error = Error::new(ErrorKind::Unreachable, operation);
        error.at(self.location.display(&self.path)).because("no mirror is left")
    }

    fn trial(&self) -> MutexGuard<'_, Trial> {
        self.trial.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The combined capabilities of all mirrors.
fn capabilities(mirrors: &[Mirror]) -> Capabilities {
    let all = || mirrors.iter().map(|mirror| mirror.storage.capabilities());
    let is_link = all().any(|can| can.medium == Medium::Link);
    let stored_times = all().map(|can| can.stored_times).max_by_key(|times| times.step_ns);
    let medium = if is_link { Medium::Link } else { Medium::Disk };
    Capabilities::least(medium).with(|can| {
        can.ranged_reads = all().any(|can| can.ranged_reads);
        can.stored_times = stored_times.unwrap_or(StoredTimes::in_steps_of(1));
        can.long_reads = all().any(|can| can.long_reads);
        can.pipelined_reads = all().all(|can| can.pipelined_reads);
        can.bounded_reads = all().all(|can| can.bounded_reads);
        can.max_lanes = all().filter_map(|can| can.max_lanes).min();
        can.whole_limit = all().map(|can| can.whole_limit).min().unwrap_or(0);
    })
}

/// How `other` differs from `first`; `None` if they are the same file. Times are compared in steps of
/// `step_ns`, or not at all if that is `None`.
fn difference(first: &Identity, other: &Identity, step_ns: Option<u64>) -> Option<String> {
    if other.size == UNKNOWN_SIZE {
        return Some(format!("it reports no length, which is {} bytes", first.size));
    }
    if other.size != first.size {
        return Some(format!("it has {} bytes, but {} bytes", other.size, first.size));
    }
    let step_ns = step_ns?;
    let (other_time, first_time) = other.modified.zip(first.modified)?;
    let is_strong = |tag: &String| !tag.starts_with("W/");
    let strong = first.tag.as_ref().filter(|tag| is_strong(tag));
    let same_tag = strong.is_some_and(|tag| Some(tag) == other.tag.as_ref());
    if other_time.rounded_down(step_ns) == first_time.rounded_down(step_ns) || same_tag {
        return None;
    }
    let at = |time: haul_storage::Timestamp| format!("{} ({})", time.date(), time.seconds);
    Some(format!("it was modified {}, but {}", at(other_time), at(first_time)))
}

#[async_trait]
impl ReadOnly for MirrorStorage {
    fn why_read_only(&self) -> &'static str {
        "mirrors of a file can only be read"
    }

    fn location(&self) -> &Location {
        &self.location
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn set_lanes(&self, lanes: usize) {
        self.storages().for_each(|storage| storage.set_lanes(lanes));
    }

    fn link(&self) -> LinkStatus {
        self.storages().map(|storage| storage.link()).reduce(LinkStatus::beside).unwrap_or_default()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        self.check(path, "access")?;
        let mut first = None;
        let mut found = None;
        for index in self.candidates() {
            let mirror = &self.mirrors[index];
            match mirror.storage.stat(&mirror.path).await {
                Ok(entry) => {
                    found = Some(entry);
                    break;
                }
                Err(error) => _ = first.get_or_insert(error.at(&mirror.name)),
            }
        }
        let mut entry = match (found, first) {
            (Some(entry), _) => entry,
            (None, Some(error)) => return Err(error),
            (None, None) => return Err(self.nothing_left("access")),
        };
        entry.path = path.clone();
        // The bytes come from several servers.
        entry.digest = None;
        entry.id = None;
        entry.links = 1;
        if entry.modified.is_some() {
            // Each server has tags of its own, and a later run may begin with another mirror.
            entry.tag = None;
        }
        Ok(entry)
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        Err(Error::new(ErrorKind::NotADirectory, "list").at(self.location.display(path)))
    }

    /// No digest is certain to match the bytes that will be read: they come from several servers.
    async fn digest(&self, _: &RelPath, _: DigestKind) -> Result<Option<Digest>> {
        Ok(None)
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        Ok(ReadOnly::stat(self, path).await?.metadata())
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        self.check(path, "open")?;
        let opened = loop {
            match self.open_alike().await {
                Ok(opened) => break opened,
                Err(error) => self.replace_alone(error)?,
            }
        };
        let read = Arc::default();
        self.trial().read = Arc::clone(&read);
        let mirrors = Arc::clone(&self.mirrors);
        Ok(Arc::new(MirrorReader::new(mirrors, Arc::clone(&self.shared), opened, read)))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        self.check(path, "read")?;
        loop {
            match self.read_any(limit).await {
                Ok(whole) => return Ok(whole),
                // It is longer than the limit, or changed while being read: the caller decides how to read it.
                Err(error) if error.kind() == ErrorKind::Changed => return Err(error),
                Err(error) => self.replace_alone(error)?,
            }
        }
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        self.read_each(paths, limit).await
    }

    async fn space(&self, _: &RelPath) -> Result<Option<Space>> {
        Ok(None)
    }

    async fn allocated(&self, _: &RelPath) -> Result<Option<u64>> {
        Ok(None)
    }
}

impl fmt::Debug for MirrorStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MirrorStorage").field("mirrors", &self.mirrors).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::Timestamp;

    use super::*;

    fn identity(size: u64, seconds: Option<i64>, tag: Option<&str>) -> Identity {
        let modified = seconds.map(|seconds| Timestamp { seconds, nanos: 7 });
        Identity { size, modified, id: None, tag: tag.map(str::to_owned) }
    }

    #[test]
    fn mirrors_of_equal_length_differ_by_time_unless_strong_tags_match_or_a_digest_decides() {
        let first = identity(10, Some(100), Some("\"a\""));
        let differs = |other: &Identity| difference(&first, other, Some(1_000_000_000)).is_some();
        assert!(!differs(&identity(10, Some(100), None)));
        assert!(!differs(&identity(10, None, Some("\"b\""))), "one reports no time");
        assert!(!differs(&identity(10, Some(101), Some("\"a\""))));
        assert!(differs(&identity(10, Some(101), Some("\"b\""))));
        assert!(differs(&identity(10, Some(101), None)));
        assert!(differs(&identity(11, Some(100), Some("\"a\""))));
        let weak = identity(10, Some(101), Some("W/\"a\""));
        assert!(
            difference(&weak, &Identity { modified: first.modified, ..weak.clone() }, Some(1))
                .is_some()
        );
        // Formerly, a weak tag and a missing one counted as the same tag.
        assert!(difference(&weak, &identity(10, Some(7), None), Some(1)).is_some());
        assert!(difference(&first, &identity(10, Some(7), None), None).is_none(), "it is proven");
        assert!(difference(&first, &identity(9, Some(100), None), None).is_some());
    }
}
