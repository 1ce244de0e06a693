//! Confines clients to the served directory.
//!
//! A client's path is resolved by `openat2` with `RESOLVE_IN_ROOT`: the kernel treats the directory
//! as `/`, in one step, so that neither `..`, nor an absolute link, nor a link created at the wrong
//! moment leads out. Operations that change a name open its directory in this way, and then act on
//! the last component without following it.
//!
//! A jail may also have *items*, files and directories from anywhere: then the first component of a path names one of
//! them, and the rest is resolved in it in the same way.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use haul_storage::{Error, ErrorKind};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat};
use rustix::io::{Errno, Result};

/// The longest path: the kernel's `PATH_MAX`.
pub const PATH_MAX: usize = 4096;

/// Maximum attempts to resolve a path when concurrent renames make the kernel return EAGAIN.
const RACES: usize = 16;

/// A directory that clients' paths cannot leave.
#[derive(Debug)]
pub struct Jail {
    root: OwnedFd,
    items: Vec<Item>,
}

/// A file or directory from anywhere, with a name of its own at the root.
#[derive(Debug)]
struct Item {
    name: Vec<u8>,
    /// The item itself if it is a directory, otherwise the directory of the file.
    directory: OwnedFd,
    /// The name of the file in `directory`; `None` if the item is a directory.
    file: Option<Vec<u8>>,
}

impl Jail {
    /// Opens the directory.
    ///
    /// # Errors
    /// If it is not a directory, or the system has no `openat2`.
    pub fn open(directory: &Path) -> haul_storage::Result<Self> {
        let failed = |errno: Errno| Error::from_io("serve", errno.into()).at(directory.display());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, directory, flags, Mode::empty()).map_err(failed)?;
        let jail = Self { root, items: Vec::new() };
        match jail.resolve(b"/", OFlags::PATH) {
            Ok(_) => Ok(jail),
            Err(Errno::NOSYS | Errno::PERM) => {
                Err(Error::new(ErrorKind::Unsupported, "serve").at(directory.display()).because(
                    "this system has no openat2 (Linux 5.6), which keeps clients in the directory",
                ))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Shows items, each given by its name and its canonical path, at the root. The served directory must contain a
    /// symbolic link of that name (with any target) for each item, and nothing else. Without items, the jail does not
    /// change. Nothing can be added to the root, and items can be neither renamed nor removed.
    ///
    /// # Errors
    /// If an item cannot be opened.
    pub fn with_items(mut self, items: Vec<(Vec<u8>, PathBuf)>) -> haul_storage::Result<Self> {
        for (name, path) in items {
            let failed = |errno: Errno| Error::from_io("serve", errno.into()).at(path.display());
            let open = |directory: &Path| {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                openat(CWD, directory, flags, Mode::empty())
            };
            let (directory, file) = match (open(&path), path.parent(), path.file_name()) {
                (Err(Errno::NOTDIR), Some(parent), Some(file)) => {
                    (open(parent), Some(file.as_bytes().to_vec()))
                }
                (opened, ..) => (opened, None),
            };
            let directory = directory.map_err(failed)?;
            self.items.push(Item { name, directory, file });
        }
        Ok(self)
    }

    /// Whether a path is the root of a jail with items, or an entry of it. Nothing can be added, renamed or removed
    /// there.
    pub fn is_fixed(&self, path: &[u8]) -> bool {
        !self.items.is_empty() && components(path).count() < 2
    }

    /// Opens an existing path, following links that stay inside.
    ///
    /// # Errors
    /// Those of `openat2`.
    pub fn resolve(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        self.open_as(path, flags, 0)
    }

    /// Like [`Jail::resolve`], with permissions `mode` for a file that `flags` may create.
    ///
    /// # Errors
    /// Those of `openat2`.
    pub fn open_as(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<OwnedFd> {
        if path.len() > PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let (root, path, links) = self.base(path)?;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | links;
        for _ in 0..RACES {
            match openat2(root, path, flags | OFlags::CLOEXEC, mode, resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return outcome,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The directory in which a path is resolved, the path relative to it, and whether links are refused.
    fn base<'a>(&'a self, path: &'a [u8]) -> Result<(BorrowedFd<'a>, &'a [u8], ResolveFlags)> {
        // `dav-server` passes an empty path as the parent of entries at the root.
        let or_top = |path: &'a [u8]| if path.is_empty() { &b"."[..] } else { path };
        let Some(first) = components(path).next().filter(|_| !self.items.is_empty()) else {
            return Ok((self.root.as_fd(), or_top(path), ResolveFlags::empty()));
        };
        let start = path.iter().position(|byte| *byte != b'/').unwrap_or_default();
        let rest = &path[start + first.len()..];
        let item = self.items.iter().find(|item| item.name == first).ok_or(Errno::NOENT)?;
        match &item.file {
            None => {
                let rest = rest.iter().position(|byte| *byte != b'/').map(|at| &rest[at..]);
                Ok((
                    item.directory.as_fd(),
                    or_top(rest.unwrap_or_default()),
                    ResolveFlags::empty(),
                ))
            }
            Some(file) if rest.is_empty() => {
                Ok((item.directory.as_fd(), file.as_slice(), ResolveFlags::NO_SYMLINKS))
            }
            Some(_) => Err(Errno::NOTDIR),
        }
    }

    /// An O_PATH descriptor of a path. Without `follow`, the descriptor of a link is that of the link
    /// itself, unless the path ends with a slash: the kernel then follows links anyway.
    ///
    /// # Errors
    /// Those of `openat2`.
    pub fn locate(&self, path: &[u8], follow: bool) -> Result<OwnedFd> {
        let nofollow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        self.resolve(path, OFlags::PATH | nofollow)
    }

    /// Stats a path; links are treated as by [`Jail::locate`].
    ///
    /// # Errors
    /// Those of `openat2`.
    pub fn stat(&self, path: &[u8], follow: bool) -> Result<Stat> {
        fstat(self.locate(path, follow)?)
    }

    /// The directory of a path's last component, and that component.
    ///
    /// # Errors
    /// Those of `openat2`; `BUSY` for `/`, `.` and `..`, which cannot be created, removed or renamed;
    /// `ACCESS` at the root of a jail with items.
    pub fn parent<'a>(&self, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8])> {
        let (directory, name) = split(path);
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::BUSY);
        }
        if self.is_fixed(path) {
            return Err(Errno::ACCESS);
        }
        let directory = self.resolve(directory, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok((directory, name))
    }

    /// A path without links, `.` and `..`, as the client sees it. Its last component need not exist, and may be a link
    /// to nothing.
    ///
    /// # Errors
    /// Those of `openat2`; `ACCESS` if it is no longer inside the directory, or does not exist at the root of a jail
    /// with items.
    pub fn canonical(&self, path: &[u8]) -> Result<Vec<u8>> {
        match self.locate(path, true) {
            Ok(found) => self.name_of(found.as_fd()),
            Err(Errno::NOENT) => {
                let (directory, name) = match self.parent(path) {
                    Err(Errno::BUSY) => return Err(Errno::NOENT),
                    outcome => outcome?,
                };
                let mut whole = self.name_of(directory.as_fd())?;
                if whole != b"/" {
                    whole.push(b'/');
                }
                whole.extend_from_slice(name);
                Ok(whole)
            }
            Err(errno) => Err(errno),
        }
    }

    /// The target of a link. A target that begins with the local path of the served directory is
    /// shown as the client sees it.
    ///
    /// # Errors
    /// `INVAL` if it is no link; those of `openat2` and `readlinkat`.
    pub fn link_target(&self, path: &[u8]) -> Result<Vec<u8>> {
        let link = self.locate(path, false)?;
        // For anything but a link, an empty path gives EINVAL or ENOENT.
        let target = match readlinkat(&link, c"", Vec::new()) {
            Err(Errno::NOENT) => return Err(Errno::INVAL),
            outcome => outcome?.into_bytes(),
        };
        let root = system_path(self.root.as_fd())?;
        Ok(within(&root, &target).filter(|_| root != b"/").unwrap_or(target))
    }

    /// The path of a descriptor as the client sees it; `ACCESS` if it is no longer inside the
    /// directory.
    fn name_of(&self, found: BorrowedFd<'_>) -> Result<Vec<u8>> {
        let root = system_path(self.root.as_fd())?;
        let path = system_path(found)?;
        for item in &self.items {
            let inside = within(&system_path(item.directory.as_fd())?, &path);
            let inside = inside.as_deref().and_then(|inside| inside.strip_prefix(b"/"));
            let name = [&b"/"[..], item.name.as_slice()].concat();
            match (inside, &item.file) {
                (Some(b""), None) => return Ok(name),
                (Some(inside), None) => return Ok([name.as_slice(), &b"/"[..], inside].concat()),
                (Some(inside), Some(file)) if inside == file => return Ok(name),
                _ => {}
            }
        }
        within(&root, &path).ok_or(Errno::ACCESS)
    }
}

/// A path that names exactly what a descriptor refers to, for calls that do not take descriptors.
pub fn proc_path(found: impl AsFd) -> String {
    format!("/proc/self/fd/{}", found.as_fd().as_raw_fd())
}

fn system_path(found: BorrowedFd<'_>) -> Result<Vec<u8>> {
    Ok(readlinkat(CWD, proc_path(found), Vec::new())?.into_bytes())
}

/// `path` as seen from `root`; `None` if it is neither `root` nor below it.
fn within(root: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    if root == b"/" {
        return path.starts_with(b"/").then(|| path.to_vec());
    }
    match path.strip_prefix(root)? {
        b"" => Some(b"/".to_vec()),
        rest if rest[0] == b'/' => Some(rest.to_vec()),
        _ => None,
    }
}

/// The components of a path.
fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|component| !component.is_empty())
}

/// Splits a path into directory and last component.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = &path[..end];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_at_its_last_component() {
        let cases: [(&[u8], &[u8], &[u8]); 7] = [
            (b"a", b".", b"a"),
            (b"/a", b"/", b"a"),
            (b"/a/b//", b"/a", b"b"),
            (b"a/../b", b"a/..", b"b"),
            (b"/", b".", b""),
            (b"", b".", b""),
            (b"a/..", b"a", b".."),
        ];
        for (path, directory, name) in cases {
            assert_eq!(split(path), (directory, name));
        }
    }

    #[test]
    fn items_are_confined_and_nothing_is_added_beside_them() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().canonicalize().unwrap().join(name);
        for name in ["root", "photos/deep", "docs"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["photos/deep/a", "docs/list", "docs/secret"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::os::unix::fs::symlink("/docs/secret", at("photos/out")).unwrap();
        let items = vec![(b"pictures".to_vec(), at("photos")), (b"list".to_vec(), at("docs/list"))];
        for (name, _) in &items {
            let name = std::str::from_utf8(name).unwrap();
            std::os::unix::fs::symlink(".", at("root").join(name)).unwrap();
        }
        let jail = Jail::open(&at("root")).unwrap().with_items(items).unwrap();
        let read = |path: &str| {
            let file = jail.resolve(path.as_bytes(), OFlags::RDONLY)?;
            std::io::read_to_string(std::fs::File::from(file)).map_err(|_| Errno::IO)
        };
        assert_eq!(read("/pictures/deep/a").unwrap(), "photos/deep/a");
        assert_eq!(read("//list").unwrap(), "docs/list");
        for outside in ["/photos/deep/a", "/secret", "/pictures/out", "/pictures/../list/.."] {
            assert!(read(outside).is_err(), "{outside}");
        }
        assert_eq!(read("/list/x"), Err(Errno::NOTDIR));
        assert!(jail.stat(b"/pictures/", true).is_ok() && jail.stat(b"/", true).is_ok());
        for fixed in ["/new", "/list", "/pictures", "/pictures/"] {
            assert_eq!(jail.parent(fixed.as_bytes()).unwrap_err(), Errno::ACCESS, "{fixed}");
        }
        let (parent, name) = jail.parent(b"/pictures/new").unwrap();
        assert_eq!(
            (jail.name_of(parent.as_fd()).unwrap(), name),
            (b"/pictures".to_vec(), &b"new"[..])
        );
        for path in ["/pictures/deep/a", "/list", "/"] {
            assert_eq!(jail.canonical(path.as_bytes()).unwrap(), path.as_bytes());
        }
    }

    #[test]
    fn only_paths_below_the_root_are_within_it() {
        assert_eq!(within(b"/srv", b"/srv").unwrap(), b"/");
        assert_eq!(within(b"/srv", b"/srv/a").unwrap(), b"/a");
        assert_eq!(within(b"/srv", b"/srvx"), None);
        assert_eq!(within(b"/srv", b"/"), None);
        assert_eq!(within(b"/", b"/a").unwrap(), b"/a");
    }
}
