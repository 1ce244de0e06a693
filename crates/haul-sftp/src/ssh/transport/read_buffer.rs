//! The buffers that a connection reads into. Messages are slices of these buffers, and a buffer is reused once all of
//! its slices are dropped.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Bytes of the first buffer of a connection. It is small, since many connections receive little.
const FIRST: usize = 16 << 10;

/// Bytes of the largest buffer, unless a packet is longer: it fits into a processor's cache along with the data made
/// from it.
const LARGEST: usize = 256 << 10;

/// The least free space that is worth a read.
const MIN_READ: usize = 4 << 10;

/// Most buffers that wait for their slices to be dropped. Beyond that, the oldest one is not reused.
const MAX_SPENT: usize = 6;

/// Bytes that were read and not yet consumed.
#[derive(Debug)]
pub struct ReadBuffer {
    /// These bytes, followed by free space.
    pub buffer: BytesMut,
    /// Buffers that may be reused once their slices are dropped.
    spent: VecDeque<BytesMut>,
    /// Size of new buffers.
    size: usize,
}

impl ReadBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self { buffer: BytesMut::with_capacity(FIRST), spent: VecDeque::new(), size: FIRST }
    }

    /// Makes room for a read, and for a packet of `whole` bytes at the front.
    pub fn make_room(&mut self, whole: usize) {
        let wanted = whole.saturating_sub(self.buffer.len()).max(MIN_READ);
        if self.buffer.capacity() - self.buffer.len() >= wanted {
            return;
        }
        let size = self.size.max(self.buffer.len() + wanted);
        let reusable = self.spent.iter_mut().position(|spent| spent.try_reclaim(size));
        let mut next = reusable
            .and_then(|at| self.spent.remove(at))
            .unwrap_or_else(|| BytesMut::with_capacity(size));
        next.extend_from_slice(&self.buffer);
        let mut spent = std::mem::replace(&mut self.buffer, next);
        spent.clear();
        if self.spent.len() == MAX_SPENT {
            self.spent.pop_front();
        }
        self.spent.push_back(spent);
    }

    /// Notes that `length` bytes were read. If they filled all free space, more is likely to follow, so the next
    /// buffers are larger.
    pub fn read(&mut self, length: usize) {
        if length > 0 && self.buffer.len() == self.buffer.capacity() && self.size < LARGEST {
            self.size *= 2;
            // All spent buffers are too small from now on.
            self.spent.clear();
        }
    }
}
