//! Content that is computed instead of stored: byte `offset` of a file is a fixed function of the
//! offset and a seed.
//!
//! One tile of pseudo-random bytes is generated once and repeated; the seed selects where in it a file
//! begins. The tile's length is a prime (the first after 1 MiB), so that a block at an offset that is
//! wrong by a multiple of a usual block size differs: of 1 MiB in files of up to 1 TiB, of 4 KiB in files of
//! up to 4 GiB. Reading copies nothing and checking is one memory comparison: tens of GiB take seconds even
//! in a debug build.

use std::sync::OnceLock;

use bytes::Bytes;

use crate::{Block, Range};

/// The first prime after 2^20.
const TILE: u64 = 1_048_583;

/// The content that a seed defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    seed: u64,
}

impl Pattern {
    /// The pattern of `seed`; different seeds give different content, but for one pair in a million.
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The bytes of a range.
    pub fn block(self, range: Range) -> Block {
        let tile = tile();
        let mut block = Block::new();
        let mut offset = range.start();
        while offset < range.end() {
            let at = self.position(offset);
            let length = (TILE - at).min(range.end() - offset);
            block.push(tile.slice(at as usize..(at + length) as usize));
            offset += length;
        }
        block
    }

    /// The bytes of a range, in one piece.
    pub fn bytes(self, range: Range) -> Bytes {
        self.block(range).into_bytes()
    }

    /// The first offset at which `block`, which lies at `offset`, differs from the pattern.
    pub fn first_difference(self, offset: u64, block: &Block) -> Option<u64> {
        let mut offset = offset;
        for piece in block.pieces() {
            let expected = self.block(Range::new(offset, piece.len() as u64));
            let mut rest = &piece[..];
            for part in expected.pieces() {
                let (head, tail) = rest.split_at(part.len());
                if head != &part[..] {
                    let at = head.iter().zip(part).take_while(|(a, b)| a == b).count();
                    return Some(offset + at as u64);
                }
                rest = tail;
                offset += part.len() as u64;
            }
        }
        None
    }

    /// The position in the tile of the byte at `offset`.
    const fn position(self, offset: u64) -> u64 {
        (offset % TILE + mix(self.seed) % TILE) % TILE
    }
}

fn tile() -> &'static Bytes {
    static TILE_BYTES: OnceLock<Bytes> = OnceLock::new();
    TILE_BYTES.get_or_init(|| {
        let words = (0..=TILE / 8).map(|n| mix(n).to_le_bytes());
        let mut bytes: Vec<u8> = words.flatten().collect();
        bytes.truncate(TILE as usize);
        bytes.into()
    })
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014) on the `n`th state.
const fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_a_range_does_not_depend_on_where_it_is_cut() {
        let pattern = Pattern::new(3);
        let whole = pattern.bytes(Range::new(0, 3 * TILE));
        for (start, length) in [(0, 1), (TILE - 1, 2), (TILE, TILE), (5, 2 * TILE), (7, 0)] {
            let cut = &whole[start as usize..(start + length) as usize];
            assert_eq!(pattern.bytes(Range::new(start, length)), cut);
        }
    }

    #[test]
    fn a_block_at_a_wrong_offset_or_of_another_seed_differs() {
        let block = Pattern::new(3).block(Range::new(1 << 30, 4096));
        assert_eq!(Pattern::new(3).first_difference(1 << 30, &block), None);
        for shift in [1, 512, 4096, 32 << 10, 1 << 20, 4 << 20, 1 << 31] {
            assert!(Pattern::new(3).first_difference((1 << 30) + shift, &block).is_some());
        }
        assert!(Pattern::new(4).first_difference(1 << 30, &block).is_some());
    }

    #[test]
    fn first_difference_returns_the_offset_of_the_first_wrong_byte() {
        let mut bytes = Pattern::new(1).bytes(Range::new(100, 50)).to_vec();
        bytes[20] ^= 1;
        let block = Block::from(Bytes::from(bytes));
        assert_eq!(Pattern::new(1).first_difference(100, &block), Some(120));
    }
}
