//! Shows a storage of haul as a folder, through the kernel's FUSE.
//!
//! ```text
//! kernel ◄─ /dev/fuse ─► session ─ requests ─► view ─┬─ tree, attributes   nodes, names, cached entries
//!                        (threads, INTERRUPT)        ├─ refresh             attributes of files that are read
//!                                                    ├─ directory           listings
//!                                                    ├─ survey              listings ahead of programs
//!                                                    ├─ read                open files, blocks, read-ahead
//!                                                    └─ write               spool, uploads, names
//!                                                         │
//!                                          cache (disk), Storage, LinkShare
//! ```
//!
//! `fuse` is the protocol without I/O, `session` the connection to the kernel, `view` the file system, `cache` the
//! blocks of files on disk. A mount is read-only unless a spool is given. It has threads and a runtime of its own, so
//! that it is served however busy the rest of the program is.
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use haul_mount::Mount;
//! use haul_storage::{Result, Storage};
//!
//! async fn show(storage: Arc<dyn Storage>) -> Result<()> {
//!     let mount = Mount::builder(storage).mount(Path::new("/mnt/data"))?;
//!     mount.ended().await;
//!     mount.unmount()
//! }
//! ```

mod attributes;
mod cache;
mod directory;
mod errno;
mod fuse;
mod link;
mod listed;
mod lock;
mod mount;
mod names;
mod read;
mod refresh;
mod session;
mod status;
mod survey;
mod tree;
mod view;
mod write;

#[cfg(feature = "fuzzing")]
pub mod fuzzing;

pub use mount::{Ended, Mount, MountBuilder, Observer};
pub use status::{CacheStatus, MemoryStatus, OpenFile, ReadCounts, Status, WindowStatus};
pub use write::{PendingFile, Warning, pending_files};
