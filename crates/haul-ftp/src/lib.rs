//! FTP and FTPS: a directory on a server as a storage.
//!
//! ```text
//! FtpHost (a server) → lanes (control connections) → session → data connection
//!    └ FtpStorage (a directory) → read, write, whole, list
//! ```
//!
//! A lane is a control connection that is logged in; it does one transfer at a time. `wire` is the
//! protocol without its connections, `control` the way of commands and replies, `login` how a lane
//! opens, `session` how a transfer begins and ends, `lanes` who gets which. `look` finds out what is at
//! a path, `place` gives files their names, `learnt` is what a server turns out not to do.
//!
//! The control connection is our own and not suppaftp's (12.2.1): that waits for each reply before the
//! next command, so a range costs six round trips instead of three; its data connections cannot follow
//! an implicit TLS; it doubles the byte 0xff in names; it knows names as text only.
//!
//! What FTP cannot do: links, modes, locks, sync, writing in any order. Everything else depends on the
//! server, and is decided by what it announces (`FEAT`).

mod control;
mod data;
mod digest;
mod error;
mod host;
mod inner;
mod lanes;
mod learnt;
mod lines;
mod list;
mod login;
mod look;
mod options;
mod place;
mod read;
mod server;
mod session;
mod storage;
mod stream;
mod whole;
pub mod wire;
mod write;

pub use host::{FtpHost, Kind, Nearest, Resolved};
pub use options::{FtpOptions, TlsMode};
pub use storage::FtpStorage;
