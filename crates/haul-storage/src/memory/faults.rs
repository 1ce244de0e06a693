//! Fault injection: which call of which operation fails, and how.
//!
//! ```
//! # use haul_storage::{ErrorKind, memory::{MemoryStorage, Operation}};
//! let storage = MemoryStorage::new();
//! let faults = storage.faults();
//! faults.on(Operation::Write).nth(3).fail(ErrorKind::Unreachable);
//! faults.on(Operation::Read).path("a/b").tear(100, ErrorKind::Io);
//! faults.on_any().nth(17).fail(ErrorKind::Unreachable); // the 17th call of anything
//! ```
//!
//! To let every operation fail in turn, a test runs once without faults, takes [`Faults::count_all`],
//! and then lets call 1, 2, … of [`Faults::on_any`] fail.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::lock::lock;
use crate::{ErrorKind, RelPath, Retry};

/// A method of the storage traits. A read counts as one call, when its stream is first polled.
#[expect(missing_docs, reason = "each is named after the method it stands for")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    Stat,
    List,
    /// One entry of a listing. Supports only `path` with `fail`, which affects every listing; not counted.
    ListEntry,
    CreateDir,
    CreateLink,
    Remove,
    Rename,
    Copy,
    Digest,
    Metadata,
    SetMetadata,
    Open,
    Create,
    ReadWhole,
    WriteWhole,
    Lock,
    /// `ReadAt::metadata`
    ReadMetadata,
    Recheck,
    /// `ReadAt::read_at`
    Read,
    NextData,
    /// `WriteAt::write_at`
    Write,
    CopyFrom,
    Record,
    Sync,
    Reopen,
    Commit,
    Abort,
}

impl Operation {
    /// The verb in an error.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::List | Self::ListEntry => "list",
            Self::CreateDir => "create directory",
            Self::CreateLink => "create link",
            Self::Remove => "remove",
            Self::Rename => "rename",
            Self::Copy | Self::CopyFrom => "copy",
            Self::Digest => "read the digest",
            Self::Metadata | Self::ReadMetadata => "read metadata",
            Self::SetMetadata => "set metadata",
            Self::Open | Self::Reopen => "open",
            Self::Create => "create",
            Self::ReadWhole | Self::Read => "read",
            Self::WriteWhole | Self::Write => "write",
            Self::Lock => "lock",
            Self::Recheck => "check",
            Self::NextData => "find data",
            Self::Record => "record",
            Self::Sync => "sync",
            Self::Commit => "commit",
            Self::Abort => "abort",
        }
    }
}

/// The faults of one storage, and the count of its calls. Cheap to clone; clones share their state.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    counts: BTreeMap<Operation, u64>,
    calls: Vec<(Operation, RelPath)>,
}

#[derive(Debug)]
struct Rule {
    operation: Option<Operation>,
    path: Option<RelPath>,
    calls: std::ops::RangeInclusive<u64>,
    seen: u64,
    effect: Effect,
}

/// What happens to a call.
#[derive(Debug, Clone)]
enum Effect {
    Fail(Failure),
    LoseResponse(Failure),
    Tear(u64, Failure),
    Cut(u64),
    Corrupt(u64),
    Delay(Duration),
    Drip(Duration),
    Stall,
    Change(Change),
}

/// An injected error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    pub(super) kind: ErrorKind,
    pub(super) retry: Option<Retry>,
}

/// A change of the file before the call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    Touch,
    Resize(u64),
    Vanish,
}

/// The combined effects of all rules on one call.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) fail: Option<Failure>,
    pub(super) lose_response: Option<Failure>,
    pub(super) tear: Option<(u64, Failure)>,
    pub(super) cut: Option<u64>,
    pub(super) corrupt: Option<u64>,
    pub(super) delay: Duration,
    /// The pause before each byte of a read.
    pub(super) drip: Option<Duration>,
    pub(super) stall: bool,
    pub(super) changes: Vec<Change>,
}

impl Faults {
    /// Begins a rule about calls of `operation`: all of them, unless [`When::path`], [`When::nth`], [`When::first`] or
    /// [`When::from`] selects some.
    pub fn on(&self, operation: Operation) -> When {
        When { faults: self.clone(), operation: Some(operation), path: None, calls: 1..=u64::MAX }
    }

    /// Begins a rule about calls of all operations, counted together.
    pub fn on_any(&self) -> When {
        When { faults: self.clone(), operation: None, path: None, calls: 1..=u64::MAX }
    }

    /// The `nth` call of `operation` from now on fails: short for `on(…).nth(…).fail(…)`.
    pub fn fail(&self, operation: Operation, nth: u64, kind: ErrorKind) {
        self.on(operation).nth(nth).fail(kind);
    }

    /// Removes all rules. Stalled calls stay stalled.
    pub fn clear(&self) {
        lock(&self.state).rules.clear();
    }

    /// The number of calls of `operation` since the beginning or [`Faults::reset_count`].
    pub fn count(&self, operation: Operation) -> u64 {
        lock(&self.state).counts.get(&operation).copied().unwrap_or(0)
    }

    /// The number of all calls since the beginning or [`Faults::reset_count`].
    pub fn count_all(&self) -> u64 {
        lock(&self.state).calls.len() as u64
    }

    /// All calls since the beginning or [`Faults::reset_count`], in order.
    pub fn calls(&self) -> Vec<(Operation, RelPath)> {
        lock(&self.state).calls.clone()
    }

    /// Counts from 0 again.
    pub fn reset_count(&self) {
        let mut state = lock(&self.state);
        state.counts.clear();
        state.calls.clear();
    }

    /// Counts a call and returns its effects.
    pub(super) fn judge(&self, operation: Operation, path: &RelPath) -> Verdict {
        let mut state = lock(&self.state);
        *state.counts.entry(operation).or_default() += 1;
        state.calls.push((operation, path.clone()));
        let mut verdict = Verdict::default();
        for rule in &mut state.rules {
            if rule.operation.is_some_and(|wanted| wanted != operation)
                || rule.path.as_ref().is_some_and(|wanted| wanted != path)
            {
                continue;
            }
            rule.seen += 1;
            if rule.calls.contains(&rule.seen) {
                verdict.add(&rule.effect);
            }
        }
        verdict
    }

    /// The error that a rule injects for one entry of a listing.
    pub(super) fn of_entry(&self, path: &RelPath) -> Option<Failure> {
        let state = lock(&self.state);
        state.rules.iter().find_map(|rule| match &rule.effect {
            Effect::Fail(failure)
                if rule.operation == Some(Operation::ListEntry)
                    && rule.path.as_ref().is_none_or(|wanted| wanted == path) =>
            {
                Some(*failure)
            }
            _ => None,
        })
    }
}

impl Verdict {
    fn add(&mut self, effect: &Effect) {
        match *effect {
            Effect::Fail(failure) => self.fail = Some(failure),
            Effect::LoseResponse(failure) => self.lose_response = Some(failure),
            Effect::Tear(bytes, failure) => self.tear = Some((bytes, failure)),
            Effect::Cut(bytes) => self.cut = Some(bytes),
            Effect::Corrupt(at) => self.corrupt = Some(at),
            Effect::Delay(time) => self.delay += time,
            Effect::Drip(pause) => self.drip = Some(pause),
            Effect::Stall => self.stall = true,
            Effect::Change(change) => self.changes.push(change),
        }
    }
}

/// A rule in construction: which calls it selects. The last method sets the effect and adds the rule.
#[derive(Debug)]
#[must_use = "a rule takes effect only once its effect is set"]
pub struct When {
    faults: Faults,
    operation: Option<Operation>,
    path: Option<RelPath>,
    calls: std::ops::RangeInclusive<u64>,
}

impl When {
    /// Only calls for this path; for operations on an open file, the path that it was opened by.
    ///
    /// # Panics
    /// If it is not a [`RelPath`].
    pub fn path(mut self, path: impl AsRef<[u8]>) -> Self {
        self.path = Some(super::path::path(path));
        self
    }

    /// Only the `nth` such call from now on; the first is 1.
    pub fn nth(mut self, nth: u64) -> Self {
        self.calls = nth..=nth;
        self
    }

    /// Only the first `count` such calls from now on.
    pub fn first(mut self, count: u64) -> Self {
        self.calls = 1..=count;
        self
    }

    /// The `nth` such call from now on and all after it.
    pub fn from(mut self, nth: u64) -> Self {
        self.calls = nth..=u64::MAX;
        self
    }

    /// The call fails and has no effect.
    pub fn fail(self, kind: ErrorKind) {
        self.add(Effect::Fail(Failure { kind, retry: None }));
    }

    /// The call fails with this retry status and has no effect.
    pub fn fail_with(self, kind: ErrorKind, retry: Retry) {
        self.add(Effect::Fail(Failure { kind, retry: Some(retry) }));
    }

    /// The call takes effect, but fails: the response got lost. Does nothing to [`Operation::Read`].
    pub fn lose_response(self, kind: ErrorKind) {
        self.add(Effect::LoseResponse(Failure { kind, retry: None }));
    }

    /// The call fails after the first `bytes` bytes were read or written; a `read_at` that is not longer fails at its
    /// end. Other calls that are not longer succeed, and a `write_whole` that fails writes nothing.
    pub fn tear(self, bytes: u64, kind: ErrorKind) {
        self.add(Effect::Tear(bytes, Failure { kind, retry: None }));
    }

    /// A read ends after `bytes` bytes as if the file ended there; a write stores only that many, but
    /// reports success.
    pub fn cut(self, bytes: u64) {
        self.add(Effect::Cut(bytes));
    }

    /// Byte `at` of the data read or written is corrupted.
    pub fn corrupt(self, at: u64) {
        self.add(Effect::Corrupt(at));
    }

    /// The call takes this much longer.
    pub fn delay(self, time: Duration) {
        self.add(Effect::Delay(time));
    }

    /// A read returns one byte at a time, each after this pause.
    pub fn drip(self, pause: Duration) {
        self.add(Effect::Drip(pause));
    }

    /// The call never returns; the caller has to drop it.
    pub fn stall(self) {
        self.add(Effect::Stall);
    }

    /// Before the call, the file gets another modification time; its content stays.
    pub fn change(self) {
        self.add(Effect::Change(Change::Touch));
    }

    /// Before the call, the file grows or shrinks to `size` bytes.
    pub fn resize(self, size: u64) {
        self.add(Effect::Change(Change::Resize(size)));
    }

    /// Before the call, the file is removed, so that reading it fails.
    pub fn vanish(self) {
        self.add(Effect::Change(Change::Vanish));
    }

    fn add(self, effect: Effect) {
        let Self { faults, operation, path, calls } = self;
        lock(&faults.state).rules.push(Rule { operation, path, calls, seen: 0, effect });
    }
}
