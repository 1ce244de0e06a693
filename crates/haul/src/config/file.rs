//! The path of the configuration file, and its atomic replacement.

use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use haul_storage::{Error, ErrorKind, Result};

use crate::directories;

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
/// `None` if that is empty, which stands for no configuration, or if no home directory is known.
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
/// If the file has changed since, or cannot be written. It is unchanged then.
pub(crate) fn replace(path: &Path, before: Option<&[u8]>, text: &str) -> Result<()> {
    let failed = |error: io::Error| Error::from_io("write", error).at(path.display());
    let target = target(path).map_err(failed)?;
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    if content(&target)?.as_deref() != before {
        return Err(Error::new(ErrorKind::Changed, "write")
            .at(path.display())
            .because("another program changed it in the meantime")
            .hinting("run the same command again"));
    }
    let write = || -> io::Result<()> {
        // The temporary name does not end in .toml; its mode is 0600.
        let mut file = tempfile::Builder::new().prefix(".config.toml.").tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        if let Ok(old) = fs::metadata(&target) {
            let new = file.as_file().metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                // Not by its name: that would follow a link that another user may put there.
                fchown(file.as_file(), Some(old.uid()), Some(old.gid()))?;
            }
            file.as_file().set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.as_file().sync_all()?;
        file.persist(&target).map_err(|error| error.error)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(failed)
}

/// The path of the file to replace, with symbolic links resolved. It need not exist.
///
/// # Errors
/// If it is a directory, a device, or anything else but a regular file.
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
    for _ in 0..MAX_LINKS {
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

    /// As root, `--config /dev/null config add` replaced the device by a file.
    #[test]
    fn a_device_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("config.toml");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(target(&link).is_err() && target(directory.path()).is_err());
        assert!(replace(&link, Some(b""), "a").is_err());
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
