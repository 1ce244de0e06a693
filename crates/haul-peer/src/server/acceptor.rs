//! Passes connections that the sharer has opened itself, to a bridge or a client, to the server as lanes.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use haul_net::{Admission, Workers};
use tokio::net::TcpStream;

use super::served::Served;

/// Passes connections to a server, as if the server had accepted them. Does not keep the server running.
#[derive(Clone)]
pub struct Acceptor(Arc<Inner>);

struct Inner {
    workers: Workers,
    served: Weak<Served>,
    admission: Arc<Admission>,
    turn_away: Box<dyn Fn(SocketAddr) + Send + Sync>,
}

impl Acceptor {
    pub(super) fn new(
        workers: Workers,
        served: Weak<Served>,
        admission: Arc<Admission>,
        turn_away: impl Fn(SocketAddr) + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner { workers, served, admission, turn_away: Box::new(turn_away) }))
    }

    /// Whether the server has a session that is open, or a ticket that is neither expired, used up nor revoked.
    /// Blocks: it reads the file of stored tickets.
    pub fn has_valid_ticket_or_session(&self) -> bool {
        self.0.served.upgrade().is_some_and(|served| served.access.has_valid_ticket_or_session())
    }

    /// Serves a lane on a connection, on one of the server's threads. `from` is the client's address as far as it is
    /// known: it is displayed, and connections are limited by it. The connection is closed if there are too many, or if
    /// the server has stopped.
    pub fn accept(&self, stream: TcpStream, from: SocketAddr) {
        match self.0.admission.enter(from.ip()) {
            Some(admitted) => self.0.workers.assign(stream, from, admitted),
            None => (self.0.turn_away)(from),
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acceptor")
    }
}
