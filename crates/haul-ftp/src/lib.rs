//! FTP and FTPS: a directory on a server as a storage.
//!
//! ```text
//! FtpHost (a server) → lanes (control connections) → session → data connection
//!    └ FtpStorage (a directory) → read, write, whole, list
//! ```
//!
//! A lane is a logged-in control connection; it does one transfer at a time. `wire` is the protocol
//! without I/O, `control` sends commands and receives replies, `login` opens a lane, `session` begins
//! and ends transfers, `lanes` assigns lanes to tasks. `look` stats a path, `naming` gives files their
//! names, `learnt` remembers the quirks that a server turns out to have.
//!
//! haul has its own control connection. suppaftp (12.2.1) waits for each reply before the next command, so
//! a range costs six RTTs instead of three; its data connections do not work with implicit TLS; it doubles
//! the byte 0xff in names; and it takes names as text only.
//!
//! FTP has no standard commands for links, modes, locks, sync or writes out of order. Everything else depends
//! on the server and on the features that it announces (`FEAT`).

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
mod naming;
mod options;
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
