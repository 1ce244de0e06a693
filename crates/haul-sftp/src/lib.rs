//! SFTP for haul: the codec of the protocol, SSH, a client as a storage with many lanes, and a server.

pub mod codec;
pub mod server;
pub mod ssh;
pub mod transport;

mod client;
mod lane;

pub use client::{Nearest, Resolved, SftpHost, SftpStorage, Warn};
pub use lane::SshDial;
