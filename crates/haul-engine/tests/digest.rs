//! Digests of blocks in any order equal those of the reference implementations.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use haul_engine::digest::{Digest, FileHasher};
use haul_storage::{Block, DigestKind, ErrorKind, WorkPool};
use proptest::prelude::*;

const KINDS: [DigestKind; 2] = [DigestKind::Blake3, DigestKind::Sha256];

/// Sizes, each with the reason why it is interesting.
const INTERESTING_SIZES: [(usize, &str); 18] = [
    (0, "nothing is ever fed; BLAKE3 has a chunk without bytes"),
    (1, "one chunk that is not full, and is the root"),
    (1023, "a chunk that lacks one byte"),
    (1024, "one full chunk that is the root"),
    (1025, "the root is a parent, its right child one byte"),
    (2048, "two full chunks: the smallest complete tree"),
    (2049, "a complete tree that must not be the root"),
    (3 * 1024, "the right child of the root is a chunk, one level up"),
    (7 * 1024 + 1, "eight chunks, the last not full: complete in shape, not in length"),
    (65_535, "one below the most that is hashed in place, and below what BLAKE3 gets at once"),
    (65_536, "the most that is hashed in place"),
    (65_537, "one more than the most that is hashed in place"),
    (255 * 1024, "a packet of SFTP: not a power of two"),
    (1_000_000, "not a power of two, not a multiple of a chunk"),
    (1_048_575, "one below a block of 1 MiB"),
    (1_048_576, "a block of 1 MiB"),
    (1_048_577, "one above a block of 1 MiB"),
    (3_500_000, "several blocks and an odd end"),
];

fn pool() -> WorkPool {
    WorkPool::new("digest-test", 2).unwrap()
}

fn data(size: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let byte = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..size).map(byte).collect::<Vec<_>>().into()
}

/// Feeds the blocks (start and end) in this order, all at once.
async fn digest_of(kind: DigestKind, data: &Bytes, blocks: &[(usize, usize)]) -> Digest {
    let hasher = FileHasher::new(kind, pool());
    let updates = blocks.iter().map(|(start, end)| {
        // In two pieces, so that subtrees lie across pieces.
        let middle = start + (end - start) / 3;
        let mut block = Block::from(data.slice(*start..middle));
        block.push(data.slice(middle..*end));
        hasher.update(*start as u64, block)
    });
    for outcome in join_all(updates).await {
        outcome.unwrap();
    }
    hasher.finish(data.len() as u64).await.unwrap()
}

fn cut(size: usize, length: usize) -> Vec<(usize, usize)> {
    (0..size).step_by(length).map(|start| (start, size.min(start + length))).collect()
}

#[tokio::test]
async fn every_interesting_size_has_the_standard_digest_forwards_and_backwards() {
    for (size, why) in INTERESTING_SIZES {
        let data = data(size);
        for kind in KINDS {
            let expected = Digest::of(kind, &data);
            for length in [1024, 64 << 10, 1 << 20, size.max(1)] {
                let mut blocks = cut(size, length);
                assert_eq!(digest_of(kind, &data, &blocks).await, expected, "{size}: {why}");
                blocks.reverse();
                assert_eq!(digest_of(kind, &data, &blocks).await, expected, "{size}: {why}");
            }
        }
    }
}

#[tokio::test]
async fn digests_match_the_published_vectors() {
    let hasher = FileHasher::new(DigestKind::Sha256, pool());
    hasher.update(0, Bytes::from_static(b"abc").into()).await.unwrap();
    assert_eq!(
        hasher.finish(3).await.unwrap().to_string(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    // From the test_vectors.json of the BLAKE3 repository, input length 0.
    let hasher = FileHasher::new(DigestKind::Blake3, pool());
    assert_eq!(
        hasher.finish(0).await.unwrap().to_string(),
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_partition_in_any_order_has_the_standard_digest(
        size in 0usize..600_000,
        step in prop_oneof![Just(1024usize), Just(1), Just(1000)],
        cuts in prop::collection::vec(0usize..600_000, 0..40),
        keys in prop::collection::vec(any::<u32>(), 41),
    ) {
        let mut cuts: Vec<_> =
            cuts.into_iter().map(|at| at / step * step).filter(|at| *at < size).collect();
        cuts.extend([0, size]);
        cuts.sort_unstable();
        cuts.dedup();
        let mut blocks: Vec<_> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let mut keys = keys.into_iter();
        blocks.sort_by_cached_key(|_| keys.next());
        let data = data(size);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for kind in KINDS {
            let digest = runtime.block_on(digest_of(kind, &data, &blocks));
            prop_assert_eq!(digest, Digest::of(kind, &data));
        }
    }
}

#[tokio::test]
async fn holes_are_hashed_as_zeros() {
    let size = (40 << 20) + 5;
    let hole = 3000..((35 << 20) + 77);
    let mut whole = data(size).to_vec();
    whole[hole.clone()].fill(0);
    let whole = Bytes::from(whole);
    for kind in KINDS {
        let hasher = FileHasher::new(kind, pool());
        let (head, zeros, tail) = tokio::join!(
            hasher.update(hole.end as u64, whole.slice(hole.end..).into()),
            hasher.zeros(hole.start as u64, hole.len() as u64),
            hasher.update(0, whole.slice(..hole.start).into()),
        );
        head.and(zeros).and(tail).unwrap();
        assert_eq!(hasher.finish(size as u64).await.unwrap(), Digest::of(kind, &whole));
    }
}

#[tokio::test]
async fn the_error_for_a_missing_range_names_it() {
    for kind in KINDS {
        let hasher = FileHasher::new(kind, pool());
        let data = data(10_240);
        hasher.update(0, data.slice(..4096).into()).await.unwrap();
        let error = hasher.finish(10_240).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("4096..10240"), "{error}");
        let error = hasher.finish(4000).await.unwrap_err();
        assert!(error.to_string().contains("4096 bytes were fed"), "{error}");
    }
    // SHA-256 waits for the bytes before a block, so only BLAKE3 has gaps between blocks.
    let hasher = FileHasher::new(DigestKind::Blake3, pool());
    hasher.update(5000, data(1000).into()).await.unwrap();
    let error = hasher.finish(6000).await.unwrap_err();
    assert!(error.to_string().contains("0..4096"), "{error}");
    hasher.update(0, data(4096).into()).await.unwrap();
    let error = hasher.finish(6000).await.unwrap_err();
    assert!(error.to_string().contains("4096..5000"), "{error}");
    hasher.update(4096, data(904).into()).await.unwrap();
    hasher.finish(6000).await.unwrap();
}

#[tokio::test]
async fn bytes_fed_twice_are_refused_and_change_nothing() {
    for kind in KINDS {
        let hasher = FileHasher::new(kind, pool());
        let data = data(10_000);
        hasher.update(0, data.slice(..5000).into()).await.unwrap();
        for (start, end) in [(0, 10), (4096, 10_000), (4999, 5001), (0, 10_000), (1024, 2048)] {
            let error = hasher.update(start as u64, data.slice(start..end).into()).await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput, "{start}..{end}");
        }
        hasher.update(5000, data.slice(5000..).into()).await.unwrap();
        assert_eq!(hasher.finish(10_000).await.unwrap(), Digest::of(kind, &data));
    }
}

#[tokio::test]
async fn an_offset_beyond_any_file_is_refused() {
    for kind in KINDS {
        let hasher = FileHasher::new(kind, pool());
        assert!(hasher.update(u64::MAX - 3, data(10).into()).await.is_err());
        assert!(hasher.zeros(10, u64::MAX).await.is_err());
    }
}

#[tokio::test]
async fn the_last_blocks_of_a_tebibyte_alone_are_not_a_complete_tree() {
    // Offsets near 2^40, chunks near the index 2^30.
    let hasher = FileHasher::new(DigestKind::Blake3, pool());
    for index in (0..64u64).rev() {
        hasher.update((1 << 40) - (64 - index) * 4096, data(4096).into()).await.unwrap();
    }
    let error = hasher.finish(1 << 40).await.unwrap_err();
    assert!(error.to_string().contains("bytes 0..1099511365632 "), "{error}");
}

#[test]
fn many_files_fed_from_two_workers_share_two_threads() {
    let data = data(9_000_000);
    let pool = pool();
    let files: Vec<_> = (0..8)
        .flat_map(|_| KINDS)
        .map(|kind| Arc::new(FileHasher::new(kind, pool.clone())))
        .collect();
    let mut blocks = cut(data.len(), 300_000);
    blocks.rotate_left(7);
    let feed = |odd: usize| {
        let mine = blocks.iter().enumerate().filter(move |(index, _)| index % 2 == odd);
        let updates = files.iter().flat_map(|hasher| {
            let data = &data;
            mine.clone().map(move |(_, (start, end))| {
                hasher.update(*start as u64, data.slice(*start..*end).into())
            })
        });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for outcome in runtime.block_on(join_all(updates)) {
            outcome.unwrap();
        }
        // The end of this runtime must not affect tasks that wait in others.
    };
    std::thread::scope(|scope| {
        scope.spawn(|| feed(0));
        scope.spawn(|| feed(1));
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for hasher in files {
        let digest = runtime.block_on(hasher.finish(data.len() as u64)).unwrap();
        assert_eq!(digest, Digest::of(hasher.kind(), &data));
    }
}

#[tokio::test]
async fn a_dropped_hasher_frees_its_thread() {
    let pool = WorkPool::new("digest-test", 1).unwrap();
    for kind in KINDS {
        let hasher = FileHasher::new(kind, pool.clone());
        // A tebibyte: would take minutes.
        let zeros = tokio::time::timeout(Duration::from_millis(50), hasher.zeros(0, 1 << 40));
        assert!(zeros.await.is_err());
        drop(hasher);
        let free = tokio::time::timeout(Duration::from_secs(20), pool.run(|| ()));
        assert!(free.await.is_ok(), "{kind:?}");
    }
}

#[tokio::test]
async fn bytes_fed_one_by_one_are_joined() {
    let data = data(5000);
    let mut blocks = cut(data.len(), 1);
    assert_eq!(
        digest_of(DigestKind::Blake3, &data, &blocks).await,
        Digest::of(DigestKind::Blake3, &data)
    );
    blocks.reverse();
    for kind in KINDS {
        assert_eq!(digest_of(kind, &data, &blocks).await, Digest::of(kind, &data));
    }
}
