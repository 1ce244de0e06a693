//! The SSH transport of the SFTP client: from the user's options to channels on an authenticated
//! connection.
//!
//! ```text
//! SshOptions → config → SshHost::connect → SshConnection::subsystem → Channel { incoming, outgoing }
//!                         ├ haul_net::dial, proxy, jump hosts   a stream of bytes
//!                         ├ host_key, known_hosts               verify the host
//!                         ├ identity, auth                      authenticate the user
//!                         └ transport                           the protocol
//! ```
//!
//! Keys, certificates and the agent protocol come from the crates ssh-key and russh. All errors are
//! [`haul_storage::Error`]; none contains a secret.

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

pub use config::account::local_user;
pub use config::describe::{Origin, Setting, describe};
pub use connection::SshConnection;
pub use host::SshHost;
pub use options::{ConfigFile, NoPrompter, PasswordSource, Pins, Prompter, Secret, SshOptions};
pub use transport::{Channel, Incoming, Outgoing};

/// Most bytes of standard error, of the remote program or a ProxyCommand, that are stored for an error message.
const STDERR_LIMIT: usize = 4096;
