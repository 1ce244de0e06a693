//! Digests of files.

use std::fmt;

use sha2::Digest as _;

/// A digest function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DigestKind {
    /// BLAKE3 with 256 bits, as `b3sum` prints it.
    Blake3,
    /// SHA-256, as `sha256sum` prints it.
    Sha256,
}

impl DigestKind {
    /// The name in options, events and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
        }
    }
}

/// A digest of a file. Digests of two kinds are never equal.
///
/// ```
/// use haul_storage::{Digest, DigestKind};
///
/// let digest = Digest::of(DigestKind::Sha256, b"haul");
/// assert_eq!(Digest::from_hex(DigestKind::Sha256, digest.to_string().as_bytes()), Some(digest));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    /// The digest function.
    pub kind: DigestKind,
    /// Its 256 bits.
    pub bytes: [u8; 32],
}

impl Digest {
    /// The digest of bytes in memory. Hashes on the calling thread, at the speed of one core: meant for
    /// small files.
    pub fn of(kind: DigestKind, bytes: &[u8]) -> Self {
        let bytes = match kind {
            DigestKind::Blake3 => *blake3::hash(bytes).as_bytes(),
            DigestKind::Sha256 => sha2::Sha256::digest(bytes).into(),
        };
        Self { kind, bytes }
    }

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

/// In lower-case hexadecimal, as `sha256sum` and `b3sum` print it.
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
