//! Local file systems.
//!
//! [`LocalStorage`] is a local directory tree as a [`haul_storage::Storage`]. Calls that need the disk
//! become jobs on disk threads (`storage`), which resolve the path beneath the root (`dir`) and make
//! the system calls. A job reads or writes about 256 KiB of a large file, or one block if that is
//! longer, in one or more system calls (`read`, `write`). Calls that only Linux has are in `platform`,
//! with a portable replacement that is tested too.
//!
//! [`SplitStorage`] wraps any storage and shows a folder of numbered parts as one file: this is how
//! files that exceed the limit of FAT32 are stored.
//!
//! [`PipeStorage`] is standard input or output.
//!
//! Part files: an incomplete file is `.NAME.haul-part`, with mode 0600 and an exclusive lock
//! (`flock`), so a second run gets `Busy`. Small files that are written whole have no name until
//! they are complete, where the file system supports that.

mod copy;
mod dir;
mod journal;
mod list;
mod lock;
mod metadata;
mod options;
mod pipe;
mod platform;
mod read;
mod space;
mod split;
mod stat;
mod statfs;
mod storage;
mod volume;
mod whole;
mod write;
mod xattrs;

pub use options::LocalOptions;
pub use pipe::PipeStorage;
pub use split::{PART_BYTES, SplitMode, SplitStorage};
pub use storage::LocalStorage;
