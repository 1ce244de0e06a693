//! Keys of versions and blocks: hashes of everything that distinguishes them.

use std::hash::{Hash as _, Hasher};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_storage::{Identity, Location, RelPath};

/// Domain of the hash. It must change whenever the hashed fields do.
const CONTEXT: &str = "haul-mount cache, version 2, of a location, a path and an identity";

/// How long ago the last change must be if its time is known in seconds only. A change within the same second has the
/// same time; the rest allows for a server whose clock is wrong.
const SETTLED: Duration = Duration::from_secs(120);

/// The key of one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionKey([u8; 32]);

/// The key of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockKey {
    /// The name of its file.
    pub(super) name: u128,
    /// The key of its checksum.
    pub(super) seal: [u8; 32],
}

impl VersionKey {
    /// The key of a version; `None` if a later run could take another version for it. `mount` distinguishes locations
    /// with equal names.
    pub(crate) fn new(
        (location, mount): (&Location, &str),
        path: &RelPath,
        identity: &Identity,
        now: SystemTime,
    ) -> Option<Self> {
        if !is_settled(identity, now) {
            return None;
        }
        let mut digest = Digest(blake3::Hasher::new_derive_key(CONTEXT));
        location.hash(&mut digest);
        mount.hash(&mut digest);
        path.as_bytes().hash(&mut digest);
        identity.size.hash(&mut digest);
        identity.modified.hash(&mut digest);
        identity.id.hash(&mut digest);
        identity.tag.hash(&mut digest);
        Some(Self(*digest.0.finalize().as_bytes()))
    }

    /// The key of a block.
    pub(crate) fn block(&self, index: u64) -> BlockKey {
        let seal = *blake3::keyed_hash(&self.0, &index.to_le_bytes()).as_bytes();
        BlockKey { name: u128::from_le_bytes(std::array::from_fn(|at| seal[at])), seal }
    }
}

/// Whether every later change of the file changes its identity.
fn is_settled(identity: &Identity, now: SystemTime) -> bool {
    // Versions with equal weak tags may have different bytes (RFC 9110, section 8.8.1).
    if identity.tag.as_ref().is_some_and(|tag| !tag.starts_with("W/")) {
        return true;
    }
    let Some(modified) = identity.modified else { return false };
    if modified.nanos != 0 {
        return true;
    }
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(modified.seconds)
        .is_ok_and(|at| Duration::from_secs(at).saturating_add(SETTLED) <= now)
}

/// Feeds `Hash` into BLAKE3. Unlike the printed form of a location, that covers queries and whole tickets.
struct Digest(blake3::Hasher);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        // Not used: the digest is taken from BLAKE3.
        0
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::{FileId, Timestamp};

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn at(seconds: i64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds as u64)
    }

    fn identity(seconds: i64, nanos: u32) -> Identity {
        let modified = Some(Timestamp { seconds, nanos });
        Identity { size: 10, modified, id: None, tag: None }
    }

    fn key(location: &str, path: &str, identity: &Identity) -> Option<VersionKey> {
        key_by("", location, path, identity)
    }

    fn key_by(mount: &str, location: &str, path: &str, identity: &Identity) -> Option<VersionKey> {
        let location = Location::Local(location.into());
        VersionKey::new((&location, mount), &RelPath::parse(path).unwrap(), identity, at(NOW))
    }

    #[test]
    fn every_part_of_a_version_counts() {
        let one = identity(1000, 0);
        let first = key("/a", "x", &one).unwrap();
        assert_eq!(key("/a", "x", &one), Some(first));
        let id = Some(FileId { device: 1, inode: 2 });
        for other in [
            key_by("/a by another route", "/a", "x", &one),
            key("/b", "x", &one),
            key("/a", "y", &one),
            key("/a", "x", &Identity { size: 11, ..one.clone() }),
            key("/a", "x", &identity(1001, 0)),
            key("/a", "x", &identity(1000, 1)),
            key("/a", "x", &Identity { id, ..one.clone() }),
            key("/a", "x", &Identity { tag: Some("t".to_owned()), ..one.clone() }),
        ] {
            assert!(other.is_some_and(|other| other != first));
        }
        assert_ne!(first.block(0), first.block(1));
        assert_eq!(first.block(7), first.block(7));
    }

    #[test]
    fn a_version_that_could_change_unnoticed_has_no_key() {
        let tagged = |tag: &str| Identity { tag: Some(tag.to_owned()), ..identity(NOW, 0) };
        assert!(key("/a", "x", &identity(NOW - 10, 0)).is_none());
        assert!(key("/a", "x", &identity(NOW + 10, 0)).is_none());
        assert!(key("/a", "x", &tagged("W/\"1\"")).is_none());
        assert!(key("/a", "x", &Identity { modified: None, ..identity(0, 0) }).is_none());
        assert!(key("/a", "x", &identity(NOW - 200, 0)).is_some());
        assert!(key("/a", "x", &identity(NOW - 10, 5)).is_some());
        assert!(key("/a", "x", &tagged("\"1\"")).is_some());
    }
}
