//! The client: a directory on a server as a storage.
//!
//! `host` is a server with its `lanes`, each a `session` over a channel. `storage` is a directory
//! on it, with `read`, `write`, `whole` (small files), `naming` (renames of new files) and `list`.
//! `handles` has the open handles of a file, one per lane; `opening` chooses the lane for an open.
//! `prefetch`, `part`, `table` and `trailing_check` save RTTs. `directories` caches which paths are
//! directories and not links, `patience` limits waits, `quirks` has what a server does not announce,
//! `attributes` what it allows to be set; `entry` and `error` translate.

mod attributes;
mod digest;
mod directories;
mod entry;
mod error;
mod handles;
mod host;
mod inner;
mod lanes;
mod list;
mod naming;
mod opening;
mod part;
mod part_file;
mod patience;
mod prefetch;
mod quirks;
mod read;
mod server;
mod session;
mod shared;
mod space;
mod storage;
mod table;
mod trailing_check;
mod whole;
mod write;

pub use attributes::Warn;
pub use host::{Nearest, Resolved, SftpHost};
pub use storage::SftpStorage;
