//! The buffers that a connection reads into. Messages are handed out as slices of them, and a buffer
//! is used again when all of its slices are gone.

use std::collections::VecDeque;

use bytes::BytesMut;

/// The first buffer of a connection. It is small, for many connections have little to say.
const FIRST: usize = 16 << 10;

/// The largest: one fits into a processor's cache beside what is done with it.
const LARGEST: usize = 256 << 10;

/// Room that is worth a read.
const LEAST: usize = 4 << 10;

/// Buffers that are kept until their slices are gone. What is beyond is not used again.
const KEPT: usize = 6;

/// What was read and not yet taken.
#[derive(Debug)]
pub struct ReadBuffer {
    /// What is there, with room behind it.
    pub buffer: BytesMut,
    spent: VecDeque<BytesMut>,
    size: usize,
}

impl ReadBuffer {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { buffer: BytesMut::with_capacity(FIRST), spent: VecDeque::new(), size: FIRST }
    }

    /// Makes room for a read, and for a packet of `whole` bytes at the front.
    pub fn make_room(&mut self, whole: usize) {
        let wanted = whole.saturating_sub(self.buffer.len()).max(LEAST);
        if self.buffer.capacity() - self.buffer.len() >= wanted {
            return;
        }
        let size = self.size.max(self.buffer.len() + wanted);
        let again = self.spent.iter_mut().position(|spent| spent.try_reclaim(size));
        let mut next = again
            .and_then(|at| self.spent.remove(at))
            .unwrap_or_else(|| BytesMut::with_capacity(size));
        next.extend_from_slice(&self.buffer);
        let mut spent = std::mem::replace(&mut self.buffer, next);
        spent.clear();
        if self.spent.len() == KEPT {
            self.spent.pop_front();
        }
        self.spent.push_back(spent);
    }

    /// So many bytes were read. Who fills all the room has more to say.
    pub fn read(&mut self, length: usize) {
        if length > 0 && self.buffer.len() == self.buffer.capacity() && self.size < LARGEST {
            self.size *= 2;
            // Those that are kept are too small from now on.
            self.spent.clear();
        }
    }
}
