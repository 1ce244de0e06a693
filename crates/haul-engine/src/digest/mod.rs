//! Digests of files, made from the bytes that pass.

use std::fmt;

use haul_storage::DigestKind;

/// A digest of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    /// By which function.
    pub kind: DigestKind,
    /// Its 256 bits.
    pub bytes: [u8; 32],
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
