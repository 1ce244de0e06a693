//! Hashes of pieces, and the hash of a file from those of its pieces.
//!
//! BLAKE3 is a tree. A piece of [`PIECE`] bytes at a multiple of [`PIECE`] is a subtree of its file's tree (and so
//! is a shorter one at the end of the file), and travels with the subtree's chaining value: [`Root`] computes the
//! standard BLAKE3 hash of the file from these values, without reading the data again. Any other piece travels with
//! the BLAKE3 hash of its data alone. So does a piece that is a whole file, if the sender knows the file's length: the
//! root of a tree is computed differently from its subtrees, and the plain hash is the file's hash already.

use std::collections::BTreeMap;

use blake3::Hasher;
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};
use haul_storage::{Block, Digest, DigestKind, Range, RangeSet};

use super::{BulkHeader, WireError};

/// The length of the pieces that are subtrees, in bytes.
pub const PIECE: u64 = 256 << 10;

/// The hash of a piece.
pub type Hash = [u8; 32];

/// The hash of a piece of a file, and whether it is the chaining value of a subtree. `file_size` is the length of
/// the file, if it is known; without it, no piece is treated as the end or the whole of the file: a short piece is not
/// a subtree, and an aligned one of [`PIECE`] bytes is, even if it is the whole file.
pub fn piece_hash(offset: u64, data: &Block, file_size: Option<u64>) -> (Hash, bool) {
    let length = data.len() as u64;
    let end = offset.checked_add(length);
    let ends_file = file_size.is_some() && end == file_size;
    let is_whole_file = ends_file && offset == 0;
    let is_subtree =
        may_be_subtree(offset, length) && (length == PIECE || ends_file) && !is_whole_file;
    (hash(offset, data, is_subtree), is_subtree)
}

/// Checks the hash of a received piece.
///
/// # Errors
/// If the data has another hash, or cannot be the subtree that its header declares.
pub fn verify(header: &BulkHeader, data: &Block) -> Result<(), WireError> {
    let BulkHeader { offset, is_subtree, .. } = *header;
    if is_subtree && !may_be_subtree(offset, data.len() as u64) {
        return Err(WireError::Invalid("subtree"));
    }
    if hash(offset, data, is_subtree) == header.hash {
        Ok(())
    } else {
        Err(WireError::WrongHash { offset })
    }
}

fn may_be_subtree(offset: u64, length: u64) -> bool {
    offset.is_multiple_of(PIECE) && (1..=PIECE).contains(&length)
}

fn hash(offset: u64, data: &Block, is_subtree: bool) -> Hash {
    let mut hasher = Hasher::new();
    if is_subtree {
        hasher.set_input_offset(offset);
    }
    for piece in data.pieces() {
        hasher.update(piece);
    }
    if is_subtree { hasher.finalize_non_root() } else { *hasher.finalize().as_bytes() }
}

/// Computes the BLAKE3 hash of a file from the hashes of its pieces, in any order. Siblings are merged as soon as
/// both are known, so pieces that arrive in order take O(log n) memory.
#[derive(Debug)]
pub struct Root {
    size: u64,
    /// Number of pieces of the file.
    count: u64,
    /// The numbers of the pieces that have been added.
    added: RangeSet,
    /// Chaining values that wait for their sibling, by level above the pieces and number within the level.
    waiting: BTreeMap<(u32, u64), ChainingValue>,
    root: Option<Hash>,
}

impl Root {
    /// The root of a file of `size` bytes.
    pub fn new(size: u64) -> Self {
        let root = (size == 0).then(|| *blake3::hash(&[]).as_bytes());
        Self {
            size,
            count: size.div_ceil(PIECE),
            added: RangeSet::new(),
            waiting: BTreeMap::new(),
            root,
        }
    }

    /// Adds the hash of a piece of `length` bytes that has been verified. Returns whether the piece counts: a plain
    /// hash does only if it is that of the whole file, and a chaining value only if the file has several pieces and
    /// this is one of them. A piece that was added before is ignored.
    pub fn add(&mut self, offset: u64, length: u64, hash: &Hash, is_subtree: bool) -> bool {
        if !is_subtree {
            let is_whole_file = offset == 0 && length == self.size;
            if is_whole_file {
                self.root = Some(*hash);
            }
            return is_whole_file;
        }
        let left = self.size.saturating_sub(offset);
        // The chaining value of a single piece is not the hash of the file.
        if !offset.is_multiple_of(PIECE)
            || length == 0
            || length != left.min(PIECE)
            || self.count < 2
        {
            return false;
        }
        let index = offset / PIECE;
        if self.added.next(index).is_none_or(|next| next.start() != index) {
            self.added.insert(Range::new(index, 1));
            self.merge(index, *hash);
        }
        true
    }

    /// The BLAKE3 hash of the file, once all pieces have been added.
    pub fn digest(&self) -> Option<Digest> {
        self.root.map(|bytes| Digest { kind: DigestKind::Blake3, bytes })
    }

    /// Merges a piece's value with its siblings, as far up as they are known.
    fn merge(&mut self, index: u64, value: ChainingValue) {
        let (mut level, mut index, mut value) = (0, index, value);
        // Number of subtrees on this level, at least 2.
        let mut width = self.count;
        loop {
            let sibling = index ^ 1;
            // The last one of an odd number has no sibling and moves up as it is.
            if sibling < width {
                let Some(other) = self.waiting.remove(&(level, sibling)) else {
                    self.waiting.insert((level, index), value);
                    return;
                };
                let (left, right) =
                    if index.is_multiple_of(2) { (value, other) } else { (other, value) };
                if width == 2 {
                    let root = merge_subtrees_root(&left, &right, Mode::Hash);
                    self.root = Some(*root.as_bytes());
                    return;
                }
                value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            }
            level += 1;
            index /= 2;
            width = width.div_ceil(2);
        }
    }
}
