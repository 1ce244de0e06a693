//! The sparse content of one file: ranges that were never written take no memory and read as zeros.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Pattern;
use crate::{Block, Digest, DigestKind, Range, RangeSet};

/// Content of a file.
#[derive(Debug, Clone)]
pub(super) struct Data {
    size: u64,
    written: RangeSet,
    store: Store,
}

#[derive(Debug, Clone)]
enum Store {
    /// Bytes by their start offset, without overlaps.
    Extents(BTreeMap<u64, Bytes>),
    /// Nothing is stored: written bytes must match the pattern, and read as the pattern.
    Pattern(Pattern),
}

impl Data {
    pub(super) fn new() -> Self {
        let store = Store::Extents(BTreeMap::new());
        Self { size: 0, written: RangeSet::new(), store }
    }

    /// An empty file that accepts only the bytes of `pattern`, and does not store them.
    pub(super) fn sink(pattern: Pattern) -> Self {
        Self { size: 0, written: RangeSet::new(), store: Store::Pattern(pattern) }
    }

    /// A file of `size` bytes with the content of `pattern`.
    pub(super) fn pattern(pattern: Pattern, size: u64) -> Self {
        let mut written = RangeSet::new();
        written.insert(Range::new(0, size));
        Self { size, written, store: Store::Pattern(pattern) }
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// The ranges that hold data, merged, in order.
    pub(super) fn written(&self) -> &RangeSet {
        &self.written
    }

    /// The digest of the content.
    pub(super) fn digest(&self, kind: DigestKind) -> Digest {
        Digest::of(kind, &self.read(Range::new(0, self.size)).into_bytes())
    }

    /// The bytes of `range` up to the end of the file.
    pub(super) fn read(&self, range: Range) -> Block {
        let range = range.intersection(Range::new(0, self.size));
        let mut block = Block::new();
        let mut offset = range.start();
        while let Some(data) = self.written.next(offset) {
            let data = data.intersection(range);
            if data.is_empty() {
                break;
            }
            push_zeros(&mut block, data.start() - offset);
            self.push_data(&mut block, data);
            offset = data.end();
        }
        push_zeros(&mut block, range.end() - offset);
        block
    }

    /// Stores a block. Fails in a file with a pattern, with the offset of the first byte that differs from it.
    pub(super) fn write(&mut self, offset: u64, block: &Block) -> Result<(), u64> {
        let range = Range::new(offset, block.len() as u64);
        if range.is_empty() {
            return Ok(());
        }
        match &mut self.store {
            Store::Pattern(pattern) => {
                if let Some(wrong) = pattern.first_difference(offset, block) {
                    return Err(wrong);
                }
            }
            Store::Extents(extents) => {
                carve(extents, range);
                // Copied, so that the block's buffers return to their pool.
                let bytes = block.pieces().concat();
                extents.insert(offset, bytes.into());
            }
        }
        self.written.insert(range);
        self.size = self.size.max(range.end());
        Ok(())
    }

    /// Sets the length; new bytes are a hole, bytes beyond the end are discarded.
    pub(super) fn resize(&mut self, size: u64) {
        let beyond = Range::between(size, u64::MAX);
        self.written.remove(beyond);
        if let Store::Extents(extents) = &mut self.store {
            carve(extents, beyond);
        }
        self.size = size;
    }

    /// The first extent of data at or after `from`, within the file.
    pub(super) fn next_data(&self, from: u64) -> Option<Range> {
        let data = self.written.next(from)?.intersection(Range::between(from, self.size));
        (!data.is_empty()).then_some(data)
    }

    /// Whether the file has `size` bytes with the content of `pattern`.
    pub(super) fn is_pattern(&self, pattern: Pattern, size: u64) -> bool {
        const STEP: u64 = 1 << 20;
        let whole = Range::new(0, size);
        if self.size != size {
            return false;
        }
        if matches!(self.store, Store::Pattern(own) if own == pattern) {
            return size == 0 || self.written.next(0) == Some(whole);
        }
        let mut offsets = (0..size).step_by(STEP as usize);
        offsets.all(|offset| {
            let block = self.read(Range::new(offset, STEP));
            pattern.first_difference(offset, &block).is_none()
        })
    }

    fn push_data(&self, block: &mut Block, range: Range) {
        match &self.store {
            Store::Pattern(pattern) => block.append(pattern.block(range)),
            Store::Extents(extents) => {
                let first = extents.range(..=range.start()).next_back();
                let start = first.map_or(range.start(), |(start, _)| *start);
                for (start, bytes) in extents.range(start..range.end()) {
                    let common = Range::new(*start, bytes.len() as u64).intersection(range);
                    if !common.is_empty() {
                        let from = (common.start() - start) as usize;
                        block.push(bytes.slice(from..from + common.len() as usize));
                    }
                }
            }
        }
    }
}

/// Removes `range` from the extents.
fn carve(extents: &mut BTreeMap<u64, Bytes>, range: Range) {
    let before = extents.range(..range.start()).next_back();
    if let Some((start, bytes)) = before.map(|(start, bytes)| (*start, bytes.clone())) {
        let keep = (range.start() - start).min(bytes.len() as u64) as usize;
        if keep < bytes.len() {
            extents.insert(start, bytes.slice(..keep));
            let end = start + bytes.len() as u64;
            if end > range.end() {
                extents.insert(range.end(), bytes.slice((range.end() - start) as usize..));
            }
        }
    }
    let inside: Vec<u64> = extents.range(range.start()..range.end()).map(|(at, _)| *at).collect();
    for start in inside {
        let Some(bytes) = extents.remove(&start) else { continue };
        let end = start + bytes.len() as u64;
        if end > range.end() {
            extents.insert(range.end(), bytes.slice((range.end() - start) as usize..));
        }
    }
}

fn push_zeros(block: &mut Block, mut length: u64) {
    static ZEROS: [u8; 65536] = [0; 65536];
    while length > 0 {
        let piece = length.min(ZEROS.len() as u64);
        block.push(Bytes::from_static(&ZEROS[..piece as usize]));
        length -= piece;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block(bytes: &[u8]) -> Block {
        Block::from(Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn a_sparse_file_of_many_gib_stores_only_written_bytes() {
        let mut data = Data::new();
        data.write(100 << 30, &block(b"end")).unwrap();
        assert_eq!(data.size(), (100 << 30) + 3);
        assert_eq!(data.written().total(), 3);
        let across = data.read(Range::new((100 << 30) - 2, 100)).into_bytes();
        assert_eq!(across, &b"\0\0end"[..]);
    }

    #[test]
    fn a_sink_refuses_bytes_that_differ_from_its_pattern() {
        let mut data = Data::sink(Pattern::new(1));
        data.write(10, &Pattern::new(1).block(Range::new(10, 90))).unwrap();
        assert_eq!(data.write(0, &Pattern::new(2).block(Range::new(0, 9))), Err(0));
        assert!(!data.is_pattern(Pattern::new(1), 100));
        data.write(0, &Pattern::new(1).block(Range::new(0, 10))).unwrap();
        assert!(data.is_pattern(Pattern::new(1), 100));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, Vec<u8>),
        Resize(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..200u64, prop::collection::vec(1..=255u8, 0..60)).prop_map(|(at, bytes)| {
                Step::Write(at, bytes)
            }),
            1 => (0..250u64).prop_map(Step::Resize),
        ]
    }

    proptest! {
        /// Compares with a plain vector of bytes.
        #[test]
        fn sparse_content_reads_like_plain_content(
            steps in prop::collection::vec(step(), 1..20),
            start in 0..260u64,
            length in 0..260u64,
        ) {
            let mut data = Data::new();
            let mut plain: Vec<u8> = Vec::new();
            for step in steps {
                match step {
                    Step::Write(at, bytes) => {
                        data.write(at, &block(&bytes)).unwrap();
                        let at = at as usize;
                        if !bytes.is_empty() {
                            plain.resize(plain.len().max(at + bytes.len()), 0);
                            plain[at..at + bytes.len()].copy_from_slice(&bytes);
                        }
                    }
                    Step::Resize(size) => {
                        data.resize(size);
                        plain.resize(size as usize, 0);
                    }
                }
            }
            prop_assert_eq!(data.size(), plain.len() as u64);
            let end = plain.len().min((start + length) as usize);
            let cut = plain.get(start as usize..end.max(start as usize)).unwrap_or_default();
            prop_assert_eq!(data.read(Range::new(start, length)).into_bytes(), cut);
            // Written bytes are never zero, so exactly the other ones are.
            let held: u64 = data.written().total();
            prop_assert_eq!(held, plain.iter().filter(|byte| **byte != 0).count() as u64);
        }
    }
}
