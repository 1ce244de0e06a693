//! HTTP and WebDAV: client and server.

pub mod client;
pub mod parse;
pub mod server;
