//! Announces a share, or a bridge, on the local network. If that fails, the server runs without it.

use std::net::SocketAddr;

use haul_peer::lan::Announcement;
use haul_peer::ticket::{PeerKey, Secret};
use haul_storage::Result;

use crate::output::Printer;

/// Announces a share that listens on these addresses to the holders of its ticket.
pub(super) fn share(
    secret: &Secret,
    listening: &[SocketAddr],
    printer: &Printer,
) -> Option<Announcement> {
    announced(Announcement::of_share(secret, listening), printer)
}

/// Announces a bridge that listens on these addresses.
pub(super) fn bridge(
    key: &PeerKey,
    listening: &[SocketAddr],
    printer: &Printer,
) -> Option<Announcement> {
    announced(Announcement::of_bridge(key, listening), printer)
}

/// Withdraws the announcement.
pub(super) async fn end(announcement: Option<Announcement>) {
    if let Some(announcement) = announcement {
        announcement.stop().await;
    }
}

fn announced(outcome: Result<Option<Announcement>>, printer: &Printer) -> Option<Announcement> {
    outcome.unwrap_or_else(|error| {
        printer.warning("the local network", &format!("cannot announce there ({})", error.cause()));
        None
    })
}
