//! Parsers for untrusted text, mostly from servers: bounded, validated, without I/O.
//!
//! | file | from | to |
//! |---|---|---|
//! | [`multistatus`] | a PROPFIND response, in chunks | [`Resource`]s |
//! | [`href`] | a link in a listing, the `Location` of a redirect | a name in the directory, a [`Url`] |
//! | [`index`] | a directory as an HTML page | [`Listed`] entries |
//! | [`disposition`] | `Content-Disposition` | a file name |
//! | [`challenge`] | `WWW-Authenticate`, `Proxy-Authenticate` | [`Challenge`]s |
//! | [`cookies`] | `Set-Cookie`, a cookies.txt | [`Cookie`]s |
//! | [`netrc`] | `~/.netrc` | users and passwords |
//! | [`proxy`] | `http_proxy` and similar variables | [`Proxy`] |
//! | [`ranges`] | `Content-Range`, `Accept-Ranges` | [`ContentRange`] |
//! | [`retry_after`] | `Retry-After` | how long to wait |
//! | [`keep_alive`] | `Keep-Alive` | the server's idle timeout |
//! | [`length`] | `Content-Length` | length of a body |
//! | [`repr_digest`] | `Repr-Digest`, `Want-Repr-Digest` | a SHA-256, whether one is requested |
//! | [`coding`] | `Content-Encoding` | [`Coding`], and whether it is the file's own |
//! | [`dates`] | a date in any form that servers write | a timestamp |
//!
//! [`basic`] and [`digest`] go the other way: they build the response to an authentication challenge.
//!
//! A name from a listing becomes a file name on the local disk, so [`href::resolve`] and
//! [`href::resolve_path`] are the only conversions from a link to a name: they return one path component
//! below the requested directory.

pub mod basic;
pub mod challenge;
pub mod coding;
pub mod cookies;
pub mod dates;
pub mod digest;
pub mod disposition;
pub mod href;
pub mod index;
pub mod keep_alive;
pub mod length;
pub mod multistatus;
pub mod netrc;
pub mod proxy;
pub mod ranges;
pub mod repr_digest;
pub mod retry_after;

pub use challenge::{Algorithm, Challenge, DigestChallenge};
pub use coding::Coding;
pub use cookies::Cookie;
pub use digest::{DigestError, DigestSession};
pub use href::{Base, HrefError, Origin, Target, Url, WebScheme};
pub use index::{Index, IndexError, Listed};
pub use multistatus::{Limits, Multistatus, MultistatusError, Resource};
pub use netrc::{Netrc, NetrcError};
pub use proxy::{Proxy, ProxyError};
pub use ranges::{ContentRange, RangeError};
