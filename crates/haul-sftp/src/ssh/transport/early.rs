//! The channel that is asked for in the flight of the last request of authentication.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::channel::{Event, Line};

/// The most that is sent on a channel before it is confirmed. OpenSSH's window is 2 MiB by then;
/// this much fits into the first flight of a TCP connection.
pub const EARLY: usize = 8 << 10;

/// The channel that is wanted once the server lets us in.
#[derive(Debug)]
pub struct Early {
    /// What is asked for on it.
    pub subsystem: String,
    /// What is sent on it first.
    pub first: Bytes,
    /// The channel, once it was asked for.
    pub sent: Option<(Arc<Line>, mpsc::UnboundedReceiver<Event>)>,
    /// Whether request and first bytes were sent as well.
    pub guessed: bool,
}
