//! What is done by name: describing, making, removing, renaming, linking. Everything here blocks;
//! `session` moves it to the disk threads.

use std::os::fd::AsFd;

use haul_net::Jail;
use rustix::fs::{
    AtFlags, FileType, RenameFlags, linkat, mkdirat, renameat, renameat_with, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::files::{permissions, set_named, stat_vfs, stat_vfs_response};
use super::listing::{attrs, path_only};
use super::status::{Refusal, ok, said};
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

/// Does a request that names everything it needs.
pub(super) fn perform(jail: &Jail, request: &Request) -> Response {
    answer(jail, request).unwrap_or_else(|refusal| refusal.response())
}

fn answer(jail: &Jail, request: &Request) -> Result<Response, Refusal> {
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
            let (directory, name) = jail.parent(path).map_err(there_already)?;
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
            let (directory, name) = jail.parent(link).map_err(there_already)?;
            symlinkat(&target[..], directory, name)?;
        }
        Request::Extended(Extended::Hardlink { from, to }) => {
            let ((from, old), (to, new)) = (jail.parent(from)?, jail.parent(to)?);
            linkat(from, old, to, new, AtFlags::empty())?;
        }
        _ => return Ok(said(Status::Unsupported, "Operation unsupported")),
    }
    Ok(ok())
}

fn canonical(jail: &Jail, path: &[u8]) -> Result<Response, Refusal> {
    Ok(Response::Names(vec![path_only(jail.canonical(path)?)]))
}

/// A path with `~` for the home directory, which is the served one; nobody else has one here.
fn at_home(path: &[u8]) -> Result<&[u8], Refusal> {
    match path {
        [b'~'] => Ok(b"/"),
        [b'~', b'/', ..] => Ok(&path[1..]),
        [b'~', ..] => Err(Refusal::Server(Status::Failure, "no such user")),
        _ => Ok(path),
    }
}

/// `/`, `.` and `..` cannot be made because they are there.
fn there_already(errno: Errno) -> Errno {
    if errno == Errno::BUSY { Errno::EXIST } else { errno }
}

/// Renames unless something has the new name.
fn rename_new(jail: &Jail, from: &[u8], to: &[u8]) -> rustix::io::Result<()> {
    let ((from, old), (to, new)) = (jail.parent(from)?, jail.parent(to)?);
    match renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
        // A file system that cannot do it in one step.
        Err(Errno::INVAL | Errno::NOSYS) => rename_in_steps(from, old, to, new),
        outcome => outcome,
    }
}

/// The same as OpenSSH does it: a further name for a file, which fails if it is taken; for what
/// cannot have two, a look before.
fn rename_in_steps(
    from: impl AsFd,
    old: &[u8],
    to: impl AsFd,
    new: &[u8],
) -> rustix::io::Result<()> {
    let stat = statat(&from, old, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        match linkat(&from, old, &to, new, AtFlags::empty()) {
            Ok(()) => return unlinkat(from, old, AtFlags::empty()),
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
