//! Where the file is, and how it is replaced: as a whole, or not at all.

use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use haul_storage::{Error, ErrorKind, Result};

/// The file that is read, whether it exists or not.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Where.
    pub(crate) path: PathBuf,
    /// Who says so.
    pub(crate) named_by: NamedBy,
}

/// Who says which file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// `--config`
    Option,
    /// `HAUL_CONFIG`
    Variable,
    /// Nobody: it is the usual one.
    Nobody,
}

/// The file that `--config` names, or else `HAUL_CONFIG`, or else the usual one. `None`: an empty name stands
/// for no configuration; and there may be no home.
pub(crate) fn place(named: Option<&Path>) -> Option<Place> {
    let option = named.map(|path| (path.to_owned(), NamedBy::Option));
    let variable =
        || env::var_os("HAUL_CONFIG").map(|name| (PathBuf::from(name), NamedBy::Variable));
    let usual = || usual().map(|path| (path, NamedBy::Nobody));
    let (path, named_by) = option.or_else(variable).or_else(usual)?;
    (!path.as_os_str().is_empty()).then_some(Place { path, named_by })
}

fn usual() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(directory.join("haul/config.toml"))
}

/// What is in a file; `None` if there is none.
pub(crate) fn content(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::from_io("read", error).at(path.display())),
    }
}

/// Replaces the file by `text` in one step, if it still has `before` in it. A link to it stays; so do its mode
/// and its owner. A new file is for its owner alone.
///
/// # Errors
/// It has changed meanwhile, or it cannot be written; then it is as it was.
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
        // Its name does not end in .toml, and its mode is 0600.
        let mut file = tempfile::Builder::new().prefix(".config.toml.").tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        if let Ok(old) = fs::metadata(&target) {
            let new = file.as_file().metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                // By its name, a link that another user puts there would be followed.
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

/// The file that a path leads to and that may be replaced, whether it exists or not.
///
/// # Errors
/// It is a device, a directory, or another thing that is no file.
pub(crate) fn target(path: &Path) -> io::Result<PathBuf> {
    let target = behind_links(path)?;
    match fs::symlink_metadata(&target) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => Err(io::Error::other("it is not a regular file")),
        _ => Ok(target),
    }
}

/// The file that a path leads to, whether it exists or not.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    const LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("/")).join(to),
            // No link, or nothing at all.
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
    fn a_link_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let [link, file] = ["config.toml", "real.toml"].map(|name| directory.path().join(name));
        std::os::unix::fs::symlink("real.toml", &link).unwrap();
        replace(&link, None, "a").unwrap();
        replace(&link, Some(b"a"), "b").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"b");
    }

    /// As root, `--config /dev/null config add` put a file in the place of the device.
    #[test]
    fn a_device_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("config.toml");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(target(&link).is_err() && target(directory.path()).is_err());
        assert!(replace(&link, Some(b""), "a").is_err());
    }

    #[test]
    fn what_somebody_else_has_written_meanwhile_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        fs::write(&path, "theirs").unwrap();
        let error = replace(&path, Some(b"before"), "ours").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed);
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
