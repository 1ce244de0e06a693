//! Digests of files, computed while their bytes are moved.
//!
//! [`FileHasher`] takes the blocks of one file as they arrive and computes its [`Digest`]. BLAKE3 is a tree whose parts
//! may arrive in any order; for SHA-256, a block waits for those before it. Hashing runs on the threads of a `WorkPool`
//! and never on an async worker, except for blocks so small that passing them to another thread would cost more.
//!
//! ```text
//! update(offset, block) ─→ WorkPool ─→ forest (BLAKE3): subtrees are merged
//!                                   └→ chain (SHA-256): one block after the other
//! ```
//!
//! Measured on a 2-core VM with AVX-512 and SHA-NI, per second of processor time: BLAKE3 6 GB/s in any order (4 GB/s if
//! blocks are not aligned to chunks), SHA-256 1.6 GB/s, both as fast as the bare function. The `sha2` crate, ring and
//! OpenSSL differ by less than 5 %.

mod chain;
mod feeding;
mod forest;
mod hasher;

use std::fmt;

use haul_storage::DigestKind;
use sha2::Digest as _;

pub use hasher::FileHasher;

/// A digest of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    /// The hash function.
    pub kind: DigestKind,
    /// The 256 bits of the digest.
    pub bytes: [u8; 32],
}

impl Digest {
    /// The digest of `bytes`. Hashes on the calling thread, at the speed of one core: meant for small files.
    pub fn of(kind: DigestKind, bytes: &[u8]) -> Self {
        let bytes = match kind {
            DigestKind::Blake3 => *blake3::hash(bytes).as_bytes(),
            DigestKind::Sha256 => sha2::Sha256::digest(bytes).into(),
        };
        Self { kind, bytes }
    }
}

impl Digest {
    /// Parses 64 hexadecimal digits; `None` for anything else.
    pub fn from_hex(kind: DigestKind, hex: &[u8]) -> Option<Self> {
        let mut bytes = [0; 32];
        if hex.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self { kind, bytes })
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Lower-case hexadecimal, as in `sha256sum` and `b3sum`.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.kind.name())
    }
}
