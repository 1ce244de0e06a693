//! The path of the configuration file, and its atomic replacement.

use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::directories;

/// How long haul waits for the lock of another program. haul itself locks the file only while it writes.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The path of the configuration file, which need not exist.
#[derive(Debug, Clone)]
pub(crate) struct ConfigPath {
    pub(crate) path: PathBuf,
    pub(crate) named_by: NamedBy,
}

/// What determined the path of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// `--config`
    Option,
    /// `HAUL_CONFIG`
    Variable,
    /// Neither: it is the default path.
    Default,
}

/// The path of the configuration file: from `--config` (`named`), else from `HAUL_CONFIG`, else the default one.
/// `None` if the path is empty, which stands for no configuration, or if there is no default path
/// ([`directories::config`]).
pub(crate) fn config_path(named: Option<&Path>) -> Option<ConfigPath> {
    let option = named.map(|path| (path.to_owned(), NamedBy::Option));
    let variable =
        || env::var_os("HAUL_CONFIG").map(|name| (PathBuf::from(name), NamedBy::Variable));
    let default = || Some((directories::config()?.join("config.toml"), NamedBy::Default));
    let (path, named_by) = option.or_else(variable).or_else(default)?;
    (!path.as_os_str().is_empty()).then_some(ConfigPath { path, named_by })
}

/// The content of a file; `None` if it does not exist.
pub(crate) fn content(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::from_io("read", error).at(path.display())),
    }
}

/// Replaces the content of the file by `text` atomically, provided that it still is `before`. A symbolic link at
/// `path`, the file's mode and its owner are preserved. A new file is readable by its owner only.
///
/// # Errors
/// If the file is no longer `before`, or cannot be written. haul leaves it unchanged then.
pub(crate) fn replace(path: &Path, before: Option<&[u8]>, text: &str) -> Result<()> {
    let failed = |error: io::Error| Error::from_io("write", error).at(path.display());
    let target = target(path).map_err(failed)?;
    let directory = directory_of(&target);
    let changed = || {
        Error::new(ErrorKind::Changed, "write")
            .at(path.display())
            .because("another program changed it in the meantime")
            .hinting("run the same command again")
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    // From the comparison to the rename, so that of two runs of haul the second sees what the first has written.
    let lock = locked(&target).map_err(failed)?;
    if content(&target)?.as_deref() != before {
        return Err(changed());
    }
    let write = || -> io::Result<()> {
        // The temporary name does not end in .toml; its mode is 0600.
        let mut file = tempfile::Builder::new().prefix(".config.toml.").tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        if let Ok(old) = fs::metadata(&target) {
            let new = file.as_file().metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                // Not by its name: that would follow a link that another user may put in its place.
                fchown(file.as_file(), Some(old.uid()), Some(old.gid()))?;
            }
            file.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.as_file().sync_all()?;
        persist(file, &target, before.is_none())
    };
    let written = write();
    drop(lock);
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(changed()),
        written => written.map_err(failed),
    }
}

/// Syncs the directory, so that the last replacement of the file survives a power failure.
///
/// # Errors
/// If its directory cannot be synced. The file keeps its new content.
pub(crate) fn sync(path: &Path) -> Result<()> {
    let synced = target(path).and_then(|target| File::open(directory_of(&target))?.sync_all());
    synced.map_err(|error| {
        Error::from_io("sync", error)
            .at(path.display())
            .hinting("it is written, but a power failure may bring the old content back")
    })
}

fn directory_of(target: &Path) -> &Path {
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or(Path::new("."))
}

/// Locks a file until the returned handle is dropped. `None` if it does not exist, or its file system has no locks.
///
/// # Errors
/// If it cannot be opened, or another program holds the lock for longer than [`LOCK_WAIT`].
fn locked(target: &Path) -> io::Result<Option<File>> {
    let start = Instant::now();
    loop {
        let file = match File::open(target) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The process that held the lock may have replaced the file.
            Ok(()) if is_at(&file, target)? => return Ok(Some(file)),
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if start.elapsed() < LOCK_WAIT => {
                sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another program has locked it"));
            }
            Err(_) => return Ok(None),
        }
    }
}

/// Whether an open file is the one at `path`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives a file its name. With `is_new` it replaces no other, where the file system supports that: there was no file to
/// lock.
///
/// # Errors
/// `AlreadyExists` if there is a file of this name, and `is_new`.
fn persist(file: NamedTempFile, target: &Path, is_new: bool) -> io::Result<()> {
    let file = match is_new {
        true => match file.persist_noclobber(target) {
            Ok(_) => return Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(error.error);
            }
            // The file system may have neither hard links nor such a rename.
            Err(error) => error.file,
        },
        false => file,
    };
    file.persist(target).map(drop).map_err(|error| error.error)
}

/// The path of the file to replace, with symbolic links resolved. It need not exist.
///
/// # Errors
/// If it is a directory, a device, or anything else but a regular file, or there are too many symbolic links.
pub(crate) fn target(path: &Path) -> io::Result<PathBuf> {
    let target = resolve_links(path)?;
    match fs::symlink_metadata(&target) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => Err(io::Error::other("it is not a regular file")),
        _ => Ok(target),
    }
}

/// Follows symbolic links at `path`; unlike `canonicalize`, it accepts a file that does not exist.
fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    // The kernel's own limit (MAXSYMLINKS).
    const MAX_LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..=MAX_LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("/")).join(to),
            // It is not a link, or does not exist.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// Formerly, the fortieth was not followed.
    #[test]
    fn as_many_links_are_followed_as_the_kernel_follows() {
        let directory = tempfile::tempdir().unwrap();
        let path = |number: usize| directory.path().join(number.to_string());
        fs::write(path(0), "a").unwrap();
        (1..=41).for_each(|at| std::os::unix::fs::symlink(path(at - 1), path(at)).unwrap());
        assert_eq!(
            (resolve_links(&path(40)).unwrap(), fs::read(path(40)).unwrap()),
            (path(0), b"a".to_vec())
        );
        assert!(resolve_links(&path(41)).is_err() && fs::read(path(41)).is_err());
    }

    #[test]
    fn a_new_file_is_private_and_an_old_one_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("haul/config.toml");
        replace(&path, None, "a").unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        replace(&path, Some(b"a"), "b").unwrap();
        assert_eq!((mode(&path), fs::read(&path).unwrap()), (0o644, b"b".to_vec()));
    }

    #[test]
    fn the_target_of_a_link_is_replaced_and_not_the_link() {
        let directory = tempfile::tempdir().unwrap();
        let [link, file] = ["config.toml", "real.toml"].map(|name| directory.path().join(name));
        std::os::unix::fs::symlink("real.toml", &link).unwrap();
        replace(&link, None, "a").unwrap();
        replace(&link, Some(b"a"), "b").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"b");
    }

    /// Formerly, `haul --config /dev/null config add` replaced the device by a file when run as root.
    #[test]
    fn a_device_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("config.toml");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(target(&link).is_err() && target(directory.path()).is_err());
        assert!(replace(&link, Some(b""), "a").is_err());
    }

    /// Formerly, two runs could both compare the file before either of them renamed its new one.
    #[test]
    fn no_change_is_lost_when_several_write_at_once() {
        const WRITERS: usize = 4;
        const CHANGES: usize = 8;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        let append = |line: String| {
            loop {
                let before = content(&path).unwrap();
                let text = String::from_utf8(before.clone().unwrap_or_default()).unwrap() + &line;
                match replace(&path, before.as_deref(), &text) {
                    Ok(()) => return,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Changed, "{error}"),
                }
            }
        };
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    (0..CHANGES).for_each(|change| append(format!("{writer}.{change}\n")));
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), WRITERS * CHANGES, "{text}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_concurrent_change_of_the_file_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        fs::write(&path, "theirs").unwrap();
        let error = replace(&path, Some(b"before"), "ours").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
