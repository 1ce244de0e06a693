//! What all lanes of a server share, and the events about clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use haul_net::{ClientEvent as Event, Observer};
use rustls::ServerConfig;

use super::access::Access;
use super::activity::{SessionEnd, SessionStatus};
use super::session::Session;

/// What happened to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientAction {
    /// A lane was accepted.
    Joined,
    /// A lane was refused; the reason.
    Refused(String),
    /// A lane was lost, its ticket has expired, or its client does not speak the protocol; the reason.
    Failed(String),
    /// Too many connections are open.
    TurnedAway,
    /// A session has ended.
    SessionEnded(SessionEnd),
}

/// An event about a client.
pub type ClientEvent = Event<ClientAction>;

/// Shared by all lanes of a server.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) access: Access,
    pub(super) tls: Arc<ServerConfig>,
    pub(super) observer: Observer<ClientAction>,
    /// Whether clients are notified that the share has ended.
    is_ending: AtomicBool,
}

impl Served {
    pub(super) fn new(
        access: Access,
        tls: Arc<ServerConfig>,
        observer: Observer<ClientAction>,
    ) -> Arc<Self> {
        Arc::new(Self { access, tls, observer, is_ending: AtomicBool::new(false) })
    }

    /// When the server is stopped from now on, it notifies clients that the share has ended.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Reports the end of a session, once.
    pub(super) fn report_end(&self, session: &Session) {
        let ago = session.without_lanes_since().map_or(Duration::ZERO, |since| since.elapsed());
        if let Some((address, end)) = session.activity.end(ago) {
            self.observer.notify(address, ClientAction::SessionEnded(end));
        }
    }
}

/// The sessions of a server. It does not keep the server running.
#[derive(Debug, Clone)]
pub struct Sessions(pub(super) Weak<Served>);

impl Sessions {
    /// The sessions that are open or wait for their clients, the oldest first.
    pub fn status(&self) -> Vec<SessionStatus> {
        let Some(served) = self.0.upgrade() else { return Vec::new() };
        let sessions = served.access.sessions();
        let mut open: Vec<_> =
            sessions.iter().filter_map(|session| session.activity.status()).collect();
        open.sort_by_key(|status| status.number);
        open
    }
}
