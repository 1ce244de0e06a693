//! Compares two trees, over any two storages.

use std::cmp::Ordering;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, join, try_join};
use futures_util::stream::FuturesUnordered;
use haul_storage::{
    DigestKind, Entry, EntryKind, Error, RelPath, Result, Storage, StorageExt as _, is_part_name,
};

use super::at_once;
use crate::digest::{Digest, REPORTED, reported};
use crate::transfer::{Verdict, verdict};
use crate::verify::{Checker, Hashed, VerifyEvent, VerifyOptions};
use crate::{Cancel, Compare, Filter, Overwrite};

/// How to compare.
#[derive(Debug, Clone)]
pub struct CompareOptions {
    /// Compare the content of files of equal length, by this digest, instead of their times. If a server
    /// reports digests of its own, by those.
    pub checksum: Option<DigestKind>,
    /// Which entries take part, by their path below the top.
    pub filter: Filter,
    /// Memory, threads and retries for reading.
    pub reading: VerifyOptions,
}

/// A way in which two entries of one name differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// They are of different kinds, such as a file and a directory.
    Kind,
    /// Their lengths in bytes.
    Size(u64, u64),
    /// Their modification times, with the precision of the coarser side.
    Time,
    /// Their digests.
    Content,
    /// The targets of the links.
    Target,
}

/// The result for a name. Paths are relative to the tops.
#[derive(Debug)]
pub enum Compared {
    /// Both have it, and it differs.
    Differs(RelPath, Difference),
    /// Only the first has it. A directory stands for everything in it.
    Missing(Entry),
    /// Only the second has it. A directory stands for everything in it.
    Extra(Entry),
    /// One of them could not be read; nothing below it was compared.
    Failed(Error),
    /// This many more bytes were read, or are those of a hole.
    Progress(u64),
}

/// The summary of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Files, links and special files that are equal, as far as they were compared.
    pub same: u64,
    /// Of these, files without times to compare: only sizes were compared.
    pub by_size: u64,
    /// Of these, files of which a server reported the digest instead of sending the bytes.
    pub reported: u64,
    /// Names that both have, and that differ.
    pub differing: u64,
    /// Names that only the first has.
    pub missing: u64,
    /// Names that only the second has.
    pub extra: u64,
    /// Names that could not be read.
    pub failed: u64,
    /// Bytes that were read, holes included, also of names that differ or could not be read to their end.
    pub bytes: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

impl Comparison {
    /// Whether everything was compared and nothing differs.
    pub const fn is_same(&self) -> bool {
        self.differing + self.missing + self.extra + self.failed == 0 && !self.interrupted
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a> {
    /// The storage.
    pub storage: &'a dyn Storage,
    /// The top, a directory or a file.
    pub top: &'a RelPath,
}

/// Compares two directories and everything below them, or two files. `report` is called for each difference, failure
/// and progress, in no particular order. With `cancel`, it ends at once: files that are being read count for nothing.
pub async fn compare(
    sides: (Side<'_>, Side<'_>),
    options: &CompareOptions,
    cancel: &Cancel,
    report: impl FnMut(Compared) + Send,
) -> Comparison {
    let report = Mutex::new(report);
    let emit = |compared| {
        // A panic while reporting ends the comparison.
        if let Ok(mut report) = report.lock() {
            report(compared);
        }
    };
    let read = AtomicU64::new(0);
    let on_event = |event| {
        if let VerifyEvent::Progress { bytes } = event {
            read.fetch_add(bytes, Relaxed);
            emit(Compared::Progress(bytes));
        }
    };
    let pass = Pass {
        sides: [sides.0, sides.1],
        checkers: [sides.0, sides.1]
            .map(|side| Checker::new(side.storage, side.top, &options.reading, &on_event)),
        options,
    };
    let most = at_once(sides.0.storage).max(at_once(sides.1.storage));
    let mut comparison = Comparison::default();
    let mut ready = vec![Step::Tops];
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < most && !cancel.is_cancelled() {
            let Some(step) = ready.pop() else { break };
            running.push(pass.run(step));
        }
        let found = tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            found = running.next() => found,
        };
        let Some(found) = found else { break };
        for found in found {
            match found {
                Found::Step(step) => ready.push(step),
                Found::Same => comparison.same += 1,
                Found::Reported => {
                    comparison.same += 1;
                    comparison.reported += 1;
                }
                Found::SameSize => {
                    comparison.same += 1;
                    comparison.by_size += 1;
                }
                Found::Event(compared) => {
                    match &compared {
                        Compared::Differs(..) => comparison.differing += 1,
                        Compared::Missing(_) => comparison.missing += 1,
                        Compared::Extra(_) => comparison.extra += 1,
                        Compared::Failed(_) => comparison.failed += 1,
                        Compared::Progress(_) => {}
                    }
                    emit(compared);
                }
            }
        }
    }
    comparison.bytes = read.load(Relaxed);
    comparison.interrupted = cancel.is_cancelled();
    comparison
}

enum Step {
    Tops,
    Directory(RelPath),
    Content(RelPath),
}

enum Found {
    Step(Step),
    Same,
    /// The same content by the digest of a server.
    Reported,
    /// The same size, and no times to compare.
    SameSize,
    Event(Compared),
}

struct Pass<'a> {
    sides: [Side<'a>; 2],
    checkers: [Checker<'a>; 2],
    options: &'a CompareOptions,
}

impl Pass<'_> {
    fn run(&self, step: Step) -> BoxFuture<'_, Vec<Found>> {
        async move {
            let outcome = match step {
                Step::Tops => self.tops().await.map(|found| vec![found]),
                Step::Directory(below) => self.directory(&below).await,
                Step::Content(below) => self.content(below).await.map(|found| vec![found]),
            };
            outcome.unwrap_or_else(|error| vec![Found::Event(Compared::Failed(error))])
        }
        .boxed()
    }

    async fn tops(&self) -> Result<Found> {
        let [first, second] = self.sides;
        let (a, b) =
            try_join(first.storage.stat(first.top), second.storage.stat(second.top)).await?;
        self.pair(RelPath::root(), &a, &b)
    }

    async fn directory(&self, below: &RelPath) -> Result<Vec<Found>> {
        let [first, second] = self.sides;
        let listings = try_join(list(first, below), list(second, below)).await?;
        let takes = |entry: &Entry| {
            let name = below.join(entry.path.name());
            !is_part_name(entry.path.name())
                && name.is_ok_and(|name| self.options.filter.takes(name.as_bytes(), entry.is_dir()))
        };
        let mut found = Vec::new();
        let mut first = listings.0.into_iter().filter(takes).peekable();
        let mut second = listings.1.into_iter().filter(takes).peekable();
        loop {
            let order = match (first.peek(), second.peek()) {
                (None, None) => return Ok(found),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => a.path.name().cmp(b.path.name()),
            };
            let a = first.next_if(|_| order != Ordering::Greater);
            let b = second.next_if(|_| order != Ordering::Less);
            match (a, b) {
                (Some(a), Some(b)) => {
                    let path = below.join(a.path.name()).map_err(invalid)?;
                    found.push(self.pair(path, &a, &b)?);
                }
                (Some(a), None) => found.push(Found::Event(Compared::Missing(at(below, a)?))),
                (None, Some(b)) => found.push(Found::Event(Compared::Extra(at(below, b)?))),
                (None, None) => {}
            }
        }
    }

    /// Compares the listed entries of a name that both have.
    fn pair(&self, path: RelPath, a: &Entry, b: &Entry) -> Result<Found> {
        let differs = |how| Ok(Found::Event(Compared::Differs(path.clone(), how)));
        match (&a.kind, &b.kind) {
            (EntryKind::Directory, EntryKind::Directory) => Ok(Found::Step(Step::Directory(path))),
            (EntryKind::Symlink(a), EntryKind::Symlink(b)) if a != b => differs(Difference::Target),
            (EntryKind::Special(a), EntryKind::Special(b)) if a != b => differs(Difference::Kind),
            (EntryKind::File, EntryKind::File) => match (a.known_size(), b.known_size()) {
                (Some(size), Some(other)) if size != other => {
                    differs(Difference::Size(size, other))
                }
                // Listed digests come first in all modes; but a difference is reported only after reading.
                _ if a.same_content(b) == Some(true) => Ok(Found::Reported),
                _ if a.same_content(b) == Some(false) => Ok(Found::Step(Step::Content(path))),
                _ if self.options.checksum.is_some() => Ok(Found::Step(Step::Content(path))),
                (Some(_), Some(_)) if !self.has_times(a, b) => Ok(Found::SameSize),
                // Nothing but the content can be compared.
                _ if !self.has_times(a, b) => Ok(Found::Step(Step::Content(path))),
                _ if self.same_time(a, b) => Ok(Found::Same),
                _ => differs(Difference::Time),
            },
            (a, b) if std::mem::discriminant(a) == std::mem::discriminant(b) => Ok(Found::Same),
            _ => differs(Difference::Kind),
        }
    }

    /// Whether both sides have the times of their sources: those of uploads mean nothing.
    fn has_times(&self, a: &Entry, b: &Entry) -> bool {
        let keep = self.sides.iter().all(|side| side.storage.capabilities().times);
        keep && a.modified.is_some() && b.modified.is_some()
    }

    /// Whether a copy from the first to the second, or the other way round, would find the times equal.
    fn same_time(&self, a: &Entry, b: &Entry) -> bool {
        let [first, second] = self.sides.map(|side| side.storage.capabilities());
        let judge = |from: &Entry, step_ns, to: &Entry, stored_times, sets_times| {
            let how = (Overwrite::Different, Compare::SizeAndTime);
            verdict(how, from, step_ns, to, stored_times, sets_times) == Verdict::Keep
        };
        judge(a, first.stored_times.step_ns, b, second.stored_times, second.times)
            || judge(b, second.stored_times.step_ns, a, first.stored_times, first.times)
    }

    /// Compares contents. A digest that a server reports can show that two files are equal. That they
    /// differ is reported only after both were read, so that a wrong digest from a server causes no
    /// false difference.
    async fn content(&self, below: RelPath) -> Result<Found> {
        let kind = self.options.checksum.unwrap_or(DigestKind::Blake3);
        let ((a, size, _), (b, other, _)) = match self.reported(&below).await {
            (Some(a), Some(b)) if a == b => return Ok(Found::Reported),
            (Some(a), None) => {
                let other = self.hash(1, &below, a.kind).await?;
                if other.0 == a {
                    return Ok(Found::Reported);
                }
                (self.hash(0, &below, a.kind).await?, other)
            }
            (None, Some(b)) => {
                let first = self.hash(0, &below, b.kind).await?;
                if first.0 == b {
                    return Ok(Found::Reported);
                }
                (first, self.hash(1, &below, b.kind).await?)
            }
            _ => try_join(self.hash(0, &below, kind), self.hash(1, &below, kind)).await?,
        };
        if a == b {
            return Ok(Found::Same);
        }
        let how = if size == other { Difference::Content } else { Difference::Size(size, other) };
        Ok(Found::Event(Compared::Differs(below, how)))
    }

    /// The digests that servers report for both sides of a name.
    async fn reported(&self, below: &RelPath) -> (Option<Digest>, Option<Digest>) {
        let request = async |at: usize| {
            let side = self.sides[at];
            reported(side.storage, &side.top.join_path(below), REPORTED).await
        };
        join(request(0), request(1)).await
    }

    /// Reads one side of a name.
    async fn hash(&self, at: usize, below: &RelPath, kind: DigestKind) -> Result<Hashed> {
        let (side, path) = (self.sides[at], self.sides[at].top.join_path(below));
        let hashed = self.checkers[at].hash(&path, kind).await;
        hashed.map_err(|error| error.at(side.storage.location().display(&path)))
    }
}

async fn list(side: Side<'_>, below: &RelPath) -> Result<Vec<Entry>> {
    let path = side.top.join_path(below);
    let listed = side.storage.list_sorted(&path).await;
    listed.map_err(|error| error.at(side.storage.location().display(&path)))
}

/// An entry with its path below the top.
fn at(below: &RelPath, entry: Entry) -> Result<Entry> {
    let path = below.join(entry.path.name()).map_err(invalid)?;
    Ok(entry.at(path))
}

fn invalid(error: haul_storage::RelPathError) -> Error {
    Error::new(haul_storage::ErrorKind::InvalidInput, "compare").because(error.to_string())
}
