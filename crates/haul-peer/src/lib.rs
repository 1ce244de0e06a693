//! haul's encrypted link between two machines: a ticket, TLS lanes, and the peer protocol.
//!
//! ```text
//! server: Storage → session → outbox → lanes ⇄ lanes → session → PeerStorage :client
//! ```
//!
//! A [`ticket`] names a peer and proves the right to its share, [`identity`] is its key. [`tls`] authenticates lanes,
//! [`wire`] has the protocol without I/O. [`server`] serves a storage, [`client`] is one. A [`bridge`] connects peers
//! that cannot reach each other; [`lan`] finds peers on the local network, and [`port_mapping`] has a router forward a
//! port.

pub mod bridge;
pub mod client;
pub mod identity;
pub mod lan;
mod lane;
mod lock;
mod outbox;
pub mod port_mapping;
pub mod server;
pub mod ticket;
pub mod tls;
pub mod wire;
