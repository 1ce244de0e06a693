//! What the holder of a ticket may do.

use std::time::SystemTime;

use crate::identity::Shares;
use crate::ticket::Secret;

/// What a ticket allows.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The ticket's secret.
    pub secret: Secret,
    /// Whether its holder may write.
    pub writable: bool,
    /// Whether its holder may also set owners, set-ID bits and capabilities.
    pub owners: bool,
    /// When it expires, by this machine's clock. Open sessions end then.
    pub expires: Option<SystemTime>,
    /// Whether it admits one session only.
    pub one_use: bool,
    /// The file that has the secret, if it outlives this process: it records whether the secret has been used or
    /// revoked, also by other processes.
    pub stored: Option<Shares>,
}

impl Grant {
    /// Allows reading, by any number of sessions, for as long as the server runs.
    pub const fn new(secret: Secret) -> Self {
        Self { secret, writable: false, owners: false, expires: None, one_use: false, stored: None }
    }

    pub(super) fn is_expired(&self) -> bool {
        self.expires.is_some_and(|expires| expires <= SystemTime::now())
    }
}
