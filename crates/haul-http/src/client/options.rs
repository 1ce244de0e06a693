//! What the user said about HTTP.

use std::sync::Arc;

use haul_net::tls::TlsOptions;
use haul_net::{PasswordSource, Reach, Waits};

use super::headers::Headers;
use super::proxy::Proxies;
use crate::parse::cookies::Cookie;
use crate::parse::netrc::Netrc;

/// What holds for every host.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Whom to trust, and who we are.
    pub tls: TlsOptions,
    /// Where the password of the user in the location comes from.
    pub password: Option<PasswordSource>,
    /// A token that is sent instead of a name and a password (RFC 6750).
    pub token: Option<PasswordSource>,
    /// Names and passwords of ~/.netrc.
    pub netrc: Option<Arc<Netrc>>,
    /// Header fields and cookies for the server that the location names.
    pub headers: Headers,
    /// Cookies of files, for whichever servers they are of.
    pub cookies: Vec<Cookie>,
    /// Whether cookies are taken from all responses, and not only once a redirect has set one.
    pub takes_cookies: bool,
    /// The variables of the environment that say through which proxy whom to reach.
    pub proxies: Proxies,
    /// Where long waits for a server are reported.
    pub waits: Waits,
    /// How servers are reached.
    pub reach: Reach,
}
