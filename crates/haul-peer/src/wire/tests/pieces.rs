//! Hashes of pieces and files.

use bytes::Bytes;
use haul_storage::{Block, Digest, DigestKind};
use proptest::prelude::*;

use crate::wire::{BulkHeader, PIECE, Root, WireError, piece_hash, verify};

fn content(size: u64) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

/// `data` in several buffers, as it arrives from a connection.
fn block(data: &[u8]) -> Block {
    let mut block = Block::new();
    for piece in data.chunks(16_000) {
        block.push(Bytes::copy_from_slice(piece));
    }
    block
}

fn header(offset: u64, data: &Block, size: Option<u64>) -> BulkHeader {
    let (hash, is_subtree) = piece_hash(offset, data, size);
    BulkHeader { id: 1, handle: 1, offset, is_last: false, is_subtree, hash }
}

/// The offset, length and header (with the hash) of each piece of a file.
fn pieces(content: &[u8]) -> Vec<(u64, u64, BulkHeader)> {
    let mut offset = 0;
    let pieces = content.chunks(PIECE as usize).map(|data| {
        let data = block(data);
        let header = header(offset, &data, Some(content.len() as u64));
        verify(&header, &data).unwrap();
        let piece = (offset, data.len() as u64, header);
        offset += data.len() as u64;
        piece
    });
    pieces.collect()
}

/// Sizes around the borders of chunks, pieces, and levels of the tree.
fn sizes() -> Vec<u64> {
    let mut sizes = vec![0, 1, 1023, 1024, 1025];
    for pieces in [1, 2, 3, 4, 5, 7, 8, 9] {
        let border = pieces * PIECE;
        sizes.extend([border - 1, border, border + 1, border + 1024, border + 1025]);
    }
    sizes
}

#[test]
fn the_root_is_the_hash_of_the_file_for_any_order_of_pieces() {
    for size in sizes() {
        let content = content(size);
        let expected = Digest::of(DigestKind::Blake3, &content);
        let forward = pieces(&content);
        let mut backward = forward.clone();
        backward.reverse();
        let mut inside_out = forward.clone();
        inside_out.sort_by_key(|(offset, ..)| (offset / PIECE) * 5 % 7);
        for order in [forward, backward, inside_out] {
            let mut root = Root::new(size);
            for (at, (offset, length, header)) in order.iter().enumerate() {
                assert_eq!(root.digest(), None, "{at} of {} pieces of {size}", order.len());
                assert!(root.add(*offset, *length, &header.hash, header.is_subtree));
                // A piece that arrives twice changes nothing.
                assert!(root.add(*offset, *length, &header.hash, header.is_subtree));
            }
            assert_eq!(root.digest(), Some(expected), "{size}");
        }
    }
}

#[test]
fn the_hash_of_a_single_piece_is_the_hash_of_the_file() {
    for size in [1, PIECE - 1, PIECE] {
        let content = content(size);
        let (hash, is_subtree) = piece_hash(0, &block(&content), Some(size));
        assert!(!is_subtree);
        assert_eq!(hash, *blake3::hash(&content).as_bytes());
    }
}

#[test]
fn only_aligned_pieces_are_subtrees() {
    let data = |length: u64| block(&content(length));
    let is_subtree = |offset, length, size| piece_hash(offset, &data(length), size).1;
    assert!(is_subtree(0, PIECE, None) && is_subtree(PIECE, PIECE, Some(9 * PIECE)));
    assert!(is_subtree(PIECE, 5, Some(PIECE + 5)));
    assert!(!is_subtree(PIECE, 5, None) && !is_subtree(PIECE, 5, Some(PIECE + 6)));
    assert!(!is_subtree(PIECE, 2 * PIECE, Some(3 * PIECE)));
    assert!(!is_subtree(1024, PIECE, None));
    assert!(!is_subtree(PIECE, 0, Some(PIECE)));
    // The highest offset that is a multiple of `PIECE`.
    assert!(is_subtree(u64::MAX - PIECE + 1, 5, Some(u64::MAX - PIECE + 6)));
}

#[test]
fn altered_or_moved_data_is_refused() {
    let data = block(&content(PIECE));
    let good = header(PIECE, &data, None);
    assert_eq!(verify(&good, &data), Ok(()));
    let mut altered = content(PIECE);
    altered[77] ^= 1;
    let wrong = Err(WireError::WrongHash { offset: PIECE });
    assert_eq!(verify(&good, &block(&altered)), wrong);
    let moved = BulkHeader { offset: 2 * PIECE, ..good };
    assert_eq!(verify(&moved, &data), Err(WireError::WrongHash { offset: 2 * PIECE }));
    let plain = BulkHeader { is_subtree: false, ..good };
    assert_eq!(verify(&plain, &data), wrong);
    let unaligned = BulkHeader { offset: 1, ..good };
    assert_eq!(verify(&unaligned, &data), Err(WireError::Invalid("subtree")));
    assert_eq!(verify(&good, &Block::new()), Err(WireError::Invalid("subtree")));
    let long = block(&content(PIECE + 1));
    assert_eq!(verify(&good, &long), Err(WireError::Invalid("subtree")));
}

#[test]
fn pieces_that_do_not_fit_the_file_do_not_count() {
    let mut root = Root::new(2 * PIECE + 5);
    let hash = [1; 32];
    for (offset, length, is_subtree) in [
        (0, PIECE, false),
        (1, PIECE, true),
        (0, PIECE - 1, true),
        (2 * PIECE, PIECE, true),
        (2 * PIECE, 4, true),
        (3 * PIECE, PIECE, true),
        (u64::MAX, 1, true),
        (0, 0, true),
    ] {
        assert!(!root.add(offset, length, &hash, is_subtree), "{offset} {length} {is_subtree}");
    }
    assert_eq!(root.digest(), None);
    // The chaining value of a whole file is not its hash.
    assert!(!Root::new(PIECE).add(0, PIECE, &hash, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_root_of_any_size_is_the_hash_of_the_file(size in 0u64..12 * PIECE, seed: u64) {
        let content = content(size);
        let mut order = pieces(&content);
        order.sort_by_key(|(offset, ..)| (offset / PIECE + 1).wrapping_mul(seed | 1).rotate_left(17));
        let mut root = Root::new(size);
        for (offset, length, header) in order {
            prop_assert!(root.add(offset, length, &header.hash, header.is_subtree));
        }
        prop_assert_eq!(root.digest(), Some(Digest::of(DigestKind::Blake3, &content)));
    }
}
