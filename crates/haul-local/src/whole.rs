//! Small files: a handful of system calls in one job on a disk thread.
//!
//! A file is written without a name and linked when it is complete, so a killed run leaves no
//! litter. To replace an existing file, the new one is linked under the name of the part file and then
//! renamed. Where files without names are not supported, a part file or journal is in the way, or only an
//! expected version may be replaced, the file is written as large files are.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use bytes::Bytes;
use haul_storage::{
    Block, CommitOptions, CreateOptions, ErrorKind, RelPath, Result, Whole, journal_name, part_name,
};
use rustix::fs::{AtFlags, FlockOperation};
use rustix::io::Errno;

use crate::dir::below_root;
use crate::metadata::{apply, apply_default_mode};
use crate::stat::{identity_of, metadata_of, size_of};
use crate::volume::{Volume, temporary_name};
use crate::write::{Part, sync_directory, write_all};

impl Volume {
    pub(crate) fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        const OPERATION: &str = "read";
        let (file, stat) = self.open_file(OPERATION, path)?;
        let size = size_of(&stat);
        if size > limit {
            let cause = format!("it has {size} bytes, expected at most {limit}");
            return Err(self.refuse(ErrorKind::Changed, OPERATION, path, cause));
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        // One byte of spare capacity reveals growth without a further call.
        let mut bytes: Vec<u8> = Vec::with_capacity(size + 1);
        let grown_or_end = loop {
            let room = rustix::buffer::spare_capacity(&mut bytes);
            match rustix::io::read(&file, room) {
                Ok(0) => break bytes.len(),
                Ok(_) if bytes.len() > size => break bytes.len(),
                // At the expected end, which the comparison of identities below confirms.
                Ok(_) if bytes.len() == size => break size,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error(OPERATION, path, errno)),
            }
        };
        let now = rustix::fs::fstat(&file).map_err(|errno| self.error(OPERATION, path, errno))?;
        let identity = identity_of(&stat);
        if grown_or_end != size || identity_of(&now) != identity {
            let cause = "it changed while being read";
            return Err(self.refuse(ErrorKind::Changed, OPERATION, path, cause));
        }
        Ok(Whole::new(bytes.into(), identity, metadata_of(&stat)))
    }

    pub(crate) fn write_whole(
        self: &Arc<Self>,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        below_root("create", path).map_err(|error| error.at(&self.location))?;
        let block = Block::from(bytes);
        // Linking the file under its name first would miss that the expected version was removed.
        if options.replaced().is_none() && self.write_unnamed(path, &block, options)? {
            return Ok(());
        }
        let create = CreateOptions::default();
        let part = match Part::create(Arc::clone(self), path, &create) {
            // Another run is writing the part file; with `replace`, the last one to finish wins.
            Err(error) if error.kind() == ErrorKind::Busy => {
                Part::create_as(Arc::clone(self), path, temporary_name(path.name()), &create)?
            }
            part => part?,
        };
        let size = block.len() as u64;
        let outcome = part.write(0, &block).and_then(|()| part.commit(size, options));
        if outcome.is_err() {
            // The first error is the one to report.
            let _ = part.abort(false);
        }
        outcome
    }

    /// Writes a file without a name and links it. `false` if that is not supported here, or if another run's
    /// part file or journal is in the way.
    fn write_unnamed(
        &self,
        path: &RelPath,
        block: &Block,
        options: &CommitOptions,
    ) -> Result<bool> {
        let mut mode = options.metadata.mode.unwrap_or(0o666) & 0o777;
        if self.capabilities.xattrs
            && options.metadata.xattrs.as_ref().is_some_and(|xattrs| !xattrs.is_empty())
        {
            // `user.*` attributes can be set only while the owner may write; `apply` sets the mode after them.
            mode |= 0o200;
        }
        let created = self.at("create", path, |directory, _| {
            let file = self.platform.create_unnamed(directory.as_fd(), mode)?;
            Ok(file.map(|file| (file, Arc::clone(directory))))
        })?;
        let Some((file, directory)) = created else { return Ok(false) };
        let step = self.write_step;
        write_all(&file, 0, block, step).map_err(|errno| self.error("write", path, errno))?;
        apply(file.as_fd(), &options.metadata, &self.capabilities)
            .map_err(|error| self.apply_error(path, error))?;
        if options.sync {
            rustix::fs::fsync(&file).map_err(|errno| self.error("sync", path, errno))?;
        }
        let to = directory.as_fd();
        match self.platform.link_unnamed(file.as_fd(), to, path.name()) {
            Ok(()) => {}
            Err(Errno::EXIST) if options.replace => {
                if options.metadata.mode.is_none() {
                    let mode = self.default_mode(to, path.name(), true);
                    apply_default_mode(file.as_fd(), &options.metadata, mode, &self.capabilities)
                        .map_err(|error| self.apply_error(path, error))?;
                }
                // Through the name of the part file, which later runs look for, so nothing stays if
                // this one is killed here. It is locked like any part file, and has no journal.
                match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                    Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {}
                    Err(errno) => return Err(self.error("lock", path, errno)),
                }
                // A journal belongs to another run that is writing, or to an interrupted one. Only the owner of
                // the part file may remove it; see `Part::create`.
                let journal = journal_name(path.name());
                match rustix::fs::statat(to, journal, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => return Ok(false),
                    Err(Errno::NOENT) => {}
                    Err(errno) => return Err(self.error("commit", path, errno)),
                }
                let part = part_name(path.name());
                match self.platform.link_unnamed(file.as_fd(), to, &part) {
                    Ok(()) => {}
                    // The part file of an interrupted run, to be resumed or replaced, or of another
                    // one that is running.
                    Err(Errno::EXIST) => return Ok(false),
                    Err(errno) => return Err(self.error("commit", path, errno)),
                }
                if let Err(errno) = rustix::fs::renameat(to, &part, to, path.name()) {
                    let _ = rustix::fs::unlinkat(to, &part, AtFlags::empty());
                    return Err(self.error("commit", path, errno));
                }
            }
            // The file system creates unnamed files but cannot link them (overlays).
            Err(Errno::NOENT | Errno::OPNOTSUPP | Errno::PERM | Errno::XDEV) => return Ok(false),
            Err(errno) => return Err(self.error("commit", path, errno)),
        }
        if options.sync {
            sync_directory(to).map_err(|errno| self.error("sync directory", path, errno))?;
        }
        Ok(true)
    }
}
