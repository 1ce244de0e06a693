//! Locks a tree against other runs: `flock` on its directory.
//!
//! A file needs no lock of its own: its writer locks the part file, and a lock on anything beside
//! it would leave litter or lock its neighbours. So the lock of a file, or of a path that does not
//! exist, is empty, as it is on a file system without locks.

use haul_storage::{ErrorKind, Lock, RelPath, Result};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::volume::Volume;

impl Volume {
    pub(crate) fn lock(&self, path: &RelPath) -> Result<Lock> {
        const OPERATION: &str = "lock";
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = self.tree.at(self.platform.as_ref(), path, |directory, name| {
            rustix::fs::openat(directory, name, flags, Mode::empty())
        });
        let directory = match opened {
            Ok(directory) => directory,
            Err(Errno::NOTDIR | Errno::NOENT) => return Ok(Lock::new(())),
            Err(errno) => return Err(self.error(OPERATION, path, errno)),
        };
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock::new(directory)),
            Err(Errno::WOULDBLOCK) => {
                let cause = "another run of haul is working in it";
                Err(self.refuse(ErrorKind::Busy, OPERATION, path, cause))
            }
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Lock::new(())),
            Err(errno) => Err(self.error(OPERATION, path, errno)),
        }
    }
}
