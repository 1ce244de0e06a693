//! The channel that is opened in the same flight as the last authentication request.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::channel::{Event, Line};

/// Most bytes sent on a channel before the server has confirmed it. OpenSSH's window is 2 MiB by then; this much fits
/// into the first flight of a TCP connection.
pub const EARLY: usize = 8 << 10;

/// The channel to open once the server accepts the authentication.
#[derive(Debug)]
pub struct Early {
    /// The subsystem to request.
    pub subsystem: String,
    /// The first bytes to send.
    pub first: Bytes,
    /// The channel, once the request to open it was sent.
    pub sent: Option<(Arc<Line>, mpsc::UnboundedReceiver<Event>)>,
    /// Whether the subsystem request and the first bytes were sent as well.
    pub guessed: bool,
}
