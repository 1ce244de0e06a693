//! The client: a directory on a server as a storage.
//!
//! `host` is a server with its `lanes`, each a `session` over a channel; `shared` is the state of a session's tasks.
//! `storage` is a directory on the server, with `read`, `write`, `whole` (small files), `part_file` (names of part
//! files), `naming` (renames of new files), `list`, `copying` (copies on the server), `digest` and `space`; `inner` is
//! what it shares with its files. `handles` has the open handles of a file, one per lane; `opening` chooses the lane
//! for an open. `prefetch`, `part`, `table` and `trailing_check` save RTTs. `directories` caches which paths are
//! directories and not links, `patience` limits waits, `server` has what a server announces, `quirks` what it does not,
//! `attributes` what it allows to be set; `entry` and `error` translate.

mod attributes;
mod copying;
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
