//! The user's options for HTTP.

use std::sync::Arc;

use haul_net::tls::TlsOptions;
use haul_net::{PasswordSource, Reach, Waits};

use super::headers::Headers;
use super::proxy::Proxies;
use crate::parse::cookies::Cookie;
use crate::parse::netrc::Netrc;

/// Options for every host.
#[derive(Debug, Clone, Default)]
pub struct HttpOptions {
    /// Trusted authorities, the client certificate, and whether any server certificate is accepted.
    pub tls: TlsOptions,
    /// Where the password of the user in the location comes from.
    pub password: Option<PasswordSource>,
    /// A token that is sent instead of user name and password (RFC 6750).
    pub token: Option<PasswordSource>,
    /// Names and passwords of ~/.netrc.
    pub netrc: Option<Arc<Netrc>>,
    /// Header fields and cookies for the server that the location names.
    pub headers: Headers,
    /// Cookies from cookie files, each for its own server.
    pub cookies: Vec<Cookie>,
    /// Whether cookies are accepted from all responses from the start. Otherwise they are once the user has
    /// supplied one, or a redirect has set one.
    pub takes_cookies: bool,
    /// The environment variables that select proxies, and `--proxy`.
    pub proxies: Proxies,
    /// Reports long waits for a server, and limits them.
    pub waits: Waits,
    /// Address family, and time limit for connecting.
    pub reach: Reach,
}
