//! Received bytes that are not yet parsed, in the pieces in which they arrived: frames are cut out without copying.

use std::collections::VecDeque;

use bytes::Bytes;
use haul_storage::Block;

/// Received bytes that are not yet parsed.
#[derive(Debug, Default)]
pub struct Received {
    pieces: VecDeque<Bytes>,
    length: usize,
}

impl Received {
    /// No bytes.
    pub const fn new() -> Self {
        Self { pieces: VecDeque::new(), length: 0 }
    }

    /// The number of bytes.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds bytes at the end.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.length += bytes.len();
            self.pieces.push_back(bytes);
        }
    }

    /// The first `N` bytes, if they have arrived.
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        if let Some(first) = self.pieces.front().and_then(|piece| piece.first_chunk()) {
            return Some(*first);
        }
        let mut first = [0; N];
        let mut bytes = self.pieces.iter().flatten();
        for byte in &mut first {
            *byte = *bytes.next()?;
        }
        Some(first)
    }

    /// Removes the first `bytes` bytes; fewer if fewer have arrived.
    pub fn take(&mut self, bytes: usize) -> Block {
        let mut taken = Block::new();
        let mut left = bytes;
        while left > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            if piece.len() <= left {
                left -= piece.len();
                taken.push(std::mem::take(piece));
                self.pieces.pop_front();
            } else {
                taken.push(piece.split_to(left));
                left = 0;
            }
        }
        self.length -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_taken_across_the_pieces_in_which_they_arrived() {
        let mut received = Received::new();
        for piece in [&b"ab"[..], b"", b"c", b"defg"] {
            received.push(Bytes::from_static(piece));
        }
        assert_eq!((received.len(), received.first::<4>()), (7, Some(*b"abcd")));
        assert_eq!(received.first::<8>(), None);
        let taken = received.take(5);
        assert_eq!(taken.pieces(), [&b"ab"[..], b"c", b"de"]);
        assert_eq!((received.len(), received.first::<2>()), (2, Some(*b"fg")));
        assert_eq!(received.take(9).into_bytes(), "fg");
        assert!(received.is_empty() && received.take(1).is_empty());
    }
}
