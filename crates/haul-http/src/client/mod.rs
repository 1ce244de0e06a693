//! The client: turns URLs into files that are read by ranges, and written whole, as streams or by ranges.
//!
//! ```text
//! HttpStorage: stat, list, open → HttpFile, create → Upload
//!    │
//! following (redirects, sign-in, retries) → exchange (choice of the connection, header fields)
//!    │
//! transport ┬ leases (one request at a time)       ┐
//!           └ pipes  (any number, pipelined)       ┴→ connect (TCP, proxy, TLS) → pipe: writer, reader → Response
//! ```

mod auth;
mod body;
mod change;
mod condition;
mod connect;
mod continues;
mod dav;
mod decoded;
mod digest;
mod directories;
mod error;
mod exchange;
mod facts;
mod file;
mod following;
mod framing;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod head;
mod headers;
mod host;
mod inner;
mod jar;
mod leases;
mod list;
mod load;
mod look;
mod moves;
mod moving;
mod options;
mod order;
mod page_cache;
mod pauses;
mod payload;
mod pipe;
mod pipes;
mod privacy;
mod proxy;
mod queued;
mod quirks;
mod reader;
mod reading;
mod remote;
mod request;
mod response;
mod signing;
mod space;
mod speed;
mod storage;
mod trailing_check;
mod transport;
mod upload;
mod walks;
mod writer;

pub use file::HttpFile;
pub use headers::{HeaderError, Headers};
pub use host::HttpHost;
pub use look::{Found, Nearest};
pub use options::HttpOptions;
pub use proxy::Proxies;
pub use storage::HttpStorage;
