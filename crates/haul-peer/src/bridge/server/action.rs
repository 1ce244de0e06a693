//! Events about the clients of a bridge.

use haul_net::ClientEvent;

/// What a client of a bridge has done.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BridgeAction {
    /// A sharer has registered.
    Registered,
    /// A sharer has unregistered, or its connection was lost.
    Unregistered,
    /// A client has joined a sharer's room, or used the number of a code.
    Joined,
    /// A pair of data connections has ended.
    Forwarded {
        /// Bytes that were forwarded in both directions.
        bytes: u64,
    },
    /// A request was refused; the reason.
    Refused(&'static str),
    /// A connection has failed; the reason.
    Failed(String),
    /// Too many connections are open.
    TurnedAway,
}

/// An event about a client of a bridge.
pub type BridgeEvent = ClientEvent<BridgeAction>;
