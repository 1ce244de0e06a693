//! Manifests: lists of digests as `sha256sum` and `b3sum` write and check them.
//!
//! ```text
//! storage ─→ ManifestReader ─→ lines ─→ parse_line ─→ verify, or merged by the writer
//! digests ─→ ManifestWriter ─→ sorted runs on disk ─→ merged ─→ format_line ─→ storage
//! ```
//!
//! Neither direction holds more than a few MiB, however many files there are.

mod frame;
mod line;
mod reader;
pub(crate) mod sorter;
mod writer;

use haul_storage::DigestKind;

pub use line::{LineError, Listed, format_line, listed_path, parse_line};
pub use reader::{ManifestReader, NumberedLine};
pub use writer::{FinishOptions, Finished, ManifestWriter};

/// The default names of manifests.
pub const DEFAULT_NAMES: [(DigestKind, &str); 2] =
    [(DigestKind::Sha256, "SHA256SUMS"), (DigestKind::Blake3, "B3SUMS")];

/// The default name of a manifest of this kind.
pub const fn default_name(kind: DigestKind) -> &'static str {
    match kind {
        DigestKind::Sha256 => DEFAULT_NAMES[0].1,
        DigestKind::Blake3 => DEFAULT_NAMES[1].1,
    }
}

/// The kind of digests in a file of this name, if the name shows it: `SHA256SUMS`, `sha256sum.txt`,
/// `x.iso.sha256`, `B3SUMS`, `x.b3`, in upper or lower case.
pub fn kind_of_name(name: &[u8]) -> Option<DigestKind> {
    const SHA256: [&[u8]; 3] = [b"sha256sums", b"sha256sum", b"sha256"];
    const BLAKE3: [&[u8]; 4] = [b"b3sums", b"b3sum", b"b3", b"blake3"];
    let name = name.to_ascii_lowercase();
    let name = name.strip_suffix(b".txt").unwrap_or(&name);
    // The whole name, or what follows its last dot.
    let last = name.rsplit(|byte| *byte == b'.').next().unwrap_or(name);
    if SHA256.contains(&last) {
        Some(DigestKind::Sha256)
    } else if BLAKE3.contains(&last) {
        Some(DigestKind::Blake3)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_manifest_shows_its_kind() {
        let sha256 = ["SHA256SUMS", "sha256sum.txt", "SHA256SUMS.txt", "a.iso.sha256", "x.SHA256"];
        for name in sha256 {
            assert_eq!(kind_of_name(name.as_bytes()), Some(DigestKind::Sha256), "{name}");
        }
        for name in ["B3SUMS", "a.b3", "x.b3sum", "x.blake3"] {
            assert_eq!(kind_of_name(name.as_bytes()), Some(DigestKind::Blake3), "{name}");
        }
        for name in ["SUMS", "mysha256", "a.md5", ""] {
            assert_eq!(kind_of_name(name.as_bytes()), None, "{name}");
        }
        for (kind, name) in DEFAULT_NAMES {
            assert_eq!(kind_of_name(name.as_bytes()), Some(kind));
            assert_eq!(default_name(kind), name);
        }
    }
}
