//! SFTP for haul: the codec of the protocol, a client as a storage with many lanes, and a server.

pub mod codec;
pub mod server;
