//! A WebDAV and HTTP server for one directory, which no request can leave.
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
//! - `gate` admits requests: `names` refuses what pages of other sites send (`Host`, `Origin`), `credentials`
//!   and `failures` check the password and count wrong ones.
//! - [`Jail`](haul_net::Jail) is the only way into the directory. In it `file_system`, `upload`, `part`,
//!   `aside`, `replacing` and `instead` perform the operations of the crate `dav-server`; `locks` and `properties`
//!   store what files cannot.
//! - `download` and `file_body` send files; `conditions` evaluates conditional and range requests;
//!   `page` lists a directory for people, `propfind` for programs.
//! - `running`, `connection`, `client`, `tls` and `limits` handle connections; `visitor` reports what
//!   clients do.

mod aside;
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
mod replacing;
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
