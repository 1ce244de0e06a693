//! A piece of a file that sessions share: it is read once, and each part of it that they send is hashed once.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use haul_storage::{Block, Error, Range, ReadAt, Result};
use tokio::sync::OnceCell;

use crate::wire::{Hash, piece_hash};

/// Maximum number of cached hashes: a piece is sent in at most 32 parts, but sessions may divide it differently.
const HASHES: usize = 64;

/// The hash of a part, and whether it is the chaining value of a subtree of the file's BLAKE3 tree.
type Hashed = (Hash, bool);

/// A piece of a file.
#[derive(Debug)]
pub(super) struct Piece {
    range: Range,
    data: OnceCell<Block>,
    hashes: Mutex<Vec<(Range, Hashed)>>,
}

/// A piece that was read.
#[derive(Debug)]
pub(in crate::server) struct Filled {
    piece: Arc<Piece>,
    data: Block,
}

/// Why a piece has no data.
enum Unread {
    /// The file ends before the end of the piece.
    Short,
    Failed(Error),
}

impl Piece {
    /// A piece that is not read yet.
    pub(super) fn new(range: Range) -> Self {
        Self { range, data: OnceCell::new(), hashes: Mutex::default() }
    }

    pub(super) const fn range(&self) -> Range {
        self.range
    }

    /// Reads the piece from `file`, unless that was done. Waits while another task reads it, and reads it itself if
    /// that task fails or is cancelled. `None` if the file has become shorter.
    pub(super) async fn fill(piece: Arc<Self>, file: &dyn ReadAt) -> Result<Option<Filled>> {
        let outcome = piece.data.get_or_try_init(|| piece.read(file)).await.cloned();
        match outcome {
            Ok(data) => Ok(Some(Filled { piece, data })),
            Err(Unread::Short) => Ok(None),
            Err(Unread::Failed(error)) => Err(error),
        }
    }

    async fn read(&self, file: &dyn ReadAt) -> Result<Block, Unread> {
        let mut blocks = file.read_at(self.range);
        let mut data = Block::new();
        while let Some(block) = blocks.next().await {
            data.append(block.map_err(Unread::Failed)?);
        }
        if data.len() as u64 == self.range.len() { Ok(data) } else { Err(Unread::Short) }
    }
}

impl Filled {
    /// The offset in the file at which it ends.
    pub(in crate::server) fn end(&self) -> u64 {
        self.piece.range.end()
    }

    /// The bytes of a range that lies in the piece, without copying.
    pub(in crate::server) fn part(&self, range: Range) -> Block {
        let start = range.start() - self.piece.range.start();
        let mut data = self.data.clone();
        let mut part = data.split_off(usize::try_from(start).unwrap_or(usize::MAX));
        part.truncate(usize::try_from(range.len()).unwrap_or(usize::MAX));
        part
    }

    /// The hash of `part`, the bytes of `range`, in a file of `size` bytes, as [`piece_hash`] computes it. Blocks while
    /// another thread computes a hash of this piece.
    pub(in crate::server) fn hash(&self, range: Range, part: &Block, size: u64) -> Hashed {
        let mut hashes = self.piece.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, hashed)) = hashes.iter().find(|(of, _)| *of == range) {
            return *hashed;
        }
        let hashed = piece_hash(range.start(), part, Some(size));
        if hashes.len() < HASHES {
            hashes.push((range, hashed));
        }
        hashed
    }

    /// How many hashes are cached.
    #[cfg(test)]
    pub(super) fn hashed(&self) -> usize {
        self.piece.hashes.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
