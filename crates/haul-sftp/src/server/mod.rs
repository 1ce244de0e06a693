//! An SFTP server: version 3 over SSH, for one directory, that nobody gets out of.
//!
//! ```text
//! TCP → line → SSH (russh) → channel → session → order → disk threads ┐
//! TCP ← line ← SSH ← answers, as the disk threads finish them ────────┘
//! ```
//!
//! [`SftpServer`] is the whole server; [`serve_channel`] is one session of it without SSH.
//!
//! - [`Jail`](haul_net::Jail) is the only way into the directory; `names`, `handles`, `copying`, `hashing` and `files` do by name and by handle
//!   what is asked, as OpenSSH's server does it; `listing` and `status` put it into the protocol's words.
//! - `order` says which requests may run at once, `turns` whose answer is next, `limits` how much of everything there may be.
//! - `connection` and `transport` are the SSH side, `credentials` and `host_key` who is who, `visitor`
//!   what is told about clients.

mod admission;
mod answers;
mod connection;
mod copying;
mod credentials;
mod files;
mod handles;
mod hashing;
mod host_key;
mod limits;
mod line;
mod listing;
mod names;
mod order;
mod pending;
mod running;
mod session;
mod share;
mod status;
mod transport;
mod turns;
mod visitor;

pub use answers::{Closed, Outgoing};
pub use credentials::{AuthorizedKeys, Credentials, Password, RefusedLine};
pub use host_key::HostKey;
pub use running::{SftpServer, SftpServerBuilder};
pub use session::{SessionError, serve_channel};
pub use share::{Share, ShareOptions};
pub use visitor::{ClientAction, ClientEvent, Proof};
