//! An SFTP server (version 3 over SSH) that serves one directory and confines clients to it.
//!
//! ```text
//! TCP → line → SSH (russh) → channel → session → order → disk threads ┐
//! TCP ← line ← SSH ← responses, as the disk threads finish them ──────┘
//! ```
//!
//! [`SftpServer`] is the whole server; [`serve_channel`] is one session of it without SSH.
//!
//! - All access to the directory goes through [`Jail`](haul_net::Jail). `names`, `handles`, `copying`, `hashing` and
//!   `files` perform requests by name and by handle, as OpenSSH's server does; `listing` and `status` encode the
//!   results.
//! - `order` decides which requests may run at once, `turns` keeps the responses to READs in order; `limits` has the
//!   limits of a session.
//! - `connection` and `transport` are the SSH side, `credentials` and `host_key` authenticate both sides, `client_log`
//!   reports events about clients; `clients` notices those that have vanished.

mod admission;
mod client_log;
mod clients;
mod connection;
mod copying;
mod credentials;
mod files;
mod handles;
mod hashing;
mod host_key;
mod job;
mod limits;
mod line;
mod listing;
mod names;
mod order;
mod pending;
mod responses;
mod running;
mod session;
mod share;
mod status;
mod transport;
mod turns;

pub use client_log::{ClientAction, ClientEvent, Proof};
pub use credentials::{AuthorizedKeys, Credentials, Password, RefusedLine};
pub use host_key::HostKey;
pub use responses::{Closed, Outgoing};
pub use running::{SftpServer, SftpServerBuilder};
pub use session::{SessionError, serve_channel};
pub use share::{Share, ShareOptions};
