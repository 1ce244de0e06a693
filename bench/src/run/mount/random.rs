//! Random reads of an open file: one at a time, then several at a time. No block is read twice.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::view::View;
use crate::data::Dataset;

const BLOCK: usize = 64 << 10;
/// Number of reads that are made one at a time.
const ALONE: usize = 50;
/// Threads that read at the same time.
const THREADS: usize = 16;
/// Reads of each thread.
const EACH: usize = 20;

/// An offset, and the bytes that were read at it.
type Block = (u64, Vec<u8>);

/// Reads random blocks of the first file of `data` in the mount on `point`.
pub(super) fn random(data: &Dataset, point: &Path) -> io::Result<View> {
    let name = data.names().next().unwrap_or_default();
    let offsets = offsets(data.file_size() / BLOCK as u64);
    if offsets.len() < ALONE + THREADS * EACH {
        return Err(io::Error::other("the file is too small for random reads"));
    }
    let file = File::open(point.join(&name))?;
    let (alone, rest) = offsets.split_at(ALONE);
    let start = Instant::now();
    let mut blocks = read(&file, alone)?;
    let one_by_one = mean(start.elapsed(), ALONE);
    let (file, start) = (&file, Instant::now());
    let read_together: io::Result<Vec<Vec<Block>>> = thread::scope(|scope| {
        let parts = rest.chunks(EACH).take(THREADS);
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || read(file, part))).collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a reader panicked")))
        });
        joined.collect()
    });
    let together = mean(start.elapsed(), THREADS * EACH);
    blocks.extend(read_together?.into_iter().flatten());
    let source = File::open(data.root().join(&name))?;
    let wrong = difference(&source, &blocks)?.map(|offset| format!("{name} differs at {offset}"));
    let parts = [("random read", one_by_one), ("random read of 16 at a time", together)];
    Ok(View::of_parts(parts, wrong))
}

fn read(file: &File, offsets: &[u64]) -> io::Result<Vec<Block>> {
    let block = |offset: &u64| {
        let mut content = vec![0; BLOCK];
        file.read_exact_at(&mut content, *offset)?;
        Ok((*offset, content))
    };
    offsets.iter().map(block).collect()
}

fn mean(time: Duration, reads: usize) -> Duration {
    time.div_f64(reads as f64)
}

/// The offsets of all `blocks` of a file, in an order without a pattern that is the same in every run.
fn offsets(blocks: u64) -> Vec<u64> {
    // Output `n` of splitmix64 with the seed 0: they all differ.
    let mixed = |n: &u64| {
        let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    };
    let mut order: Vec<u64> = (0..blocks).collect();
    order.sort_by_key(mixed);
    order.into_iter().map(|n| n * BLOCK as u64).collect()
}

/// The offset of the first of `blocks` that differs from `source`.
fn difference(source: &File, blocks: &[Block]) -> io::Result<Option<u64>> {
    let mut expected = vec![0; BLOCK];
    for (offset, content) in blocks {
        source.read_exact_at(&mut expected, *offset)?;
        if expected != *content {
            return Ok(Some(*offset));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSpec;
    use crate::record::Outcome;

    #[test]
    fn every_block_is_read_once_and_rarely_after_its_neighbour() {
        let mut offsets = offsets(1000);
        let neighbours = offsets.windows(2).filter(|pair| pair[1] == pair[0] + BLOCK as u64);
        assert!(neighbours.count() < 10);
        offsets.sort_unstable();
        assert!(offsets.iter().zip(0..).all(|(offset, n)| *offset == n * BLOCK as u64));
        assert_eq!(offsets.len(), 1000);
    }

    #[test]
    fn random_reads_are_timed_and_compared() {
        let temp = tempfile::tempdir().expect("a directory");
        let make = |name: &str, bytes| {
            let spec = DataSpec { files: 1, bytes, directories: 0, sparse_size: None };
            spec.make(&temp.path().join(name)).expect("writable")
        };
        let data = make("data", 400 * BLOCK as u64);
        let view = random(&data, data.root()).expect("readable");
        assert_eq!(view.outcome, Outcome::Ok);
        let names: Vec<&str> = view.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["random read", "random read of 16 at a time"]);
        let copy = temp.path().join("copy");
        std::fs::create_dir(&copy).expect("writable");
        std::fs::write(copy.join("file"), vec![0; 400 * BLOCK]).expect("writable");
        let view = random(&data, &copy).expect("readable");
        assert!(matches!(view.outcome, Outcome::Wrong { .. }), "{view:?}");
        let small = make("small", 10 * BLOCK as u64);
        assert!(random(&small, small.root()).is_err());
    }
}
