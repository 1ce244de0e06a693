//! The cache directory: its lock, and a file for each block.
//!
//! ```text
//! haul-mount-cache          marks the directory and is locked while a mount uses it; the version of the format
//! order                     names of 16 bytes each, the least recently used first
//! new                       the block or the order that is being written
//! 3f/0a…91-20000            a block: 2 + 30 hex digits of its name, its length in hex; 32 bytes of checksum at the end
//! ```

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result};
use rustix::process::geteuid;

use super::key::BlockKey;
use crate::lock::{lock, lock_file};

/// Length of the checksum at the end of each block, in bytes.
pub(super) const SEAL: usize = 32;

const MARK: &str = "haul-mount-cache";
const FORMAT: &str = "1\n";
const ORDER: &str = "order";
const NEW: &str = "new";

/// A locked cache directory.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The lock; `None` once it is released.
    lock: Mutex<Option<File>>,
}

/// Why a block was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// It cannot be read.
    Missing,
    /// It has other bytes than were written.
    Corrupt,
}

impl Directory {
    /// Opens and locks the directory; it is created if it does not exist.
    ///
    /// # Errors
    /// If it cannot be created or opened, another mount uses it, other users may write to it, it has other files than a
    /// cache, or another version of haul has written it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |error| Error::from_io("open cache", error).at(path.display());
        let cannot = |kind| Error::new(kind, "open cache").at(path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let path = path.canonicalize().map_err(failed)?;
        let found = fs::metadata(&path).map_err(failed)?;
        if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(cannot(ErrorKind::PermissionDenied)
                .because("other users may write to it, and so change what programs read")
                .hinting("use a directory of your own: chmod 700 DIR"));
        }
        let mark = path.join(MARK);
        if !mark.exists() && has_other_files(&path).map_err(failed)? {
            return Err(cannot(ErrorKind::NotEmpty)
                .because("it has other files than a cache of haul mount")
                .hinting("use an empty directory"));
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(&mark).map_err(failed)?;
        match lock_file(&lock) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(cannot(ErrorKind::Busy)
                    .because("another mount uses this cache")
                    .hinting("give each mount a --cache-dir of its own"));
            }
            Err(error) => return Err(failed(error)),
        }
        let mut format = String::new();
        lock.read_to_string(&mut format).map_err(failed)?;
        match format.as_str() {
            // New, or a crash came before the format was written.
            "" => lock.write_all(FORMAT.as_bytes()).map_err(failed)?,
            FORMAT => {}
            _ => {
                return Err(cannot(ErrorKind::Unsupported)
                    .because("another version of haul has written it")
                    .hinting("remove the directory, or use another one"));
            }
        }
        Ok(Self { path, lock: Mutex::new(Some(lock)) })
    }

    /// The canonical path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Lets another mount use the directory.
    pub(super) fn unlock(&self) {
        drop(lock(&self.lock).take());
    }

    /// Names and lengths of all blocks, the least recently used first.
    pub(super) fn blocks(&self) -> io::Result<Vec<(u128, u32)>> {
        let mut blocks = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(first) = name.to_str().filter(|name| name.len() == 2) else { continue };
            // Other files that the user put here are none of the cache.
            if !entry.file_type()?.is_dir() {
                continue;
            }
            for entry in fs::read_dir(entry.path())? {
                let name = entry?.file_name();
                blocks.extend(name.to_str().and_then(|name| parse(first, name)));
            }
        }
        let order = fs::read(self.path.join(ORDER)).unwrap_or_default();
        let (names, _) = order.as_chunks::<16>();
        let order: HashMap<u128, usize> =
            names.iter().map(|name| u128::from_le_bytes(*name)).zip(0..).collect();
        // Blocks that are not in the order were written after it: they were used last.
        blocks.sort_by_key(|(name, _)| order.get(name).copied().unwrap_or(usize::MAX));
        Ok(blocks)
    }

    /// Records the order of use.
    pub(super) fn save_order(&self, names: &[u128]) -> io::Result<()> {
        let bytes: Vec<u8> = names.iter().flat_map(|name| name.to_le_bytes()).collect();
        self.replace(&self.path.join(ORDER), &[&bytes[..]])
    }

    /// Reads a block of this length, and checks it.
    pub(super) fn read(&self, key: &BlockKey, length: u32) -> std::result::Result<Bytes, Lost> {
        let length = length as usize;
        let file = File::open(self.block(key.name, length)).map_err(|_| Lost::Missing)?;
        let mut bytes = Vec::with_capacity(length + SEAL + 1);
        // One byte more, to detect a longer file.
        let mut file = file.take((length + SEAL + 1) as u64);
        file.read_to_end(&mut bytes).map_err(|_| Lost::Missing)?;
        let Some((content, seal)) = bytes.split_last_chunk::<SEAL>() else {
            return Err(Lost::Corrupt);
        };
        if content.len() != length || blake3::keyed_hash(&key.seal, content) != *seal {
            return Err(Lost::Corrupt);
        }
        bytes.truncate(length);
        Ok(Bytes::from(bytes))
    }

    /// Writes a block. Only one may be written at a time.
    pub(super) fn write(&self, key: &BlockKey, bytes: &[u8]) -> io::Result<()> {
        let path = self.block(key.name, bytes.len());
        if let Some(parent) = path.parent() {
            match DirBuilder::new().mode(0o700).create(parent) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let seal = blake3::keyed_hash(&key.seal, bytes);
        // Not synced: after a crash the checksum shows whether the block is complete.
        self.replace(&path, &[bytes, &seal.as_bytes()[..]])
    }

    /// Removes a block.
    pub(super) fn remove(&self, name: u128, length: u32) {
        // It may be gone already. If it cannot be removed, the next mount finds it.
        drop(fs::remove_file(self.block(name, length as usize)));
    }

    fn block(&self, name: u128, length: usize) -> PathBuf {
        let name = format!("{name:032x}");
        let (first, rest) = name.split_at(2);
        self.path.join(first).join(format!("{rest}-{length:x}"))
    }

    fn replace(&self, path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
        let new = self.path.join(NEW);
        let write = || {
            let mut options = File::options();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&new)?;
            pieces.iter().try_for_each(|piece| file.write_all(piece))?;
            fs::rename(&new, path)
        };
        write().inspect_err(|_| {
            // An incomplete file takes space.
            drop(fs::remove_file(&new));
        })
    }
}

/// Whether it has any entry but `lost+found`, which a new file system has.
fn has_other_files(path: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(path)? {
        if entry?.file_name() != "lost+found" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Name and length of the block with this file name.
fn parse(first: &str, name: &str) -> Option<(u128, u32)> {
    let (rest, length) = name.split_once('-').filter(|(rest, _)| rest.len() == 30)?;
    let name = u128::from_str_radix(&format!("{first}{rest}"), 16).ok()?;
    Some((name, u32::from_str_radix(length, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;

    fn key(name: u128) -> BlockKey {
        BlockKey { name, seal: [name as u8; 32] }
    }

    #[test]
    fn blocks_are_found_again_in_the_order_of_their_use() {
        let directory = TempDir::new().unwrap();
        let cache = Directory::open(&directory.path().join("a/b")).unwrap();
        for name in [1, 2, u128::MAX] {
            cache.write(&key(name), b"content").unwrap();
        }
        // No file of the cache.
        fs::write(cache.path().join("ab"), "").unwrap();
        cache.save_order(&[2, 1]).unwrap();
        assert_eq!(cache.blocks().unwrap(), [(2, 7), (1, 7), (u128::MAX, 7)]);
        cache.remove(2, 7);
        assert_eq!(cache.blocks().unwrap(), [(1, 7), (u128::MAX, 7)]);
        assert_eq!(cache.read(&key(1), 7).unwrap(), &b"content"[..]);
        assert_eq!(cache.read(&key(2), 7), Err(Lost::Missing));
    }

    #[test]
    fn damaged_and_renamed_blocks_are_not_used() {
        let directory = TempDir::new().unwrap();
        let cache = Directory::open(directory.path()).unwrap();
        cache.write(&key(1), b"content").unwrap();
        let path = cache.block(1, 7);
        let whole = fs::read(&path).unwrap();
        for length in [0, 6, 7, 38] {
            fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(cache.read(&key(1), 7), Err(Lost::Corrupt), "{length}");
        }
        for at in [0, 6, 7, 38] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            assert_eq!(cache.read(&key(1), 7), Err(Lost::Corrupt), "{at}");
        }
        fs::write(&path, [&whole[..], b"x"].concat()).unwrap();
        assert_eq!(cache.read(&key(1), 7), Err(Lost::Corrupt));
        fs::create_dir_all(cache.block(2, 7).parent().unwrap()).unwrap();
        fs::write(cache.block(2, 7), &whole).unwrap();
        assert_eq!(cache.read(&key(2), 7), Err(Lost::Corrupt));
    }

    #[test]
    fn a_directory_is_for_one_mount_at_a_time() {
        let directory = TempDir::new().unwrap();
        let first = Directory::open(directory.path()).unwrap();
        let error = Directory::open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.hint().unwrap().contains("--cache-dir"), "{error}");
        first.unlock();
        Directory::open(directory.path()).unwrap();
    }

    #[test]
    fn a_directory_with_other_files_or_writable_by_others_is_refused() {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("letter"), "x").unwrap();
        let error = Directory::open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotEmpty);
        let directory = TempDir::new().unwrap();
        fs::create_dir(directory.path().join("lost+found")).unwrap();
        drop(Directory::open(directory.path()).unwrap());
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o770)).unwrap();
        let error = Directory::open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_directory_of_another_format_is_refused() {
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join(MARK), "2\n").unwrap();
        let error = Directory::open(directory.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}
