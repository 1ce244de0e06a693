//! Bridges: servers that both peers can reach, for peers that cannot reach each other.
//!
//! ```text
//! sharer: Registration ── signalling (TLS) ──┐            ┌── signalling (TLS) ── Joiner :client
//!            │                            BridgeServer                              │
//!            └── data connections ──────────┴── splice ───┴────── data connections ─┘
//! ```
//!
//! A bridge also helps peers to connect directly: it sends the sharer the addresses at which a client listens, so that
//! the sharer connects to the client, and it sends each side the other's address and port for a simultaneous TCP open
//! (`listener`, `crossing`, `outward`).
//!
//! A bridge knows a sharer by the names of its rooms, which change every day and are derived from the ticket's secret.
//! It forwards the bytes of the peers' own TLS: it learns addresses, times and sizes, but neither names nor content nor
//! the peers' keys. Its own key is known to both sides ([`BridgeAddress`](crate::ticket::BridgeAddress)).
//! `docs/peer-protocol.md` has the layout in bytes.

mod candidate;
mod channel;
pub mod code;
mod crossing;
mod expected;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod joiner;
mod listener;
pub mod messages;
mod networks;
mod outward;
pub mod preamble;
mod registration;
pub mod room;
pub mod server;
mod signal;

pub use joiner::{Connection, Joiner, Observed, Outcome};
pub use registration::{Registration, RegistrationBuilder, RegistrationEvent};
pub use server::{BridgeAction, BridgeEvent, BridgeLimits, BridgeServer, BridgeServerBuilder};
