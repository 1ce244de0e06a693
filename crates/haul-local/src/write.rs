//! A file that is being written: `.NAME.haul-part` until its commit.
//!
//! The part file is locked exclusively while it is open. Space is reserved at the first write of
//! data that passes through haul (a copy within the kernel may share blocks instead), beyond the
//! file's length, so that the length never looks like progress. The journal is beside it.

use std::any::Any;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Held, Range, RangeSet, ReadAt, RelPath,
    Result, WorkPool, WriteAt, journal_name, part_name,
};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::{Errno, Result as SysResult};

use crate::dir::{Directory, below_root};
use crate::journal::PartRecord;
use crate::metadata::{apply, apply_default_mode};
use crate::read::LocalReader;
use crate::stat::{id_of, mode_of, permissions, size_of, widened};
use crate::statfs::left_out;
use crate::volume::Volume;

/// Shorter files are not worth a call to reserve their space.
const RESERVE_FROM: u64 = 8 * 1024 * 1024;

/// Most pieces per system call (`IOV_MAX` of Linux).
const MAX_PIECES: usize = 1024;

/// Attempts to open and lock a part file: another run may rename or remove it in between.
const RACES: usize = 16;

/// Bytes per job of a copy within the kernel: about 100 ms on a fast disk, after which a dropped
/// future takes effect.
pub(crate) const COPY_STEP: u64 = 128 * 1024 * 1024;

const OPEN: u8 = 0;
const COMMITTED: u8 = 1;
const ABORTED: u8 = 2;

#[derive(Debug)]
pub(crate) struct LocalWriter {
    part: Arc<Part>,
    pool: WorkPool,
    /// Held while a thread writes. The kernel locks the inode, so a file takes one write at a time
    /// anyway, and threads that wait for that lock spin.
    writing: tokio::sync::Mutex<()>,
}

/// The part of a writer that disk threads use.
#[derive(Debug)]
pub(crate) struct Part {
    volume: Arc<Volume>,
    path: RelPath,
    directory: Directory,
    part: Vec<u8>,
    pub(crate) file: Arc<OwnedFd>,
    record: PartRecord,
    /// Bytes still to be reserved.
    reserve: Mutex<Option<u64>>,
    /// `false` until the first write or copy, of this run or of one that it resumes.
    touched: AtomicBool,
    state: AtomicU8,
}

impl Part {
    /// Opens or creates the part file of `path`, and locks it. Empties it unless it is resumed.
    pub(crate) fn create(
        volume: Arc<Volume>,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self> {
        Self::create_as(volume, path, part_name(path.name()), options)
    }

    /// Like [`Part::create`] with another name for the part file, for a whole file that is written
    /// while another run holds the part file.
    pub(crate) fn create_as(
        volume: Arc<Volume>,
        path: &RelPath,
        name: Vec<u8>,
        options: &CreateOptions,
    ) -> Result<Self> {
        const OPERATION: &str = "create";
        below_root(OPERATION, path).map_err(|error| error.at(&volume.location))?;
        if volume.capabilities.max_file_size.is_some_and(|most| options.size > Some(most)) {
            let error = Error::too_long(OPERATION).at(volume.location.display(path));
            return Err(error.because("the file is longer than this file system allows"));
        }
        let shared = &volume;
        let (directory, opened) = volume.at(OPERATION, path, |directory, _| {
            Ok((Arc::clone(directory), open_locked(shared, directory, &name)?))
        })?;
        let (file, existed) = match opened {
            Locked::Yes { file, existed } => (file, existed),
            Locked::ByAnother => {
                let cause = "another run of haul is writing it";
                return Err(volume.refuse(ErrorKind::Busy, OPERATION, path, cause));
            }
            Locked::NoFile => {
                let cause = "the name of its part file is taken by something that is not a file";
                return Err(volume.refuse(ErrorKind::InvalidInput, OPERATION, path, cause));
            }
        };
        let may_resume = existed && options.resume && has_own_journal(&file, &directory, path);
        let found = may_resume.then_some(&file);
        let mut record = PartRecord::look(&volume, &directory, path, options, found)?;
        let resumed = record.resumes();
        if !resumed && name == part_name(path.name()) {
            // With the journal of a vanished part file, holes of the new one would look like data.
            // It is removed first, so that a journal never exists without its data.
            if let Err(error) = remove_journal(&volume, &directory, path) {
                if !existed {
                    // The first error is the one to report.
                    let _ = rustix::fs::unlinkat(&directory, &name, AtFlags::empty());
                }
                return Err(error);
            }
        }
        if existed && !resumed {
            rustix::fs::ftruncate(&file, 0)
                .map_err(|errno| volume.error(OPERATION, path, errno))?;
        }
        if let Err(error) = record.start() {
            if record.held().ranges().is_empty() {
                // The first error is the one to report.
                let _ = rustix::fs::unlinkat(&directory, &name, AtFlags::empty());
            }
            return Err(error);
        }
        let reserve = options.size.filter(|size| *size >= RESERVE_FROM && !options.sparse);
        Ok(Self {
            volume,
            path: path.clone(),
            directory,
            part: name,
            file: Arc::new(file),
            record,
            reserve: Mutex::new(reserve),
            touched: AtomicBool::new(resumed),
            state: AtomicU8::new(OPEN),
        })
    }

    fn error(&self, operation: &'static str, errno: Errno) -> Error {
        self.volume.error(operation, &self.path, errno)
    }

    /// Returns an error after a commit or abort.
    fn still_open(&self, operation: &'static str) -> Result<()> {
        let cause = match self.state.load(Ordering::Acquire) {
            OPEN => return Ok(()),
            COMMITTED => "it is committed already",
            _ => "it was aborted",
        };
        Err(self.volume.refuse(ErrorKind::InvalidInput, operation, &self.path, cause))
    }

    pub(crate) fn write(&self, offset: u64, block: &Block) -> Result<()> {
        self.still_open("write")?;
        self.reserve()?;
        self.touched.store(true, Ordering::Relaxed);
        let step = self.volume.write_step;
        write_all(self.file.as_fd(), offset, block, step)
            .map_err(|errno| self.error("write", errno))
    }

    fn reserve(&self) -> Result<()> {
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(size) = *reserve {
            self.volume
                .platform
                .reserve(self.file.as_fd(), size)
                .map_err(|errno| self.error("reserve space", errno))?;
            *reserve = None;
        }
        Ok(())
    }

    /// Copies within the kernel: a whole file by reflink, or at most [`COPY_STEP`] bytes. Returns the number of bytes
    /// copied, or `None` if that is not possible.
    pub(crate) fn copy(&self, from: &crate::read::Opened, range: Range) -> Result<Option<u64>> {
        self.still_open("copy")?;
        let platform = &self.volume.platform;
        let (source, target) = (from.file.as_fd(), self.file.as_fd());
        let is_whole = range.start() == 0 && range.end() == from.size();
        if is_whole
            && !self.touched.swap(true, Ordering::Relaxed)
            && platform.clone_whole(source, target)
        {
            return Ok(Some(range.len()));
        }
        let range = range.split_at(COPY_STEP).0;
        let mut done = 0;
        while done < range.len() {
            let length = usize::try_from(range.len() - done).unwrap_or(usize::MAX);
            match platform.copy_range(source, target, range.start() + done, length) {
                Ok(Some(0)) => return Err(from.shrank()),
                Ok(Some(copied)) => done += copied as u64,
                // After bytes were copied, `None` can only be a real error.
                Ok(None) if done == 0 => return Ok(None),
                Ok(None) => return Err(self.error("copy", Errno::IO)),
                Err(errno) => return Err(self.error("copy", errno)),
            }
        }
        self.touched.store(true, Ordering::Relaxed);
        Ok(Some(done))
    }

    fn sync(&self) -> Result<()> {
        sync_data(self.file.as_fd()).map_err(|errno| self.error("sync", errno))
    }

    fn sync_recorded(&self) -> Result<()> {
        self.record.synced(|| self.sync())
    }

    fn stat_again(&self, uncached: bool) -> Result<Stat> {
        if uncached {
            self.sync()?;
            self.volume.platform.drop_cache(self.file.as_fd());
        }
        rustix::fs::fstat(&self.file).map_err(|errno| self.error("open", errno))
    }

    pub(crate) fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        const OPERATION: &str = "commit";
        self.still_open(OPERATION)?;
        let name = self.path.name();
        // Also releases what was reserved beyond the end.
        if let Err(errno) = rustix::fs::ftruncate(&self.file, size) {
            // fusefat always refuses `ftruncate`.
            let is_right = rustix::fs::fstat(&self.file).is_ok_and(|stat| size_of(&stat) == size);
            if !is_right {
                return Err(self.error(OPERATION, errno));
            }
        }
        let (file, metadata, can) =
            (self.file.as_fd(), &options.metadata, &self.volume.capabilities);
        let mut applied = apply(file, metadata, can);
        if metadata.mode.is_none() {
            let mode = self.volume.default_mode(self.directory.as_fd(), name, options.replace);
            applied = applied.and_then(|()| apply_default_mode(file, metadata, mode, can));
        }
        applied.map_err(|error| self.volume.apply_error(&self.path, error))?;
        if options.sync {
            rustix::fs::fsync(&self.file).map_err(|errno| self.error("sync", errno))?;
        }
        let platform = &self.volume.platform;
        let directory = self.directory.as_fd();
        self.volume.check_replaced(directory, &self.path, options)?;
        let renamed = if options.replace {
            rustix::fs::renameat(directory, &self.part, directory, name)
        } else {
            platform.rename_new(directory, &self.part, name)
        };
        renamed.map_err(|errno| self.error(OPERATION, errno))?;
        self.state.store(COMMITTED, Ordering::Release);
        if options.sync {
            sync_directory(directory).map_err(|errno| self.error("sync directory", errno))?;
        }
        self.remove_journal()
    }

    pub(crate) fn abort(&self, keep: bool) -> Result<()> {
        if self.state.load(Ordering::Acquire) == COMMITTED {
            return self.still_open("abort");
        }
        self.state.store(ABORTED, Ordering::Release);
        if keep {
            return Ok(());
        }
        let removed = match rustix::fs::unlinkat(&self.directory, &self.part, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.error("remove part file", errno)),
        };
        removed.and(self.remove_journal())
    }

    /// Removes the journal. A writer without a source has none, but an earlier run may have left one beside the part
    /// file that it continues.
    fn remove_journal(&self) -> Result<()> {
        match self.record.resumes() && !self.record.held().is_recorded() {
            true => remove_journal(&self.volume, &self.directory, &self.path),
            false => self.record.remove(),
        }
    }
}

/// Permission bits until the commit, so that a private file is never readable by others.
const PART_MODE: u32 = 0o600;

/// Removes the journal of the file at `path`, if there is one.
fn remove_journal(volume: &Volume, directory: &Directory, path: &RelPath) -> Result<()> {
    let journal = journal_name(path.name());
    match rustix::fs::unlinkat(directory, &journal, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => {
            let journal = path.with_name(&journal).unwrap_or_else(|_| path.clone());
            Err(volume.error("remove", &journal, errno))
        }
    }
}

/// Whether the journal beside a part file, if there is one, belongs to the same user and has no other name.
fn has_own_journal(part: &OwnedFd, directory: &Directory, path: &RelPath) -> bool {
    let journal = journal_name(path.name());
    let part = rustix::fs::fstat(part);
    match rustix::fs::statat(directory, journal, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(journal) => {
            part.is_ok_and(|part| part.st_uid == journal.st_uid && widened(journal.st_nlink) == 1)
        }
        Err(errno) => errno == Errno::NOENT,
    }
}

enum Locked {
    Yes { file: OwnedFd, existed: bool },
    ByAnother,
    NoFile,
}

/// Opens or creates the part file and locks it. Another run may commit (rename) or remove it
/// between opening and locking; then the locked file no longer has the name, and haul tries again.
fn open_locked(volume: &Volume, directory: &Directory, name: &[u8]) -> SysResult<Locked> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mode = permissions(PART_MODE);
    let mut made_writable = false;
    for _ in 0..RACES {
        let create = flags | OFlags::CREATE | OFlags::EXCL;
        let (file, existed) = match rustix::fs::openat(directory, name, create, mode) {
            Ok(file) => (file, false),
            Err(Errno::EXIST) => match rustix::fs::openat(directory, name, flags, mode) {
                Ok(file) => (file, true),
                Err(Errno::NOENT) => continue,
                Err(Errno::LOOP | Errno::MLINK | Errno::ISDIR | Errno::NXIO) => {
                    return Ok(Locked::NoFile);
                }
                // A run that was killed just before the rename had set the final mode.
                Err(Errno::ACCESS) if !made_writable => {
                    made_writable = true;
                    volume.handle(directory.as_fd(), name)?.set_mode(PART_MODE)?;
                    continue;
                }
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(Locked::ByAnother),
            // Network file systems without locks: proceed without one.
            Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error),
        }
        let held = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(held.st_mode) != FileType::RegularFile {
            return Ok(Locked::NoFile);
        }
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if id_of(&named) == id_of(&held) => {
                if existed && !is_ours(volume, directory, &held)? {
                    rustix::fs::unlinkat(directory, name, AtFlags::empty())?;
                    continue;
                }
                if existed && mode_of(&held) != PART_MODE {
                    left_out(rustix::fs::fchmod(&file, mode))?;
                }
                return Ok(Locked::Yes { file, existed });
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Locked::ByAnother)
}

/// Whether an existing part file belongs to this user alone. Another user could still have it open for writing, or
/// could have forged its content together with a journal. A hard link would make haul overwrite an unrelated file.
fn is_ours(volume: &Volume, directory: &Directory, found: &Stat) -> SysResult<bool> {
    if widened(found.st_nlink) > 1 {
        return Ok(false);
    }
    let user = rustix::process::geteuid().as_raw();
    if found.st_uid == user || !volume.capabilities.owner {
        return Ok(true);
    }
    // Some file systems show one owner for all files (FUSE with `uid=`, NFS for root).
    let new = match volume.platform.create_unnamed(directory.as_fd(), PART_MODE)? {
        Some(unnamed) => unnamed,
        None => briefly_named(directory)?,
    };
    Ok(rustix::fs::fstat(&new)?.st_uid == found.st_uid)
}

/// A new file whose name is removed at once. The first name to try is always the same, so that a run that finds the
/// same part file again also removes what a killed one has left. While another thread or run uses it, the name is
/// unique.
fn briefly_named(directory: &Directory) -> SysResult<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = |name: &[u8]| rustix::fs::openat(directory, name, flags, permissions(PART_MODE));
    let remove = |name: &[u8]| match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        // Another thread or run has removed it.
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome,
    };
    let mut name = haul_storage::temporary_name(b"haul", "owner");
    let new = match create(&name) {
        Err(Errno::EXIST) => {
            remove(&name)?;
            name = haul_storage::temporary_name(b"haul", &haul_storage::unique());
            create(&name)?
        }
        outcome => outcome?,
    };
    remove(&name)?;
    Ok(new)
}

/// Writes all pieces of a block, at most `step` bytes per system call.
pub(crate) fn write_all(
    file: impl AsFd,
    mut offset: u64,
    block: &Block,
    step: usize,
) -> SysResult<()> {
    let mut rest: Vec<&[u8]> = block.pieces().iter().map(AsRef::as_ref).collect();
    let mut rest = rest.as_mut_slice();
    while let Some(first) = rest.first() {
        let written = if rest.len() == 1 || first.len() >= step {
            rustix::io::pwrite(&file, &first[..first.len().min(step)], offset)
        } else {
            let mut length = 0;
            let fitting = rest.iter().take(MAX_PIECES).take_while(|piece| {
                length += piece.len();
                length <= step
            });
            let slices: Vec<_> = fitting.map(|piece| std::io::IoSlice::new(piece)).collect();
            rustix::io::pwritev(&file, &slices, offset)
        };
        match written {
            Ok(0) => return Err(Errno::IO),
            Ok(mut written) => {
                offset += written as u64;
                while let Some(first) = rest.first_mut() {
                    if written < first.len() {
                        *first = &first[written..];
                        break;
                    }
                    written -= first.len();
                    rest = &mut rest[1..];
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Syncs data, and no more metadata than necessary.
fn sync_data(file: impl AsFd) -> SysResult<()> {
    #[cfg(target_os = "macos")]
    return rustix::fs::fsync(file);
    #[cfg(not(target_os = "macos"))]
    rustix::fs::fdatasync(file)
}

/// Syncs a directory, which makes a name durable.
pub(crate) fn sync_directory(directory: impl AsFd) -> SysResult<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory, c".", flags, Mode::empty())?;
    match rustix::fs::fsync(readable) {
        // Some file systems cannot sync directories, and need not.
        Err(Errno::INVAL) => Ok(()),
        outcome => outcome,
    }
}

impl LocalWriter {
    pub(crate) fn new(part: Part, pool: WorkPool) -> Self {
        Self { part: Arc::new(part), pool, writing: tokio::sync::Mutex::default() }
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Part) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let part = Arc::clone(&self.part);
        self.pool.run(move || work(&part)).await
    }
}

#[async_trait]
impl WriteAt for LocalWriter {
    fn held(&self) -> &Held {
        self.part.record.held()
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        let part = Arc::clone(&self.part);
        // Permits wait for the record, and other ranges may wait for those.
        self.pool.run_first(move || part.record.append(&ranges)).await
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        let _writing = self.writing.lock().await;
        self.run(move |part| part.write(offset, &block)).await
    }

    async fn copy_from(&self, source: &dyn ReadAt, range: Range) -> Result<bool> {
        let Some(source) = (source as &dyn Any).downcast_ref::<LocalReader>() else {
            return Ok(false);
        };
        let _writing = self.writing.lock().await;
        let mut rest = range;
        while !rest.is_empty() {
            let (from, next) = (Arc::clone(source.opened()), rest);
            let Some(done) = self.run(move |part| part.copy(&from, next)).await? else {
                // Bytes copied before this refusal are written again.
                return Ok(false);
            };
            rest = rest.split_at(done).1;
        }
        Ok(true)
    }

    async fn sync(&self) -> Result<()> {
        self.run(Part::sync_recorded).await
    }

    async fn reopen(&self, uncached: bool) -> Result<Arc<dyn ReadAt>> {
        let stat = self.run(move |part| part.stat_again(uncached)).await?;
        let (volume, path) = (Arc::clone(&self.part.volume), self.part.path.clone());
        let file = Arc::clone(&self.part.file);
        Ok(Arc::new(LocalReader::new(volume, self.pool.clone(), path, file, stat)))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let options = options.clone();
        self.run(move |part| part.commit(size, &options)).await
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        self.run(move |part| part.abort(keep)).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::thread;

    use super::*;

    /// Formerly, it failed with "already exists" if three threads did this at once.
    #[test]
    fn several_threads_can_make_a_file_without_a_name_at_once() {
        let path = tempfile::tempdir().unwrap();
        let directory: Directory = Arc::new(File::open(path.path()).unwrap().into());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..2000).for_each(|_| drop(briefly_named(&directory).unwrap())));
            }
        });
        assert_eq!(path.path().read_dir().unwrap().count(), 0);
    }
}
