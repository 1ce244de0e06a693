//! System calls that differ between systems.

use std::ffi::CString;
use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};

use haul_storage::Range;
use rustix::fs::OFlags;
use rustix::io::Result;

use crate::statfs::FileSystem;

/// System calls that only some systems have, each with a fallback.
pub(crate) trait Platform: Debug + Send + Sync {
    /// Opens the directory `path` (components joined with `/`, not empty) below `root` without
    /// following links. The result is only for calls relative to it, not for reading.
    fn open_directory(&self, root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd>;

    /// Additional flags that make reading cheaper; where they are refused, files are opened without
    /// them.
    fn read_flags(&self) -> OFlags;

    /// Creates a file without a name in `directory`, with permissions `mode`; `None` if that is not
    /// supported here.
    fn create_unnamed(&self, directory: BorrowedFd<'_>, mode: u32) -> Result<Option<OwnedFd>>;

    /// Gives an unnamed file a name; `EXIST` if the name exists.
    fn link_unnamed(&self, file: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8]) -> Result<()>;

    /// Renames within a directory; `EXIST` if the new name exists.
    fn rename_new(&self, directory: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<()>;

    /// Reserves space for `size` bytes without changing the length. An error means only that the
    /// file does not fit; `Ok` does not promise a reservation.
    fn reserve(&self, file: BorrowedFd<'_>, size: u64) -> Result<()>;

    /// Makes an empty file a reflink of another one. `false` if that is not possible.
    fn clone_whole(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> bool;

    /// Copies up to `length` bytes at `offset` within the kernel. Returns how many were copied (0
    /// at the end of `from`), or `None` if that is not possible.
    fn copy_range(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        offset: u64,
        length: usize,
    ) -> Result<Option<usize>>;

    /// The first range of data (not a hole) at or after `from` in a file of `size` bytes; `None` if there is none.
    fn next_data(&self, file: BorrowedFd<'_>, from: u64, size: u64) -> Result<Option<Range>>;

    /// Advises that the file will be read from front to back.
    fn advise_sequential(&self, file: BorrowedFd<'_>);

    /// Drops the file's pages from the cache, if they are on the medium already.
    fn drop_cache(&self, file: BorrowedFd<'_>);

    /// A path that names the file `name` in `directory` while the descriptor is open, for calls
    /// that do not take descriptors; `None` if there is no such path.
    fn pin(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<(OwnedFd, CString)>>;

    /// The file system that `directory` is on.
    fn file_system(&self, directory: BorrowedFd<'_>) -> FileSystem;
}
