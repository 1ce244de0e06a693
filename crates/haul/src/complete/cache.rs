//! Caches listings for a minute, so that a second Tab does not connect again.
//!
//! One file per listing, readable by its owner only. Its name is a hash of all that the listing depends on, secrets
//! included. Without a usable file, the directory is listed again.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long a listing is valid.
const FRESH: Duration = Duration::from_secs(60);

/// A directory of listings.
#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// The cache below haul's cache directory.
    pub(super) fn below(cache: &Path) -> Self {
        Self { directory: cache.join("completion") }
    }

    /// The names of a directory, if they are cached. `key` is a hash of all that the listing depends on.
    pub(super) fn get(&self, key: u64) -> Option<Vec<String>> {
        let path = self.path(key);
        let metadata = fs::symlink_metadata(&path).ok()?;
        let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
        let is_mine = metadata.is_file() && metadata.uid() == rustix::process::geteuid().as_raw();
        if age > FRESH || !is_mine {
            return None;
        }
        let text = fs::read_to_string(path).ok()?;
        Some(text.split_terminator('\0').map(ToOwned::to_owned).collect())
    }

    /// Stores the names of a directory, and removes expired listings.
    pub(super) fn put(&self, key: u64, names: &[String]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        self.remove_expired()?;
        // Temporary files are readable by their owner only.
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        for name in names {
            file.write_all(name.as_bytes())?;
            file.write_all(b"\0")?;
        }
        file.persist(self.path(key))?;
        Ok(())
    }

    fn remove_expired(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let modified = entry.metadata()?.modified()?;
            if SystemTime::now().duration_since(modified).is_ok_and(|age| age > FRESH) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn path(&self, key: u64) -> PathBuf {
        self.directory.join(format!("{key:016x}"))
    }
}
