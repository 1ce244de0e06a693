//! The system calls that differ between systems.

use std::ffi::CString;
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};

use haul_storage::Range;
use rustix::fs::OFlags;
use rustix::io::Result;

use crate::statfs::FileSystem;

/// System calls that not every system has, each with a stand-in.
pub(crate) trait Platform: Debug + Send + Sync {
    /// Opens the directory `path` (components joined with `/`, not empty) below `root`, following
    /// no link. The result serves as the start of other calls, not for reading.
    fn open_directory(&self, root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd>;

    /// Flags that make opening for reading cheaper where they are allowed; tried first.
    fn read_flags(&self) -> OFlags;

    /// A file in `directory` that has no name yet, with permissions `mode`; `None` if that cannot
    /// be had here.
    fn create_unnamed(&self, directory: BorrowedFd<'_>, mode: u32) -> Result<Option<OwnedFd>>;

    /// Gives such a file its name; `EXIST` if the name is taken.
    fn link_unnamed(&self, file: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8]) -> Result<()>;

    /// Renames within a directory unless the new name is taken (`EXIST`).
    fn rename_new(&self, directory: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<()>;

    /// Reserves room for `size` bytes without changing the length. Whether that was possible is
    /// not told, only that there is not enough.
    fn reserve(&self, file: BorrowedFd<'_>, size: u64) -> Result<()>;

    /// Makes an empty file share all data of another one. `false` if that cannot be done.
    fn clone_whole(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> bool;

    /// Copies up to `length` bytes at `offset` inside the kernel; how many were copied (0 at the
    /// end of `from`), or `None` if that cannot be done.
    fn copy_range(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        offset: u64,
        length: usize,
    ) -> Result<Option<usize>>;

    /// The first stretch of data at or after `from` in a file of `size` bytes.
    fn next_data(&self, file: BorrowedFd<'_>, from: u64, size: u64) -> Result<Option<Range>>;

    /// Says that the file will be read from front to back.
    fn advise_sequential(&self, file: BorrowedFd<'_>);

    /// Drops what the system holds of the file in memory, if it is on the medium already.
    fn drop_cache(&self, file: BorrowedFd<'_>);

    /// A path that names the file `name` in `directory` for as long as the descriptor is open, for
    /// calls that have no form with a descriptor; `None` if there is no such thing.
    fn pin(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<(OwnedFd, CString)>>;

    /// What the file system below `directory` can do.
    fn file_system(&self, directory: BorrowedFd<'_>) -> FileSystem;
}
