//! What the user said about HTTP.

use haul_net::PasswordSource;
use haul_net::tls::TlsOptions;

/// What holds for every host.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Whom to trust, and who we are.
    pub tls: TlsOptions,
    /// Where the password of the user in the location comes from.
    pub password: Option<PasswordSource>,
    /// A token that is sent instead of a name and a password (RFC 6750).
    pub token: Option<PasswordSource>,
}
