//! Requests by name: attributes, creating, removing, renaming, linking. Everything here blocks;
//! `session` runs it as short work (`WorkPool::submit_short`), and the removal of files on disk threads.

use std::os::fd::AsFd;

use haul_net::Jail;
use rustix::fs::{
    AtFlags, FileType, RenameFlags, linkat, mkdirat, renameat, renameat_with, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::files::{permissions, set_named, stat_vfs, stat_vfs_response};
use super::listing::{attrs, path_only};
use super::status::{Refusal, ok, status_response};
use crate::codec::{Extended, Request, Response, Status};

/// Whether a request by name changes something.
pub(super) const fn changes(request: &Request) -> bool {
    !matches!(
        request,
        Request::Lstat(_)
            | Request::Stat(_)
            | Request::Opendir(_)
            | Request::Realpath(_)
            | Request::Readlink(_)
            | Request::Extended(
                Extended::Statvfs(_) | Extended::ExpandPath(_) | Extended::CheckFileName { .. }
            )
    )
}

/// Executes a request by name that opens nothing.
pub(super) fn perform(jail: &Jail, request: &Request) -> Response {
    respond(jail, request).unwrap_or_else(|refusal| refusal.response())
}

fn respond(jail: &Jail, request: &Request) -> Result<Response, Refusal> {
    match request {
        Request::Lstat(path) => return Ok(Response::Attrs(attrs(&jail.stat(path, false)?))),
        Request::Stat(path) => return Ok(Response::Attrs(attrs(&jail.stat(path, true)?))),
        Request::Realpath(path) => return canonical(jail, path),
        Request::Readlink(path) => {
            return Ok(Response::Names(vec![path_only(jail.link_target(path)?)]));
        }
        Request::Extended(Extended::ExpandPath(path)) => return canonical(jail, at_home(path)?),
        Request::Extended(Extended::Statvfs(path)) => {
            let found = rustix::fs::fstatvfs(jail.locate(path, true)?)?;
            return Ok(stat_vfs_response(&stat_vfs(&found)));
        }
        Request::Setstat(path, attrs) => set_named(jail, path, true, attrs)?,
        Request::Extended(Extended::Lsetstat(path, attrs)) => {
            set_named(jail, path, false, attrs)?;
        }
        Request::Mkdir(path, attrs) => {
            let (directory, name) = jail.parent(path).map_err(as_existing)?;
            mkdirat(directory, name, permissions(attrs.permissions.unwrap_or(0o777)))?;
        }
        Request::Remove(path) => {
            let (directory, name) = jail.parent(path)?;
            unlinkat(directory, name, AtFlags::empty())?;
        }
        Request::Rmdir(path) => {
            let (directory, name) = jail.parent(path)?;
            unlinkat(directory, name, AtFlags::REMOVEDIR)?;
        }
        Request::Rename { from, to } => rename_new(jail, from, to)?,
        Request::Extended(Extended::PosixRename { from, to }) => {
            let ((from, old), (to, new)) = (jail.parent(from)?, jail.parent(to)?);
            renameat(from, old, to, new)?;
        }
        Request::Symlink { target, link } => {
            let (directory, name) = jail.parent(link).map_err(as_existing)?;
            symlinkat(&target[..], directory, name)?;
        }
        Request::Extended(Extended::Hardlink { from, to }) => {
            let ((from, old), (to, new)) = (jail.parent(from)?, jail.parent(to)?);
            linkat(from, old, to, new, AtFlags::empty())?;
        }
        _ => return Ok(status_response(Status::Unsupported, "Operation unsupported")),
    }
    Ok(ok())
}

fn canonical(jail: &Jail, path: &[u8]) -> Result<Response, Refusal> {
    Ok(Response::Names(vec![path_only(jail.canonical(path)?)]))
}

/// Expands `~`: the home directory is the served one. Other users have none.
fn at_home(path: &[u8]) -> Result<&[u8], Refusal> {
    match path {
        [b'~'] => Ok(b"/"),
        [b'~', b'/', ..] => Ok(&path[1..]),
        [b'~', ..] => Err(Refusal::Server(Status::Failure, "no such user")),
        _ => Ok(path),
    }
}

/// `/`, `.` and `..` exist, so they cannot be created.
fn as_existing(errno: Errno) -> Errno {
    if errno == Errno::BUSY { Errno::EXIST } else { errno }
}

/// Renames unless the new name exists.
fn rename_new(jail: &Jail, from: &[u8], to: &[u8]) -> rustix::io::Result<()> {
    let ((from, old), (to, new)) = (jail.parent(from)?, jail.parent(to)?);
    match renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
        // The file system cannot do this atomically.
        Err(Errno::INVAL | Errno::NOSYS) => rename_in_steps(from, old, to, new),
        outcome => outcome,
    }
}

/// [`rename_new`] as in OpenSSH: a hard link, which fails if the new name exists; where hard links are not possible,
/// a check and then a rename.
fn rename_in_steps(
    from: impl AsFd,
    old: &[u8],
    to: impl AsFd,
    new: &[u8],
) -> rustix::io::Result<()> {
    let stat = statat(&from, old, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        match linkat(&from, old, &to, new, AtFlags::empty()) {
            Ok(()) => {
                let removed = unlinkat(from, old, AtFlags::empty());
                if removed.is_err() {
                    // Errors are ignored: the failed removal of the old name is reported.
                    let _ = unlinkat(to, new, AtFlags::empty());
                }
                return removed;
            }
            Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::PERM | Errno::NOSYS) => {}
            Err(errno) => return Err(errno),
        }
    }
    match statat(&to, new, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => renameat(from, old, to, new),
        Ok(_) => Err(Errno::EXIST),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// Forbids or allows removing files from a directory; returns whether that worked. Modes do not bind root,
    /// so for root this sets or clears the directory's append-only attribute.
    fn forbid(directory: &Path, forbids: bool) -> bool {
        if rustix::process::geteuid().is_root() {
            let attribute = if forbids { "+a" } else { "-a" };
            let changed = Command::new("chattr").arg(attribute).arg(directory).output();
            return changed.is_ok_and(|changed| changed.status.success());
        }
        let mode = if forbids { 0o555 } else { 0o755 };
        fs::set_permissions(directory, fs::Permissions::from_mode(mode)).is_ok()
    }

    #[test]
    fn a_rename_in_steps_moves_the_name_and_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("old"), "old").unwrap();
        fs::write(path("there"), "there").unwrap();
        let fd = fs::File::open(directory.path()).unwrap();
        assert_eq!(rename_in_steps(&fd, b"old", &fd, b"there"), Err(Errno::EXIST));
        assert_eq!(rename_in_steps(&fd, b"old", &fd, b"new"), Ok(()));
        assert_eq!(fs::read(path("new")).unwrap(), b"old");
        assert!(!path("old").exists());
    }

    /// Regression: the file kept both names.
    #[test]
    fn a_rename_whose_old_name_cannot_be_removed_leaves_no_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join("old"), "old").unwrap();
        if !forbid(&from, true) {
            eprintln!("SKIPPED: chattr +a does not work here");
            return;
        }
        let (source, target) = (fs::File::open(&from).unwrap(), fs::File::open(&to).unwrap());
        let renamed = rename_in_steps(&source, b"old", &target, b"new");
        assert!(forbid(&from, false));
        renamed.unwrap_err();
        assert_eq!(fs::read(from.join("old")).unwrap(), b"old");
        assert!(!to.join("new").exists());
    }
}
