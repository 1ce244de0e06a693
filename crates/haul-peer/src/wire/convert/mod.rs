//! Messages to and from the types of [`haul_storage`].
//!
//! Encoding cannot fail; where a value exceeds what the other side accepts, the function documents what is sent in
//! its place. Decoding checks every field and fails with a [`WireError`]: numbers, lengths and counts against the
//! limits below, paths with [`RelPath::parse`]. Values of later versions become the nearest known one where there is
//! one; error texts are truncated rather than refused.

mod capabilities;
mod entry;
mod error;
mod metadata;
mod options;
mod outcomes;
mod ranges;
mod space;

pub use capabilities::{capabilities, digest_kind};
pub use error::{clipped, operation};
pub use outcomes::{entries, entry_outcome, entry_result, whole_outcome, whole_result};
pub use ranges::RANGES_MAX;

use bytes::Bytes;
use haul_storage::{RelPath, UNKNOWN_SIZE};

use super::WireError;

/// Maximum length of a path below the root, and of a source's name, in bytes.
pub const PATH_MAX: usize = 64 << 10;

/// Maximum length of a version tag in bytes. A longer one is not sent.
pub const TAG_MAX: usize = 8 << 10;

/// Maximum length of the target of a symbolic link in bytes: `PATH_MAX` of Linux.
pub const TARGET_MAX: usize = 4 << 10;

/// Maximum length of the name or value of an extended attribute in bytes: `XATTR_SIZE_MAX` of Linux.
pub const XATTR_MAX: usize = 64 << 10;

/// Maximum length of all extended attributes of an entry in bytes.
pub const XATTRS_MAX: usize = 1 << 20;

/// Maximum length of an error's cause, hint or operation, of a refusal's text, of names and versions for display,
/// in bytes.
pub const TEXT_MAX: usize = 1 << 10;

/// Permission bits, including set-ID and sticky bits.
const MODE_BITS: u32 = 0o7777;

/// A field that must be present.
///
/// # Errors
/// `Missing` if it is not.
pub fn required<T>(field: Option<T>, name: &'static str) -> Result<T, WireError> {
    field.ok_or(WireError::Missing(name))
}

/// A field of exactly `N` bytes, such as a key, proof, nonce or digest.
///
/// # Errors
/// `Invalid` if it has another length.
pub fn fixed<const N: usize>(field: &[u8], name: &'static str) -> Result<[u8; N], WireError> {
    field.try_into().map_err(|_| WireError::Invalid(name))
}

/// A path below the root.
///
/// # Errors
/// If [`RelPath::parse`] refuses it, or it is longer than [`PATH_MAX`].
pub fn path(bytes: &[u8]) -> Result<RelPath, WireError> {
    if bytes.len() > PATH_MAX {
        return Err(WireError::LongField("path"));
    }
    Ok(RelPath::parse(bytes)?)
}

/// Paths below the root.
///
/// # Errors
/// If any of them is refused.
pub fn paths(paths: &[Bytes]) -> Result<Vec<RelPath>, WireError> {
    paths.iter().map(|bytes| path(bytes)).collect()
}

/// The bytes of a path.
pub fn path_bytes(path: &RelPath) -> Bytes {
    Bytes::copy_from_slice(path.as_bytes())
}

/// Permission bits of a message.
///
/// # Errors
/// `Invalid` if there are others than `0o7777`.
pub fn mode(mode: Option<u32>) -> Result<Option<u32>, WireError> {
    match mode {
        Some(bits) if bits & !MODE_BITS != 0 => Err(WireError::Invalid("mode")),
        _ => Ok(mode),
    }
}

fn size_from(size: Option<u64>) -> u64 {
    size.unwrap_or(UNKNOWN_SIZE)
}

fn size_to(size: u64) -> Option<u64> {
    (size != UNKNOWN_SIZE).then_some(size)
}

fn tag_from(tag: Option<String>) -> Result<Option<String>, WireError> {
    match &tag {
        Some(text) if text.len() > TAG_MAX => Err(WireError::LongField("tag")),
        _ => Ok(tag),
    }
}

fn tag_to(tag: Option<&String>) -> Option<String> {
    tag.filter(|text| text.len() <= TAG_MAX).cloned()
}
