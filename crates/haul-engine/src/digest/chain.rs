//! SHA-256 of a file whose blocks arrive in any order: they are hashed strictly by offset.
//!
//! Blocks that arrive early wait, keyed by offset. At most one thread owns the hasher at a time; it
//! hashes consecutive blocks until the next one is missing, or yields after `TURN` bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_storage::{Block, Error, ErrorKind, Range, Result, WorkPool};
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;

use super::feeding::{ZEROS, fed_twice, misfed, missing};

/// Bytes that a task hashes (about 5 ms) before it yields the thread to another file.
const TURN: u64 = 8 << 20;

/// Input of the hasher: a block, or a run of zeros (a hole) of this length in bytes.
pub(super) enum Feed {
    Block(Block),
    Zeros(u64),
}

#[derive(Default)]
pub(super) struct Chain {
    state: Mutex<State>,
}

struct State {
    /// `None` while a thread owns it.
    hasher: Option<Sha256>,
    /// End offset of the bytes hashed or being hashed.
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
    is_aborted: bool,
}

struct Waiting {
    feed: Feed,
    done: oneshot::Sender<()>,
}

impl Chain {
    /// Feeds the bytes at `offset` and waits until they are hashed. With `inline`, bytes that are next
    /// in order are hashed on the calling thread, unless another thread is hashing.
    pub(super) async fn feed(
        chain: &Arc<Self>,
        pool: &WorkPool,
        offset: u64,
        feed: Feed,
        inline: bool,
    ) -> Result<()> {
        if feed.len() == 0 {
            return Ok(());
        }
        let receiver = {
            let mut state = chain.lock();
            state.check_free(Range::new(offset, feed.len()))?;
            if inline && let Some(hasher) = state.take_hasher_at(offset) {
                state.next += feed.len();
                drop(state);
                chain.hash_here(pool, hasher, &feed);
                return Ok(());
            }
            let (done, receiver) = oneshot::channel();
            state.waiting.insert(offset, Waiting { feed, done });
            if let Some(hasher) = state.take_hasher_at(offset) {
                chain.clone().schedule(pool, hasher);
            }
            receiver
        };
        receiver
            .await
            .map_err(|_| Error::new(ErrorKind::Interrupted, "hash").because("was aborted"))
    }

    /// Returns the digest if exactly `0..size` has been hashed.
    pub(super) fn finish(&self, size: u64) -> Result<[u8; 32]> {
        let state = self.lock();
        let last = state.waiting.last_key_value();
        let end = last.map_or(state.next, |(offset, waiting)| offset + waiting.feed.len());
        if end > size {
            return Err(misfed(format!("{end} bytes were fed, the file has {size}")));
        }
        let first = state.waiting.keys().next().copied();
        if state.next < size && first != Some(state.next) {
            return Err(missing(Range::between(state.next, first.unwrap_or(size))));
        }
        match &state.hasher {
            Some(hasher) if state.next == size => Ok(hasher.clone().finalize().into()),
            _ => Err(misfed("the last bytes are still being hashed")),
        }
    }

    /// Aborts: drops all waiting blocks, and the thread that hashes stops after its current block.
    pub(super) fn abort(&self) {
        let mut state = self.lock();
        state.is_aborted = true;
        state.waiting.clear();
    }

    fn hash_here(self: &Arc<Self>, pool: &WorkPool, mut hasher: Sha256, feed: &Feed) {
        feed.hash(&mut hasher);
        let mut state = self.lock();
        if state.waiting.contains_key(&state.next) {
            drop(state);
            self.clone().schedule(pool, hasher);
        } else {
            state.hasher = Some(hasher);
        }
    }

    fn schedule(self: Arc<Self>, pool: &WorkPool, hasher: Sha256) {
        let again = pool.clone();
        pool.submit(move || self.hash_waiting(&again, hasher));
    }

    fn hash_waiting(self: Arc<Self>, pool: &WorkPool, mut hasher: Sha256) {
        let mut left = TURN;
        let mut hashed: Option<oneshot::Sender<()>> = None;
        loop {
            let mut state = self.lock();
            if state.is_aborted {
                return;
            }
            let taken = if left > 0 { state.take_next(left) } else { None };
            let more = taken.is_none() && state.waiting.contains_key(&state.next);
            let next = match taken {
                Some(next) => next,
                None if more => {
                    drop(state);
                    notify(hashed);
                    return self.schedule(pool, hasher);
                }
                None => {
                    // Put the hasher back before reporting the last block: the task that waits for
                    // it may call `finish` next.
                    state.hasher = Some(hasher);
                    drop(state);
                    return notify(hashed);
                }
            };
            drop(state);
            notify(hashed.take());
            let (feed, done) = next;
            feed.hash(&mut hasher);
            left = left.saturating_sub(feed.len());
            hashed = done;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_hasher_at(&mut self, offset: u64) -> Option<Sha256> {
        if offset == self.next { self.hasher.take() } else { None }
    }

    /// Takes the next input and the channel that reports it as hashed. A hole longer than `most` bytes
    /// is taken in parts; only its last part has the channel.
    fn take_next(&mut self, most: u64) -> Option<(Feed, Option<oneshot::Sender<()>>)> {
        let Waiting { feed, done } = self.waiting.remove(&self.next)?;
        match feed {
            Feed::Zeros(length) if length > most => {
                self.next += most;
                let rest = Waiting { feed: Feed::Zeros(length - most), done };
                self.waiting.insert(self.next, rest);
                Some((Feed::Zeros(most), None))
            }
            feed => {
                self.next += feed.len();
                Some((feed, Some(done)))
            }
        }
    }

    fn check_free(&self, range: Range) -> Result<()> {
        let before = self.waiting.range(..range.end()).next_back();
        let reaches = |(offset, waiting): (&u64, &Waiting)| {
            offset.saturating_add(waiting.feed.len()) > range.start()
        };
        if range.start() < self.next || before.is_some_and(reaches) {
            return Err(fed_twice(range));
        }
        Ok(())
    }
}

impl Default for State {
    fn default() -> Self {
        Self { hasher: Some(Sha256::new()), next: 0, waiting: BTreeMap::new(), is_aborted: false }
    }
}

impl Feed {
    fn len(&self) -> u64 {
        match self {
            Self::Block(block) => block.len() as u64,
            Self::Zeros(length) => *length,
        }
    }

    fn hash(&self, hasher: &mut Sha256) {
        match self {
            Self::Block(block) => block.pieces().iter().for_each(|piece| hasher.update(piece)),
            Self::Zeros(length) => {
                let mut left = *length;
                while left > 0 {
                    let zeros = &ZEROS[..left.min(ZEROS.len() as u64) as usize];
                    hasher.update(zeros);
                    left -= zeros.len() as u64;
                }
            }
        }
    }
}

impl From<Block> for Feed {
    fn from(block: Block) -> Self {
        Self::Block(block)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chain")
    }
}

/// Reports a block as hashed; the waiting task may have been dropped, which is no error.
fn notify(done: Option<oneshot::Sender<()>>) {
    if let Some(done) = done {
        _ = done.send(());
    }
}
