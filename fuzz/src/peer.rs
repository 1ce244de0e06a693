//! Fuzzed decoders of the peer protocol: data from peers before and after authentication, from bridges and routers, and
//! tickets that users pass on.

use haul_peer::bridge;
use haul_peer::port_mapping::fuzzing as port_mapping;
use haul_peer::ticket::Ticket;
use haul_peer::wire::fuzzing;

/// Frames.
pub fn peer_frames(data: &[u8]) {
    fuzzing::frames(data);
}

/// Messages of both directions.
pub fn peer_messages(data: &[u8]) {
    fuzzing::to_server(data);
    fuzzing::to_client(data);
}

/// Messages of a bridge and its clients, spoken codes and their messages, and preambles of data connections.
pub fn peer_bridge(data: &[u8]) {
    bridge::fuzzing::received(data);
}

/// Responses of a router to UPnP requests.
pub fn upnp(data: &[u8]) {
    port_mapping::received(data);
}

/// Tickets.
pub fn peer_ticket(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    drop(text.parse::<Ticket>());
}
