//! The channel that is opened in the same flight as the last authentication request.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::line::{Event, Line};

/// Most bytes sent on a channel before its window opens. OpenSSH announces a window of 0, and opens it to
/// 2 MiB while it handles the subsystem request, which precedes these bytes. This much fits into the first
/// flight of a TCP connection.
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
    /// Whether the subsystem request and the first bytes were sent as well, to the channel number that
    /// the server will probably choose.
    pub guessed: bool,
}
