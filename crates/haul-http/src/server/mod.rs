//! A WebDAV server, which is an HTTP server as well: for one directory, that nobody gets out of.
//!
//! ```text
//! TCP → (TLS) → hyper → gate → handler ┬→ download ← disk threads      GET, HEAD
//!                                      ├→ page                         GET of a directory
//!                                      ├→ propfind, proppatch
//!                                      └→ dav-server → file_system → disk threads      the rest
//! ```
//!
//! [`DavServer`] is the whole server.
//!
//! - `gate` decides who may ask at all: `names` whether it was this server that was meant, `credentials`
//!   and `failures` whether the password is right and how often it was not.
//! - [`Jail`](haul_net::Jail) is the only way into the directory; `file_system`, `upload`, `part` and `instead` do in it what the crate
//!   `dav-server` wants done, `locks` and `properties` remember what files cannot hold.
//! - `download` and `file_body` send files; `conditions` are the headers that ask "only if" and "only
//!   these bytes"; `page` is a directory for people, `propfind` for programs.
//! - `running`, `connection`, `client`, `tls` and `limits` are the outside, `visitor` is what is told about clients.

mod body;
mod client;
mod conditions;
mod connection;
mod credentials;
mod dates;
mod described;
mod digest;
mod directory;
mod download;
mod failures;
mod file_body;
mod file_system;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gate;
mod handler;
mod instead;
mod limits;
mod locks;
mod media_type;
mod names;
mod page;
mod part;
mod paths;
mod properties;
mod propfind;
mod proppatch;
mod received;
mod refusal;
mod running;
mod share;
mod tls;
mod upload;
mod visitor;
mod xml;

pub use credentials::Credentials;
pub use running::{DavServer, DavServerBuilder};
pub use tls::ServerTls;
pub use visitor::{ClientAction, ClientEvent};
