//! What is to be sent: heads of requests and their bodies, in as many pieces as they have.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

use super::pipe::Question;

/// So much is gathered for one call at most, unless one body is longer.
const ENOUGH: usize = 64 << 10;

/// Pieces, the next one first. None of them is empty.
#[derive(Debug, Default)]
pub struct Sending {
    pieces: VecDeque<Bytes>,
    left: usize,
}

impl Sending {
    /// Puts a request, whose bytes are not needed any more, behind what is there.
    pub fn push(&mut self, question: &mut Question) {
        self.push_piece(std::mem::take(&mut question.bytes).into());
        for piece in std::mem::take(&mut question.body).pieces() {
            self.push_piece(piece.clone());
        }
    }

    /// Whether it is time to send it.
    pub const fn is_enough(&self) -> bool {
        self.left >= ENOUGH
    }

    fn push_piece(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.left += piece.len();
            self.pieces.push_back(piece);
        }
    }
}

impl Buf for Sending {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pairs = slices.iter_mut().zip(&self.pieces);
        pairs.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        self.left -= count;
        while let Some(first) = self.pieces.front_mut() {
            if count < first.len() {
                first.advance(count);
                break;
            }
            count -= first.len();
            self.pieces.pop_front();
        }
    }
}
