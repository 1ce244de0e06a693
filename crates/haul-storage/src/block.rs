//! Blocks of data in transit, and the pool of their buffers.
//!
//! A backend takes a [`PooledBuffer`], fills it, and freezes it into `Bytes`; the buffer returns to its pool when the
//! last reference is dropped, on whatever thread. A [`Block`] joins several such pieces without copying, for example
//! the payloads of several packets.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Consecutive bytes of a file, in one or more pieces.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Block {
    pieces: Vec<Bytes>,
    length: usize,
}

impl Block {
    /// An empty block.
    pub const fn new() -> Self {
        Self { pieces: Vec::new(), length: 0 }
    }

    /// Adds bytes at the end, without copying.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.length += piece.len();
            self.pieces.push(piece);
        }
    }

    /// Adds all pieces of another block at the end.
    pub fn append(&mut self, other: Self) {
        self.length += other.length;
        self.pieces.extend(other.pieces);
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether the block has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The pieces in order; none is empty.
    pub fn pieces(&self) -> &[Bytes] {
        &self.pieces
    }

    /// Keeps the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        let mut left = length.min(self.length);
        self.length = left;
        self.pieces.retain_mut(|piece| {
            piece.truncate(left);
            left -= piece.len();
            !piece.is_empty()
        });
    }

    /// Keeps the first `at` bytes and returns the rest, without copying.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let mut rest = Self::new();
        let mut left = at;
        for piece in std::mem::take(&mut self.pieces) {
            let head = left.min(piece.len());
            left -= head;
            rest.push(piece.slice(head..));
            let first = piece.slice(..head);
            if !first.is_empty() {
                self.pieces.push(first);
            }
        }
        self.length = self.length.min(at);
        rest
    }

    /// All bytes in one piece; copies only if there are several.
    pub fn into_bytes(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.pieces) {
            Ok([piece]) => piece,
            Err(pieces) => pieces.concat().into(),
        }
    }
}

impl From<Bytes> for Block {
    fn from(piece: Bytes) -> Self {
        let mut block = Self::new();
        block.push(piece);
        block
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes in {} pieces)", self.length, self.pieces.len())
    }
}

/// A pool of reusable buffers of one size. Cheap to clone; clones share the pool.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    size: usize,
    /// Maximum number of unused buffers.
    max_unused: usize,
    free: Mutex<Vec<Vec<u8>>>,
}

impl BufferPool {
    /// A pool of buffers of `size` bytes that keeps at most `max_unused` unused ones. It does not limit the number of
    /// buffers in use: that is the memory budget of the caller.
    pub fn new(size: usize, max_unused: usize) -> Self {
        Self { shared: Arc::new(PoolShared { size, max_unused, free: Mutex::new(Vec::new()) }) }
    }

    /// Size of a buffer in bytes.
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// A buffer of `length` bytes with arbitrary content. If `length` exceeds the pool's size, or is at most a quarter
    /// of it, the buffer is allocated with this length and does not return to the pool.
    pub fn take(&self, length: usize) -> PooledBuffer {
        let size = self.shared.size;
        if length > size || length <= size / 4 {
            return PooledBuffer { bytes: vec![0; length], length, pool: None };
        }
        let free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = free.unwrap_or_else(|| vec![0; size]);
        PooledBuffer { bytes, length, pool: Some(Arc::clone(&self.shared)) }
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufferPool({} bytes)", self.shared.size)
    }
}

/// A buffer to be filled.
pub struct PooledBuffer {
    bytes: Vec<u8>,
    length: usize,
    pool: Option<Arc<PoolShared>>,
}

impl PooledBuffer {
    /// Its bytes, for filling.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }

    /// Converts the first `length` bytes to shared `Bytes`. The buffer returns to its pool when the last reference is
    /// dropped.
    pub fn freeze(mut self, length: usize) -> Bytes {
        self.length = length.min(self.length);
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let mut free = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < pool.max_unused {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

impl fmt::Debug for PooledBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledBuffer({} bytes)", self.length)
    }
}

/// Bytes that own a value, such as a permit, which is dropped with the last reference to them.
pub fn bytes_owning(bytes: Bytes, owned: impl Send + 'static) -> Bytes {
    struct Owning<T>(Bytes, T);

    impl<T> AsRef<[u8]> for Owning<T> {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    Bytes::from_owner(Owning(bytes, owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owned_value_is_dropped_with_the_last_reference() {
        let owned = Arc::new(());
        let mut bytes = bytes_owning(Bytes::from_static(b"abc"), Arc::clone(&owned));
        let last = bytes.split_off(2);
        drop(bytes);
        assert_eq!(Arc::strong_count(&owned), 2);
        assert_eq!(last, "c");
        drop(last);
        assert_eq!(Arc::strong_count(&owned), 1);
    }

    #[test]
    fn a_block_is_truncated_across_its_pieces() {
        let mut block = Block::from(Bytes::from_static(b"abc"));
        block.push(Bytes::from_static(b"def"));
        block.truncate(4);
        assert_eq!(block.len(), 4);
        assert_eq!(block.clone().into_bytes(), &b"abcd"[..]);
        block.truncate(3);
        assert_eq!(block.pieces().len(), 1);
    }

    #[test]
    fn a_block_is_split_at_any_offset() {
        for at in 0..=7 {
            let mut block = Block::from(Bytes::from_static(b"abc"));
            block.push(Bytes::from_static(b"def"));
            let rest = block.split_off(at);
            assert_eq!((block.len(), rest.len()), (at.min(6), 6 - at.min(6)));
            let whole = [block.into_bytes(), rest.into_bytes()].concat();
            assert_eq!(whole, b"abcdef");
        }
    }

    #[test]
    fn a_buffer_returns_when_its_last_reference_is_dropped() {
        let pool = BufferPool::new(1024, 4);
        let mut buffer = pool.take(1024);
        buffer.as_mut_slice()[0] = 7;
        let bytes = buffer.freeze(10);
        let other = bytes.slice(..5);
        drop(bytes);
        assert_eq!(pool.shared.free.lock().unwrap().len(), 0);
        assert_eq!(other[0], 7);
        drop(other);
        assert_eq!(pool.shared.free.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_pool_keeps_a_limited_number_of_unused_buffers() {
        let pool = BufferPool::new(64, 1);
        let buffers: Vec<_> = (0..5).map(|_| pool.take(64)).collect();
        drop(buffers);
        assert_eq!(pool.shared.free.lock().unwrap().len(), 1);
    }
}
