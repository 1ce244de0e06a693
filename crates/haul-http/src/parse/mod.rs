//! What servers send, as text that is not to be trusted: parsed, bounded, checked. No I/O.
//!
//! | file | from | to |
//! |---|---|---|
//! | [`multistatus`] | a PROPFIND answer, in chunks | [`Resource`]s |
//! | [`href`] | a link in a listing, the `Location` of a redirect | a name in the directory, a [`Url`] |
//! | [`index`] | a directory as an HTML page | [`Listed`] entries |
//! | [`disposition`] | `Content-Disposition`, the end of a URL | what to call a file |
//! | [`challenge`] | `WWW-Authenticate`, `Proxy-Authenticate` | [`Challenge`]s |
//! | [`cookies`] | `Set-Cookie`, a cookies.txt | [`Cookie`]s |
//! | [`netrc`] | `~/.netrc` | users and passwords |
//! | [`proxy`] | `http_proxy` and its like | [`Proxy`] |
//! | [`ranges`] | `Content-Range`, `Accept-Ranges` | [`ContentRange`] |
//! | [`retry_after`] | `Retry-After` | how long to wait |
//! | [`keep_alive`] | `Keep-Alive` | how long an idle connection is kept |
//! | [`length`] | `Content-Length` | how long a body is |
//! | [`coding`] | `Content-Encoding` | [`Coding`], and whether it is the file's own |
//! | [`dates`] | a date in any form that servers write | a timestamp |
//!
//! [`basic`] and [`digest`] are the way back: what is shown to a server that asks.
//!
//! A name from a listing becomes a name on this machine's disk, so [`href::resolve`] is the one way
//! from a link to a name: what it gives is one component below the directory that was asked for.

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
