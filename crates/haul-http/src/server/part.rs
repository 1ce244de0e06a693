//! Creates, opens and copies files. Everything here blocks.
//!
//! A part file, the server's own or one that haul writes as a client, is private (0600) until it is
//! renamed. Then it gets the mode of the file that it replaces, or the default mode after the
//! umask; a copy gets the mode of its source.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use dav_server::fs::OpenOptions;
use haul_net::Jail;
use haul_storage::{is_moving_name, is_part_name, temporary_name};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, Uid,
    copy_file_range, fchmod, fchown, fstat, futimens, ioctl_ficlone, openat, readlinkat, renameat,
    renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::{Errno, Result};

use super::described::Described;
use super::paths::trimmed;
use super::replacing::{Replacing, hold};
use super::share::Share;

const PRIVATE: Mode = Mode::from_raw_mode(0o600);

/// Opens a file for writing, without waiting for the reader of a pipe or acquiring a controlling terminal.
const WRITABLE: OFlags =
    OFlags::WRONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A file that does not have its final name yet.
#[derive(Debug)]
pub(super) struct Part {
    directory: OwnedFd,
    name: Vec<u8>,
    part: Vec<u8>,
    /// The mode that the file gets at the rename.
    mode: Mode,
    expected: Expected,
}

/// What must exist under the final name at the rename; otherwise the rename fails.
#[derive(Debug)]
enum Expected {
    Anything,
    Nothing,
    /// The version with this entity tag.
    Version(String),
}

impl Part {
    /// Creates the part file beside the final name. With `only`, only the version with this entity tag
    /// may be replaced, which is checked at the rename.
    pub(super) fn make(
        jail: &Jail,
        path: &[u8],
        options: &OpenOptions,
        only: Option<String>,
    ) -> Result<(File, Self)> {
        let (directory, name, old) = target(jail, path)?;
        match &old {
            Some(_) if options.create_new => return Err(Errno::EXIST),
            Some(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                return Err(Errno::EXIST);
            }
            Some(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Err(Errno::ACCESS);
            }
            None if !options.create => return Err(Errno::NOENT),
            _ => {}
        }
        let expected = match only {
            _ if options.create_new => Expected::Nothing,
            Some(tag) => Expected::Version(tag),
            None => Expected::Anything,
        };
        Self::beside((directory, &name), old.as_ref(), expected)
    }

    fn beside(
        (directory, name): (OwnedFd, &[u8]),
        old: Option<&Stat>,
        expected: Expected,
    ) -> Result<(File, Self)> {
        let part = part_beside(name)?;
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&directory, &part[..], flags, PRIVATE)?;
        if let Some(old) = old {
            owned_as(&file, old);
        }
        let mode = finished_mode(name, old);
        Ok((File::from(file), Self { directory, name: name.to_vec(), part, mode, expected }))
    }

    /// Sets the mode of `file`, which is this part file, and renames it. On failure, it is removed.
    pub(super) fn name(self, file: &File, replacing: &Replacing) -> Result<()> {
        if let Err(errno) = fchmod(file, self.mode) {
            self.remove();
            return Err(errno);
        }
        let (from, to) = ((&self.directory, &self.part[..]), (&self.directory, &self.name[..]));
        // Open until the lock is released, so that the blocks of the old file are freed after it.
        let _open = hold(&self.directory, &self.name);
        let _replacing = replacing.lock();
        let named = match &self.expected {
            Expected::Nothing => rename_new(from, to),
            Expected::Version(tag) if !has_tag(&self.directory, &self.name, tag) => {
                Err(Errno::EXIST)
            }
            Expected::Version(_) | Expected::Anything => renameat(from.0, from.1, to.0, to.1),
        };
        if named.is_err() {
            self.remove();
        }
        named
    }

    pub(super) fn remove(&self) {
        // If it does not exist any more, nothing is left to remove.
        let _ = unlinkat(&self.directory, &self.part[..], AtFlags::empty());
    }
}

/// Whether the entry of this name has this entity tag.
pub(super) fn has_tag(directory: impl AsFd, name: &[u8], tag: &str) -> bool {
    let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|stat| Described::new(&stat).etag() == tag)
}

/// The directory and the name of a file, and its stat if it exists.
type Target = (OwnedFd, Vec<u8>, Option<Stat>);

/// The file that a PUT to `path` creates or replaces. The target of a link is replaced, not the link.
fn target(jail: &Jail, path: &[u8]) -> Result<Target> {
    // With a slash at the end the kernel follows links.
    if !path.ends_with(b"/")
        && let Some(found) = found(jail, path)?
    {
        return Ok(found);
    }
    let path = jail.canonical(path)?;
    // If it has become a link meanwhile, it is refused like anything that is not a regular file.
    let (directory, name) = jail.parent(&path)?;
    let old = stat_of(&directory, name)?;
    Ok((directory, name.to_vec(), old))
}

/// The directory, the name and the stat of `path`, unless it is a link or has no name of its own.
fn found(jail: &Jail, path: &[u8]) -> Result<Option<Target>> {
    let (directory, name) = match jail.parent(path) {
        Err(Errno::BUSY) => return Ok(None),
        outcome => outcome?,
    };
    let old = stat_of(&directory, name)?;
    let is_link =
        old.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
    Ok((!is_link).then(|| (directory, name.to_vec(), old)))
}

/// The stat of a name in a directory; `None` if it does not exist.
fn stat_of(directory: &OwnedFd, name: &[u8]) -> Result<Option<Stat>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Gives a file the owner and group of `old`. Errors are ignored: only root can change the owner, and otherwise
/// the file belongs to the server's user.
fn owned_as(file: impl AsFd, old: &Stat) {
    let _ = fchown(file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
}

/// The mode of a file that gets `name`, which currently belongs to `old`.
fn finished_mode(name: &[u8], old: Option<&Stat>) -> Mode {
    match old {
        _ if is_part_name(name) => PRIVATE,
        Some(old) => Mode::from_raw_mode(old.st_mode & 0o777),
        None => Mode::from_raw_mode(0o666 & !umask()),
    }
}

/// The umask of the process; 0o077 if the system does not report it.
fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()).unwrap_or(0o077)
    })
}

/// Before a client renames its part file: gives it the owner and mode that a file of the new name
/// gets. Other files keep theirs, as do part files of another user. `keeps`: an existing file must
/// not be replaced.
pub(super) fn finish(
    (from, old): (impl AsFd, &[u8]),
    (to, new): (impl AsFd, &[u8]),
    keeps: bool,
) -> Result<()> {
    if !is_part_name(old) || is_moving_name(old) || is_part_name(new) {
        return Ok(());
    }
    let is_file = |stat: &Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let replaced = statat(to, new, AtFlags::SYMLINK_NOFOLLOW).ok().filter(is_file);
    if !is_file(&statat(&from, old, AtFlags::SYMLINK_NOFOLLOW)?) || (keeps && replaced.is_some()) {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let finished = openat(from, old, flags, Mode::empty()).and_then(|file| {
        if let Some(replaced) = &replaced {
            owned_as(&file, replaced);
        }
        fchmod(&file, finished_mode(new, replaced.as_ref()))
    });
    match finished {
        Err(Errno::ACCESS | Errno::PERM) => Ok(()),
        outcome => outcome,
    }
}

/// Opens a file for writing in place, or creates an empty one.
pub(super) fn in_place(jail: &Jail, path: &[u8], options: &OpenOptions) -> Result<File> {
    if !options.create_new {
        match existing(jail, path) {
            Err(Errno::NOENT) if options.create => {}
            outcome => return outcome,
        }
    }
    let (directory, name) = jail.parent(path)?;
    let flags = WRITABLE | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let mode = if is_part_name(name) { PRIVATE } else { Mode::from_raw_mode(0o666) };
    match openat(&directory, name, flags, mode) {
        // Created since, as by a request for another range of the same new file.
        Err(Errno::EXIST) if !options.create_new => existing(jail, path),
        outcome => Ok(File::from(outcome?)),
    }
}

/// Opens an existing regular file for writing; anything else is refused.
fn existing(jail: &Jail, path: &[u8]) -> Result<File> {
    match jail.resolve(path, WRITABLE) {
        Ok(file) => {
            let is_file = FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile;
            if is_file { Ok(File::from(file)) } else { Err(Errno::ACCESS) }
        }
        // A pipe without a reader.
        Err(Errno::NXIO) => Err(Errno::ACCESS),
        Err(errno) => Err(errno),
    }
}

/// Renames unless the new name exists.
pub(super) fn rename_new(
    (from, old): (impl AsFd, &[u8]),
    (to, new): (impl AsFd, &[u8]),
) -> Result<()> {
    match renameat_with(&from, old, &to, new, RenameFlags::NOREPLACE) {
        // The file system cannot do this atomically: check, then rename.
        Err(Errno::INVAL | Errno::NOSYS) => match statat(&to, new, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => renameat(from, old, to, new),
            Ok(_) => Err(Errno::EXIST),
            Err(errno) => Err(errno),
        },
        outcome => outcome,
    }
}

/// A unique name for a part file.
pub(super) fn part_beside(name: &[u8]) -> Result<Vec<u8>> {
    // Two clients may send the same file.
    let mut unique = [0; 8];
    aws_lc_rs::rand::fill(&mut unique).map_err(|_| Errno::IO)?;
    let unique = data_encoding::HEXLOWER.encode(&unique);
    Ok(temporary_name(name, &unique))
}

/// Whether a path names a symbolic link.
pub(super) fn is_link(jail: &Jail, path: &[u8]) -> Result<bool> {
    let kind = FileType::from_raw_mode(jail.stat(trimmed(path), false)?.st_mode);
    Ok(kind == FileType::Symlink)
}

/// Creates a link with the same target text. An existing entry is replaced atomically, unless the
/// link must be new (`is_new`). The target is not checked: the jail resolves links when they are
/// followed.
pub(super) fn copy_link(share: &Share, from: &[u8], to: &[u8], is_new: bool) -> Result<()> {
    let jail = &share.jail;
    let ((source, old), (target, new)) = (jail.parent(from)?, jail.parent(to)?);
    let words = readlinkat(source, old, Vec::new())?;
    let part = part_beside(new)?;
    symlinkat(&*words, &target, &part[..])?;
    let (from, to) = ((&target, &part[..]), (&target, new));
    let replacing = share.replacing.lock();
    let named = if is_new { rename_new(from, to) } else { renameat(from.0, from.1, to.0, to.1) };
    drop(replacing);
    if named.is_err() {
        // The temporary link is useless now.
        let _ = unlinkat(&target, &part[..], AtFlags::empty());
    }
    named
}

/// Copies a file with its mode and times. An existing file is replaced atomically, unless the copy
/// must be new (`is_new`).
pub(super) fn copy(share: &Share, from: &[u8], to: &[u8], is_new: bool) -> Result<()> {
    let jail = &share.jail;
    let source = jail.resolve(from, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = fstat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    let expected = if is_new { Expected::Nothing } else { Expected::Anything };
    let (target, mut part) = Part::beside(jail.parent(to)?, None, expected)?;
    part.mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    let copied = copy_content(&File::from(source), &target).and_then(|()| {
        let time = |tv_sec, nanoseconds: u64| Timespec {
            tv_sec,
            tv_nsec: i64::try_from(nanoseconds).unwrap_or(0),
        };
        futimens(
            &target,
            &Timestamps {
                last_access: time(stat.st_atime, stat.st_atime_nsec),
                last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
            },
        )
    });
    match copied {
        Ok(()) => part.name(&target, &share.replacing),
        Err(errno) => {
            part.remove();
            Err(errno)
        }
    }
}

fn copy_content(source: &File, target: &File) -> Result<()> {
    // A reflink copies nothing.
    if ioctl_ficlone(target, source).is_ok() {
        return Ok(());
    }
    const PIECE: usize = 64 << 20;
    let mut is_begun = false;
    loop {
        match copy_file_range(source, None, target, None, PIECE) {
            Ok(0) => return Ok(()),
            Ok(_) => is_begun = true,
            Err(Errno::INTR) => {}
            // Not supported by this file system: copy through memory.
            Err(_) if !is_begun => break,
            Err(errno) => return Err(errno),
        }
    }
    let (mut source, mut target) = (source, target);
    let copied = io::copy(&mut source, &mut target);
    copied.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use rustix::fs::{CWD, mknodat};

    use super::*;

    /// Regression: an entry that appeared between the first look and the creation was opened without a check.
    #[test]
    fn a_pipe_that_appears_during_the_opening_is_refused() {
        const ROUNDS: usize = 2000;
        let directory = tempfile::tempdir().unwrap();
        let [pipe, path] = ["pipe", "file"].map(|name| directory.path().join(name));
        mknodat(CWD, &pipe, FileType::Fifo, PRIVATE, 0).unwrap();
        // With a reader, the pipe can be opened for writing.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = openat(CWD, &pipe, flags, Mode::empty()).unwrap();
        let jail = Jail::open(directory.path()).unwrap();
        let options = OpenOptions { create: true, write: true, ..OpenOptions::default() };
        let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let reaches = |counter: &AtomicUsize, round| {
            while counter.load(Ordering::Acquire) < round {
                thread::yield_now();
            }
        };
        let mut wrong = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    reaches(&begun, round);
                    // Fails if the file was created first.
                    let _ = fs::hard_link(&pipe, &path);
                    done.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                // In the first round the file does not exist.
                let _ = fs::remove_file(&path);
                begun.store(round, Ordering::Release);
                match in_place(&jail, b"file", &options) {
                    Ok(file) if file.metadata().is_ok_and(|found| found.is_file()) => {}
                    Err(Errno::ACCESS) => {}
                    outcome => wrong.push(outcome),
                }
                reaches(&done, round);
            }
        });
        assert!(wrong.is_empty(), "{:?} and {} more", wrong[0], wrong.len() - 1);
        drop(reader);
    }
}
