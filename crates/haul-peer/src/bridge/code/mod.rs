//! Spoken codes: `7-orbit-candle` fetches a ticket from its sharer, over a bridge that both know.
//!
//! ```text
//! sharer: CodeOffer ── Offer ──→ bridge ←── Meet(7) ── fetch: receiver
//!    │    responder ←── data connections, TLS ──→          │
//!    └── SPAKE2 with the whole code, confirmed by both, then the ticket ──┘
//! ```
//!
//! The number finds the sharer; the words are never sent. Both sides run SPAKE2 with the code as its password, bound to
//! their TLS connection, so that neither the bridge nor anyone else can test more than one guess per code: the
//! receiver confirms its key first, and after one wrong confirmation the sharer burns the code. A code works once.
//! `docs/peer-protocol.md` has the messages.

mod fetch;
mod keys;
pub mod messages;
mod offer;
mod responder;
mod spoken;
#[cfg(test)]
mod tests;
mod words;

pub use fetch::fetch;
pub use offer::{CodeEvent, CodeOffer, CodeOfferBuilder};
pub use spoken::{Code, CodeError};
