//! What is to be told about a client: that it came, who it says it is, that it went.

use std::fmt;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use haul_net::Admitted;
use russh::keys::{HashAlg, PublicKey};

/// Something about a client.
pub type ClientEvent = haul_net::ClientEvent<ClientAction>;

/// Who is told about clients.
pub(super) type Observer = haul_net::Observer<ClientAction>;

/// What happened. Names come from the client as they are: nothing is escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    /// It has connected.
    Connected,
    /// It was sent away, because there are too many connections.
    TurnedAway,
    /// It has logged in.
    LoggedIn {
        /// As whom.
        user: String,
        /// With what.
        with: Proof,
    },
    /// It was refused.
    Refused {
        /// As whom it wanted to log in.
        user: String,
        /// With what.
        with: Proof,
    },
    /// It was cut because it did not log in for too long.
    TooLate,
    /// It is gone, or was cut.
    Left {
        /// As whom it had logged in.
        user: Option<String>,
        /// How long it was connected.
        after: Duration,
    },
}

/// With what a client wants to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// A key of this fingerprint (`SHA256:…`).
    Key(String),
    /// A password.
    Password,
}

impl Proof {
    pub(super) fn key(key: &PublicKey) -> Self {
        Self::Key(key.fingerprint(HashAlg::Sha256).to_string())
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(fingerprint) => write!(f, "key {fingerprint}"),
            Self::Password => f.write_str("password"),
        }
    }
}

/// A client that is there. However its connection ends, that is told.
#[derive(Debug)]
pub(super) struct Visitor {
    observer: Observer,
    address: SocketAddr,
    since: Instant,
    user: OnceLock<String>,
    admitted: Admitted,
}

impl Visitor {
    /// One that has just connected.
    pub(super) fn new(observer: Observer, address: SocketAddr, admitted: Admitted) -> Self {
        observer.tell(address, ClientAction::Connected);
        Self { observer, address, since: Instant::now(), user: OnceLock::new(), admitted }
    }

    pub(super) fn logged_in(&self, user: &str, with: Proof) {
        // Nobody logs in twice: SSH ignores what comes after the first success (RFC 4252, 5.1).
        drop(self.user.set(user.to_owned()));
        self.admitted.is_known();
        self.tell(ClientAction::LoggedIn { user: user.to_owned(), with });
    }

    pub(super) fn refused(&self, user: &str, with: Proof) {
        self.tell(ClientAction::Refused { user: user.to_owned(), with });
    }

    pub(super) fn too_late(&self) {
        self.tell(ClientAction::TooLate);
    }

    /// Whether it has logged in.
    pub(super) fn is_in(&self) -> bool {
        self.user.get().is_some()
    }

    fn tell(&self, action: ClientAction) {
        self.observer.tell(self.address, action);
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let (user, after) = (self.user.take(), self.since.elapsed());
        self.tell(ClientAction::Left { user, after });
    }
}
