//! Events about clients: connections, logins and their ends.

use std::fmt;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use haul_net::Admitted;
use russh::keys::{HashAlg, PublicKey};

/// An event about a client.
pub type ClientEvent = haul_net::ClientEvent<ClientAction>;

/// The callback for events about clients.
pub(super) type Observer = haul_net::Observer<ClientAction>;

/// The kind of an event. Names are as the client sent them, not escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    /// The client has connected.
    Connected,
    /// The connection was closed, because too many are open.
    ConnectionRefused,
    /// The client has logged in.
    LoggedIn {
        /// The user name.
        user: String,
        /// The credential.
        with: Proof,
    },
    /// A login was refused.
    Refused {
        /// The user name.
        user: String,
        /// The credential.
        with: Proof,
    },
    /// The connection was closed, because the client did not log in in time.
    LoginTimedOut,
    /// The connection has ended.
    Disconnected {
        /// The user name, if the client had logged in.
        user: Option<String>,
        /// How long it was connected.
        after: Duration,
    },
}

/// The kind of credential with which a client logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// A key, by its fingerprint (`SHA256:…`).
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

/// A connected client. Dropping it reports the end of the connection.
#[derive(Debug)]
pub(super) struct ClientLog {
    observer: Observer,
    address: SocketAddr,
    since: Instant,
    user: OnceLock<String>,
    admitted: Admitted,
}

impl ClientLog {
    /// Reports a new connection.
    pub(super) fn new(observer: Observer, address: SocketAddr, admitted: Admitted) -> Self {
        observer.notify(address, ClientAction::Connected);
        Self { observer, address, since: Instant::now(), user: OnceLock::new(), admitted }
    }

    pub(super) fn logged_in(&self, user: &str, with: Proof) {
        // A client logs in only once: SSH ignores requests after the first success (RFC 4252, 5.1).
        drop(self.user.set(user.to_owned()));
        self.admitted.mark_authenticated();
        self.notify(ClientAction::LoggedIn { user: user.to_owned(), with });
    }

    pub(super) fn refused(&self, user: &str, with: Proof) {
        self.notify(ClientAction::Refused { user: user.to_owned(), with });
    }

    pub(super) fn login_timed_out(&self) {
        self.notify(ClientAction::LoginTimedOut);
    }

    /// Whether the client has logged in.
    pub(super) fn has_logged_in(&self) -> bool {
        self.user.get().is_some()
    }

    fn notify(&self, action: ClientAction) {
        self.observer.notify(self.address, action);
    }
}

impl Drop for ClientLog {
    fn drop(&mut self) {
        let (user, after) = (self.user.take(), self.since.elapsed());
        self.notify(ClientAction::Disconnected { user, after });
    }
}
