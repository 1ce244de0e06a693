//! The SSH transport of the SFTP client: from what the user said to channels on an authenticated
//! connection.
//!
//! ```text
//! SshOptions → config → SshHost::connect → SshConnection::subsystem → Channel { incoming, outgoing }
//!                         ├ haul_net::dial, proxy, jump hosts       a stream of bytes
//!                         ├ host_key, known_hosts         is it the right host?
//!                         ├ identity, auth                how do we prove who we are?
//!                         └ transport                     the protocol
//! ```
//!
//! Keys, certificates and the agent's language are of the crates ssh-key and russh. All errors are
//! [`haul_storage::Error`]; no secret is in any of them.

mod algorithms;
mod auth;
mod choice;
mod config;
mod connection;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod host;
mod host_key;
mod identity;
mod key;
mod known_hosts;
mod options;
mod pattern;
mod pin;
mod proxy;
mod transport;

pub use config::describe::{Origin, Setting, describe};
pub use connection::SshConnection;
pub use host::SshHost;
pub use options::{ConfigFile, Nobody, PasswordSource, Pins, Prompter, Secret, SshOptions};
pub use transport::{Channel, Incoming, Outgoing};

/// How much of what a far end says on its standard error is kept for an error message, in bytes.
const STDERR_KEPT: usize = 4096;
