//! Blocks of files on disk, which survive restarts.
//!
//! ```text
//! arrived blocks ─► read: is it still the same version? ─► Cache::store ─► writer thread ─► Directory (files)
//! wanted blocks ──► Cache::contains (Index, in memory) ──► Cache::read ──► Directory, checked ──► bytes
//! ```
//!
//! A block has a file of its own. Its name comes from a hash of the location, the path, the version of the file and the
//! number of the block ([`key`]): a changed file has other names, so its old blocks are never found. The file ends with
//! a keyed checksum of the content, so a block that was damaged, cut short by a crash, or renamed is not used; it is
//! removed and fetched again.
//!
//! The index in memory has the names of all blocks in the order of their last use; the least recently used are evicted
//! first. The order is written when the cache is closed, and after every 4096 written blocks. A lock excludes a second
//! mount.
//!
//! No fault of the disk is an error of a read: a block that cannot be read is fetched, and one that cannot be written
//! is not cached.

mod directory;
mod index;
mod key;
mod store;

pub(crate) use key::VersionKey;
pub(crate) use store::{Cache, Reserved};
