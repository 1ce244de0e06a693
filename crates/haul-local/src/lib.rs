//! Local file systems.
//!
//! [`LocalStorage`] is a directory tree of this machine as a [`haul_storage::Storage`]. A call
//! becomes one job on a thread of the disk pool (`storage`), which resolves the path beneath the
//! root (`dir`) and does its system calls there; large files go block by block, each block one
//! system call and each hop to a thread worth at least 256 KiB (`read`, `write`). What only Linux
//! has is in `platform`, with a portable stand-in that is tested too.
//!
//! [`SplitStorage`] lies over any storage and shows a folder of numbered parts as one file: the
//! form in which FAT32 holds what is longer than it allows.
//!
//! [`PipeStorage`] is the standard input or output.
//!
//! Part files: while a file is written it is `.NAME.haul-part`, mode 0600, exclusively locked
//! (`flock`), so a second run gets `Busy`. Small files written whole have no name at all until they
//! are complete, where the file system can do that.

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
