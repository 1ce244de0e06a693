//! Finding peers and bridges on the local network, by multicast DNS (RFC 6762, RFC 6763).
//!
//! ```text
//! sharer:  Announcement → _haul._tcp.local.         random names, port, tag ─┐
//!                                                          Finder :client ←──┘ → addresses to dial
//! bridge:  Announcement → _haul-bridge._tcp.local.  random names, port, key → bridges
//! ```
//!
//! Nothing here is trusted. Only the holder of a ticket recognizes its sharer by the tag (`tag`), and the machine
//! that responds at an address must have the ticket's key. Everyone on the network can announce a bridge, and replay
//! what others have announced. No host name, user name or key of a sharer is sent. `docs/peer-protocol.md` has the
//! records.

mod announcement;
mod bridges;
mod finder;
mod service;
mod tag;

pub use announcement::Announcement;
pub use bridges::bridges;
pub(crate) use finder::{Finder, Finds};
