//! Files that are written.
//!
//! A whole file grows under a name of its own and gets the one it is meant for when all of it is there:
//! an upload that breaks off leaves nothing behind. What goes to an offset is written in place; many may
//! do so at once.
//!
//! ```text
//! pieces as they arrive → gathered to half a MiB → disk threads, a few at once → flushed: named
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use dav_server::fs::{DavFile, DavMetaData, FsError, FsFuture, FsResult, OpenOptions};
use haul_storage::part_name;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, copy_file_range, fchmod,
    fchown, fstat, futimens, ioctl_ficlone, openat, renameat, unlinkat,
};
use rustix::io::{Errno, Result};
use tokio::sync::oneshot::{Receiver, channel};

use super::described::Described;
use super::jail::Jail;
use super::limits;
use super::proppatch::modified;
use super::refusal::{fs_error, io_error};
use super::share::Share;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Upload {
    share: Arc<Share>,
    file: Arc<File>,
    /// The part file, until it has its name.
    part: Option<Part>,
    /// How long it is said to be, if it is a whole one.
    size: Option<u64>,
    /// The time that it is to have.
    modified: Option<SystemTime>,
    /// Whether it goes on where the file ends, whatever else is said.
    appends: bool,
    /// Where what is gathered goes.
    offset: u64,
    gathered: Vec<Bytes>,
    length: usize,
    writes: VecDeque<Receiver<io::Result<()>>>,
}

impl Upload {
    /// Opens or makes a file.
    pub(super) async fn open(
        share: &Arc<Share>,
        path: &[u8],
        options: OpenOptions,
        modified: Option<SystemTime>,
    ) -> FsResult<Self> {
        let (inside, path) = (Arc::clone(share), path.to_vec());
        let (appends, size) = (options.append, options.size.filter(|_| options.truncate));
        let opened = share.pool.run(move || {
            let (file, part) = match options.truncate {
                true => Part::make(&inside.jail, &path, &options)
                    .map(|(file, part)| (file, Some(part)))?,
                false => (in_place(&inside.jail, &path, &options)?, None),
            };
            let end = u64::try_from(fstat(&file)?.st_size).unwrap_or(0);
            Ok::<_, Errno>((file, part, end))
        });
        let (file, part, end) = opened.await.map_err(fs_error)?;
        Ok(Self {
            share: Arc::clone(share),
            file: Arc::new(file),
            part,
            size,
            modified,
            appends,
            offset: if appends { end } else { 0 },
            gathered: Vec::new(),
            length: 0,
            writes: VecDeque::new(),
        })
    }

    async fn write(&mut self, piece: Bytes) -> FsResult<()> {
        self.length += piece.len();
        self.gathered.push(piece);
        if self.length >= limits::WRITE {
            self.submit().await;
        }
        while self.writes.len() >= limits::WRITES {
            self.wait().await?;
        }
        Ok(())
    }

    /// Has what is gathered written.
    async fn submit(&mut self) {
        // The semaphore is never closed.
        let place = Arc::clone(&self.share.writes).acquire_owned().await;
        let (file, offset) = (Arc::clone(&self.file), self.offset);
        let pieces = std::mem::take(&mut self.gathered);
        self.offset += self.length as u64;
        self.length = 0;
        let (sender, receiver) = channel();
        self.share.pool.submit(move || {
            // Nobody waits for it if the upload broke off.
            drop(sender.send(write_all(&file, &pieces, offset)));
            drop((pieces, place));
        });
        self.writes.push_back(receiver);
    }

    /// Waits for the oldest write.
    async fn wait(&mut self) -> FsResult<()> {
        let Some(oldest) = self.writes.pop_front() else { return Ok(()) };
        match oldest.await {
            Ok(outcome) => outcome.map_err(|error| io_error(&error)),
            // A thread that did not answer has met a panic.
            Err(_) => Err(FsError::GeneralFailure),
        }
    }

    async fn finish(&mut self) -> FsResult<()> {
        if !self.gathered.is_empty() {
            self.submit().await;
        }
        while !self.writes.is_empty() {
            self.wait().await?;
        }
        if self.part.is_some() && self.size.is_some_and(|size| size != self.offset) {
            // It is answered as what it is by `dav-server`, which counts as well.
            return Err(FsError::GeneralFailure);
        }
        let (file, part, time) = (Arc::clone(&self.file), self.part.take(), self.modified);
        let done = self.share.pool.run(move || {
            if let Some(time) = time {
                futimens(&file, &modified(time))?;
            }
            part.map_or(Ok(()), Part::name)
        });
        done.await.map_err(fs_error)
    }
}

impl DavFile for Upload {
    fn metadata(&'_ mut self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let file = Arc::clone(&self.file);
        Box::pin(async move {
            let described = self.share.pool.run(move || fstat(&file)).await;
            let described = described.map(|stat| Described::new(&stat)).map_err(fs_error)?;
            Ok(Box::new(described) as Box<dyn DavMetaData>)
        })
    }

    fn write_buf(&'_ mut self, mut buffer: Box<dyn Buf + Send>) -> FsFuture<'_, ()> {
        let piece = buffer.copy_to_bytes(buffer.remaining());
        Box::pin(self.write(piece))
    }

    fn write_bytes(&'_ mut self, piece: Bytes) -> FsFuture<'_, ()> {
        Box::pin(self.write(piece))
    }

    fn read_bytes(&'_ mut self, _: usize) -> FsFuture<'_, Bytes> {
        Box::pin(async { Err(FsError::NotImplemented) })
    }

    fn seek(&'_ mut self, position: SeekFrom) -> FsFuture<'_, u64> {
        match position {
            SeekFrom::Start(offset) if !self.appends => self.offset = offset,
            _ => {}
        }
        let offset = self.offset;
        Box::pin(async move { Ok(offset) })
    }

    fn flush(&'_ mut self) -> FsFuture<'_, ()> {
        Box::pin(self.finish())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            self.share.pool.submit(move || part.remove());
        }
    }
}

fn write_all(file: &File, pieces: &[Bytes], mut offset: u64) -> io::Result<()> {
    for piece in pieces {
        file.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// A file that does not have its name yet.
#[derive(Debug)]
struct Part {
    directory: OwnedFd,
    name: Vec<u8>,
    part: Vec<u8>,
}

impl Part {
    /// Makes it beside the file that it is to become, as readable to others as that was.
    fn make(jail: &Jail, path: &[u8], options: &OpenOptions) -> Result<(File, Self)> {
        // What a link leads to is replaced, and not the link.
        let path = jail.canonical(path)?;
        let old = match jail.stat(&path, false) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
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
        Self::beside(jail, &path, old.as_ref())
    }

    fn beside(jail: &Jail, path: &[u8], old: Option<&Stat>) -> Result<(File, Self)> {
        let (directory, name) = jail.parent(path)?;
        // Two may be sending the same file.
        let mut unique = [0; 8];
        aws_lc_rs::rand::fill(&mut unique).map_err(|_| Errno::IO)?;
        let unique = data_encoding::HEXLOWER.encode(&unique);
        let part = part_name(&[name, b".", unique.as_bytes()].concat());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&directory, &part[..], flags, Mode::from_raw_mode(0o666))?;
        let made = Self { directory, name: name.to_vec(), part };
        if let Some(old) = old {
            // Only root may give a file away; for others it has been theirs.
            let _ = fchown(&file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)));
            if let Err(errno) = fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o777)) {
                made.remove();
                return Err(errno);
            }
        }
        Ok((File::from(file), made))
    }

    /// Gives it its name.
    fn name(self) -> Result<()> {
        let named = renameat(&self.directory, &self.part[..], &self.directory, &self.name[..]);
        if named.is_err() {
            self.remove();
        }
        named
    }

    fn remove(&self) {
        // If it is gone there is nothing to remove.
        let _ = unlinkat(&self.directory, &self.part[..], AtFlags::empty());
    }
}

/// Opens a file to be written in place, or makes an empty one.
fn in_place(jail: &Jail, path: &[u8], options: &OpenOptions) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if !options.create_new {
        match jail.resolve(path, flags) {
            Ok(file) => {
                let is_file =
                    FileType::from_raw_mode(fstat(&file)?.st_mode) == FileType::RegularFile;
                return if is_file { Ok(File::from(file)) } else { Err(Errno::ACCESS) };
            }
            // A pipe that nobody reads.
            Err(Errno::NXIO) => return Err(Errno::ACCESS),
            Err(Errno::NOENT) if options.create => {}
            Err(errno) => return Err(errno),
        }
    }
    let (directory, name) = jail.parent(path)?;
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    match openat(&directory, name, flags, Mode::from_raw_mode(0o666)) {
        // Another range of the same new file was faster.
        Err(Errno::EXIST) if !options.create_new => {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
            Ok(File::from(jail.resolve(path, flags)?))
        }
        outcome => Ok(File::from(outcome?)),
    }
}

/// Copies a file with its mode and time; what is under the new name is replaced in one step.
pub(super) fn copy(jail: &Jail, from: &[u8], to: &[u8]) -> Result<()> {
    let source = jail.resolve(from, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let stat = fstat(&source)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    let (target, part) = Part::beside(jail, to, None)?;
    let copied = copy_content(&File::from(source), &target).and_then(|()| {
        fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o777))?;
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
        Ok(()) => part.name(),
        Err(errno) => {
            part.remove();
            Err(errno)
        }
    }
}

fn copy_content(source: &File, target: &File) -> Result<()> {
    // Where both can be one on the disk, nothing is copied.
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
            // Some file systems cannot; then it goes through memory.
            Err(_) if !is_begun => break,
            Err(errno) => return Err(errno),
        }
    }
    let (mut source, mut target) = (source, target);
    let copied = io::copy(&mut source, &mut target);
    copied.map(drop).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
