//! Decides which connections are private: credentials for a server that another one redirects to go
//! over these only.
//!
//! | server | private |
//! |---|---|
//! | over TLS | if it is verified |
//! | without TLS, on this machine | if the location names a server of this machine, and there is no proxy |
//! | any other | no |
//!
//! Without verification (`--insecure`) no connection is private.
//!
//! Without the conditions of the second row, any site could have a password sent to any program that listens on a port
//! of this machine, or to a proxy, whose `localhost` is its own machine.

use super::options::HttpOptions;
use super::proxy::Proxies;
use crate::parse::{Origin, WebScheme};

/// Distinguishes private servers from others.
#[derive(Debug)]
pub struct Privacy {
    proxies: Proxies,
    /// Servers are not verified.
    is_insecure: bool,
    /// The server that the location names is on this machine.
    is_local: bool,
}

impl Privacy {
    /// For `home`, which the location names.
    pub fn new(home: &Origin, options: &HttpOptions) -> Self {
        let proxies = options.proxies.clone();
        let is_local = is_direct(&proxies, home);
        Self { proxies, is_insecure: options.tls.insecure, is_local }
    }

    /// Whether a password may be sent to a server that another one redirects to.
    pub fn is_private(&self, origin: &Origin) -> bool {
        !self.is_insecure && (origin.scheme() == WebScheme::Https || self.stays_here(origin))
    }

    /// Whether the location names a server of this machine, and bytes sent to `origin` without TLS stay on it.
    pub fn stays_here(&self, origin: &Origin) -> bool {
        self.is_local && is_direct(&self.proxies, origin)
    }
}

/// Whether a server is on this machine and reached without a proxy.
fn is_direct(proxies: &Proxies, origin: &Origin) -> bool {
    origin.is_local() && matches!(proxies.of(origin), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Url;

    /// Whether `to` gets its password after a redirect from `home`.
    fn is_private(home: &str, to: &str, options: &HttpOptions) -> bool {
        let origin = |url| Url::parse(url).unwrap().origin;
        Privacy::new(&origin(home), options).is_private(&origin(to))
    }

    #[test]
    fn a_password_goes_over_verified_tls_or_stays_on_this_machine() {
        let options = HttpOptions::default();
        let local = "http://localhost:81/";
        assert!(is_private("https://h/", "https://other/", &options));
        assert!(is_private("http://127.0.0.1/", local, &options));
        assert!(!is_private("http://127.0.0.1/", "http://other/", &options));
        assert!(!is_private("https://h/", local, &options));

        let proxies = Proxies::default().with_option(Some("http://proxy:3128"));
        let proxied = HttpOptions { proxies, ..HttpOptions::default() };
        assert!(is_private("https://h/", "https://other/", &proxied));
        assert!(!is_private("http://127.0.0.1/", local, &proxied));

        let mut insecure = HttpOptions::default();
        insecure.tls.insecure = true;
        assert!(!is_private("https://h/", "https://other/", &insecure));
        assert!(!is_private("http://127.0.0.1/", local, &insecure));
    }
}
