//! Content of test files: pseudo-random bytes, the same in every run; and a search for temporary files of haul.

use std::fs;
use std::path::{Path, PathBuf};

/// Pseudo-random bytes.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut chance = Chance(seed);
    // A word at a time: byte by byte takes long without optimisation.
    let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
    while bytes.len() < length {
        bytes.extend_from_slice(&chance.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Pseudo-random numbers, the same in every run (SplitMix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// From 0 to below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// All files below a directory with names that haul reserves for temporary files: part files, journals, and others.
pub(crate) fn unfinished(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            } else if haul_storage::is_part_name(entry.file_name().as_encoded_bytes()) {
                found.push(entry.path());
            }
        }
    }
    found
}
