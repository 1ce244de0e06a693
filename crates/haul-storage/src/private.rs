//! Files with secrets, such as keys and cookies: accessible only to their owner (mode 0600), and written completely
//! before they get their names.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::part::{is_temporary_of, temporary_name, unique};

/// The age from which an unfinished file was left by a killed process: writing one takes milliseconds.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Creates a file, and its directories (mode 0700). Returns whether it was created: an existing file stays. If several
/// processes create it at once, the first one wins.
///
/// # Errors
/// Those of the file system.
pub fn create_private(path: &Path, content: &[u8]) -> io::Result<bool> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let unfinished = Unfinished::write(path, content)?;
    match fs::hard_link(&unfinished.0, path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates or replaces a file. Its directory must exist.
///
/// # Errors
/// Those of the file system.
pub fn replace_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let unfinished = Unfinished::write(path, content)?;
    fs::rename(&unfinished.0, path)
}

/// Checks that a file can be written beside `path`, as [`replace_private`] does.
///
/// # Errors
/// Those of the file system.
pub fn check_private(path: &Path) -> io::Result<()> {
    Unfinished::create(path).map(drop)
}

/// A file with a temporary name, which is removed when dropped.
struct Unfinished(PathBuf);

impl Unfinished {
    fn write(path: &Path, content: &[u8]) -> io::Result<Self> {
        let (mut file, unfinished) = Self::create(path)?;
        file.write_all(content)?;
        file.sync_all()?;
        Ok(unfinished)
    }

    fn create(path: &Path) -> io::Result<(File, Self)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_bytes();
        remove_abandoned(path, name);
        let temporary = temporary_name(name, &unique());
        let temporary = path.with_file_name(OsStr::from_bytes(&temporary));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
        Ok((file, Self(temporary)))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After a rename nothing is left to remove.
        drop(fs::remove_file(&self.0));
    }
}

/// Removes unfinished files of killed processes. Errors are ignored, since they do not prevent saving the file.
fn remove_abandoned(path: &Path, name: &[u8]) {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let Ok(entries) = fs::read_dir(directory.unwrap_or(Path::new("."))) else { return };
    for entry in entries.flatten() {
        if !is_temporary_of(entry.file_name().as_bytes(), name) {
            continue;
        }
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|modified| modified.elapsed().ok());
        if age.is_some_and(|age| age > ABANDONED) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::SystemTime;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_private_file_is_created_once_and_replaced_as_a_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/key");
        assert!(create_private(&path, b"first").unwrap());
        assert!(!create_private(&path, b"second").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"first");
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        check_private(&path).unwrap();
        replace_private(&path, b"third").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"third".to_vec(), 0o600));
        assert_eq!(names(path.parent().unwrap()), ["key"]);
        replace_private(&directory.path().join("none/key"), b"").unwrap_err();
        assert!(create_private(&path.join("below"), b"").is_err(), "its parent is a file");
    }

    #[test]
    fn unfinished_files_of_killed_processes_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let files = [
            (".key.1-a-0.haul-temp", 2),
            (".key.2-b-0.haul-temp", 0),
            (".key.old.1-a-0.haul-temp", 2),
            (".key.haul-temp", 2),
            ("key.1.new", 2),
        ];
        for (name, hours) in files {
            let file = File::create(directory.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - hours * ABANDONED).unwrap();
        }
        assert!(create_private(&path, b"key").unwrap());
        let mut left: Vec<&str> = files[1..].iter().map(|(name, _)| *name).collect();
        left.push("key");
        left.sort_unstable();
        assert_eq!(names(directory.path()), left);
    }
}
