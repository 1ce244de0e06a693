//! The hasher of one file: the async interface to the BLAKE3 forest and the SHA-256 chain.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use futures_util::stream;
use haul_storage::{Block, DigestKind, Range, Result, WorkPool};

use super::Digest;
use super::chain::Chain;
use super::feeding::misfed;
use super::forest::{Forest, Subtrees};

/// Blocks of up to this many bytes are hashed on the calling thread: 64 KiB take 11 µs with BLAKE3 and 45 µs with
/// SHA-256, about as long as the switch to another thread and back.
const INLINE_MAX: u64 = 64 << 10;

/// A hole is hashed in stretches of this many bytes (a power of two), about 3 ms of BLAKE3 each: several threads
/// share it, and are soon free if the file is abandoned.
const HOLE_STRETCH: u64 = 16 << 20;

/// Computes the digest of one file from its blocks. Many tasks may share it.
///
/// Every byte of the file must be fed exactly once; feeding it twice or never is an error.
///
/// - BLAKE3: blocks may come in any order and with any boundaries, and are hashed by all threads of
///   the pool; boundaries that are multiples of 64 KiB are the fastest. Memory is proportional to the
///   number of gaps between the blocks fed so far, times the logarithm of the length.
/// - SHA-256: a block waits until all before it are fed, and one thread at a time hashes the file.
///   A caller that feeds out of order therefore holds memory until the gap is closed, and must
///   ensure that the block at the gap can still get memory (deadlock otherwise).
///
/// Dropping the hasher drops the blocks that wait in it.
pub struct FileHasher {
    pool: WorkPool,
    state: State,
}

enum State {
    Blake3(Arc<Mutex<Forest>>),
    Sha256(Arc<Chain>),
}

impl FileHasher {
    /// A hasher that works on the threads of `pool`.
    pub fn new(kind: DigestKind, pool: WorkPool) -> Self {
        let state = match kind {
            DigestKind::Blake3 => State::Blake3(Arc::default()),
            DigestKind::Sha256 => State::Sha256(Arc::default()),
        };
        Self { pool, state }
    }

    /// The kind of its digest.
    pub fn kind(&self) -> DigestKind {
        match self.state {
            State::Blake3(_) => DigestKind::Blake3,
            State::Sha256(_) => DigestKind::Sha256,
        }
    }

    /// Feeds the block at `offset`; ready when its bytes are hashed and the block is dropped. Once polled it counts as
    /// fed, even if the future is dropped before it is ready.
    ///
    /// # Errors
    /// `InvalidInput` if any of its bytes was fed before.
    pub async fn update(&self, offset: u64, block: Block) -> Result<()> {
        let length = check_length(offset, block.len() as u64)?;
        match &self.state {
            State::Blake3(forest) => {
                if length <= INLINE_MAX {
                    return add(forest, Subtrees::of_block(offset, block.pieces()));
                }
                let forest = Arc::clone(forest);
                let work = move || add(&forest, Subtrees::of_block(offset, block.pieces()));
                self.pool.run(work).await
            }
            State::Sha256(chain) => {
                let inline = length <= INLINE_MAX;
                Chain::feed(chain, &self.pool, offset, block.into(), inline).await
            }
        }
    }

    /// Feeds a hole: `length` zeros at `offset`, which are not read from anywhere.
    ///
    /// Neither function has a shortcut for zeros: SHA-256 is a chain, and in BLAKE3 the position
    /// of each chunk goes into its hash, so that no two subtrees of zeros are alike. A hole
    /// therefore costs processor time (none of disk or link): 1 TiB takes 160 s of one core with
    /// BLAKE3 (7 GB/s measured), shared by all threads of the pool, and 11 minutes with SHA-256.
    ///
    /// # Errors
    /// `InvalidInput` if any of these bytes was fed before.
    pub async fn zeros(&self, offset: u64, length: u64) -> Result<()> {
        let length = check_length(offset, length)?;
        match &self.state {
            State::Blake3(forest) if length <= INLINE_MAX => {
                add(forest, Subtrees::of_zeros(offset, length))
            }
            State::Blake3(forest) => {
                let stretches = stretches(Range::new(offset, length)).map(|stretch| {
                    let forest = Arc::clone(forest);
                    let work =
                        move || add(&forest, Subtrees::of_zeros(stretch.start(), stretch.len()));
                    self.pool.run(work)
                });
                let mut hashed = stream::iter(stretches).buffer_unordered(self.pool.threads());
                while let Some(outcome) = hashed.next().await {
                    outcome?;
                }
                Ok(())
            }
            State::Sha256(chain) => {
                let inline = length <= INLINE_MAX;
                Chain::feed(chain, &self.pool, offset, super::chain::Feed::Zeros(length), inline)
                    .await
            }
        }
    }

    /// The digest of the file.
    ///
    /// # Errors
    /// `InvalidInput` unless exactly the bytes `0..size` were fed and every `update` is ready. The message has the
    /// first missing range, or the number of bytes fed if there are too many.
    pub async fn finish(&self, size: u64) -> Result<Digest> {
        let bytes = match &self.state {
            State::Blake3(forest) => lock(forest).root(size)?,
            State::Sha256(chain) => chain.finish(size)?,
        };
        Ok(Digest { kind: self.kind(), bytes })
    }
}

impl Drop for FileHasher {
    fn drop(&mut self) {
        if let State::Sha256(chain) = &self.state {
            chain.abort();
        }
    }
}

impl fmt::Debug for FileHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHasher({})", self.kind().name())
    }
}

fn add(forest: &Mutex<Forest>, subtrees: Subtrees) -> Result<()> {
    lock(forest).add(subtrees)
}

fn lock(forest: &Mutex<Forest>) -> std::sync::MutexGuard<'_, Forest> {
    forest.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_length(offset: u64, length: u64) -> Result<u64> {
    match offset.checked_add(length) {
        Some(_) => Ok(length),
        None => Err(misfed(format!("{length} bytes at {offset} end beyond 2^64"))),
    }
}

fn stretches(hole: Range) -> impl Iterator<Item = Range> {
    let mut left = hole;
    std::iter::from_fn(move || {
        if left.is_empty() {
            return None;
        }
        // Cut at multiples, so that every stretch but the outer two is one subtree.
        let (stretch, rest) = left.split_at(HOLE_STRETCH - left.start() % HOLE_STRETCH);
        left = rest;
        Some(stretch)
    })
}
