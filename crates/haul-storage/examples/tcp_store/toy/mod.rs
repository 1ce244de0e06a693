//! The toy service: a protocol, a server, and the client library that a real service would have as a crate of its
//! own. It does not know haul.

pub mod client;
pub mod server;
pub mod wire;
