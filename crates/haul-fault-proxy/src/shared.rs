//! What the tests' threads and the thread of the proxy have in common.
//!
//! Tests change the `State` under its lock and ring the bell; the thread of the proxy holds the
//! lock whenever it works, so that what a test has set holds for every byte after. Who waits for
//! something to happen sleeps until the version changes.

use std::collections::BTreeMap;
use std::io::{self, PipeWriter, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::RuleId;
use crate::link::Clock;
use crate::rules::Rules;
use crate::stats::Record;

/// What is set and what was seen.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rules: Rules,
    pub(crate) record: Record,
    /// The links that several connections share.
    pub(crate) shared_clocks: BTreeMap<RuleId, Clock>,
    /// Bytes that one direction of one connection may hold.
    pub(crate) line_capacity: usize,
    pub(crate) paused: bool,
    pub(crate) stopping: bool,
    /// How often all connections were to be cut, and how often they were.
    pub(crate) cuts_ordered: u64,
    pub(crate) cuts_made: u64,
    /// Whether the thread of the proxy is gone.
    pub(crate) ended: bool,
}

impl State {
    pub(crate) fn new(rules: Rules, line_capacity: usize) -> Self {
        Self {
            rules,
            record: Record::default(),
            shared_clocks: BTreeMap::new(),
            line_capacity,
            paused: false,
            stopping: false,
            cuts_ordered: 0,
            cuts_made: 0,
            ended: false,
        }
    }
}

/// The state, its lock, and the ways to be woken.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Held while waiting for `state`. The thread of the proxy takes the lock again as soon as it
    /// has let go of it, and would mostly win against who waits. With this turnstile, and all that
    /// two processors can move going through, the longest wait was 3 ms instead of 35.
    turnstile: Mutex<()>,
    version: Mutex<u64>,
    changed: Condvar,
    bell: PipeWriter,
}

impl Shared {
    pub(crate) const fn new(state: State, bell: PipeWriter) -> Self {
        Self {
            state: Mutex::new(state),
            turnstile: Mutex::new(()),
            version: Mutex::new(0),
            changed: Condvar::new(),
            bell,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        let _turn = lock(&self.turnstile);
        lock(&self.state)
    }

    /// Changes the state and has the thread of the proxy look at it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.lock());
        self.ring();
        self.announce();
        result
    }

    /// Wakes the thread of the proxy.
    fn ring(&self) {
        // It fails only if that thread is gone, and then nothing is left to be told.
        let _: io::Result<usize> = (&self.bell).write(&[0]);
    }

    /// Wakes everybody who waits for a change.
    pub(crate) fn announce(&self) {
        *lock(&self.version) += 1;
        self.changed.notify_all();
    }

    /// Waits until `look` finds something or `timeout` has passed. It may look at any change, and
    /// is not called with any lock held.
    pub(crate) fn wait_for<R>(
        &self,
        timeout: Duration,
        mut look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let seen = *lock(&self.version);
            if let Some(found) = look() {
                return Some(found);
            }
            let mut version = lock(&self.version);
            while *version == seen {
                // Without a deadline that can be said, the wait is for as long as it takes.
                let left = deadline.map_or(Duration::MAX, |deadline| {
                    deadline.saturating_duration_since(Instant::now())
                });
                if left.is_zero() {
                    drop(version);
                    return look();
                }
                version = self
                    .changed
                    .wait_timeout(version, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }
}

/// A panic under one of these locks is a bug of the proxy that shows in its own place; whoever else
/// wants the lock goes on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
