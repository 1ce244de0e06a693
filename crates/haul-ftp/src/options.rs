//! Options of connections to an FTP server.

use haul_net::tls::TlsOptions;
use haul_net::{PasswordSource, Reach, Socks5, Waits};

/// The default port of implicit TLS (deprecated by RFC 4217, but widely used).
pub(crate) const IMPLICIT_PORT: u16 = 990;
/// The default port of FTP.
pub(crate) const PORT: u16 = 21;

/// Whether a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// TLS if the server supports `AUTH TLS`, otherwise plain text. An active attacker can force plain text, so this
    /// protects from passive eavesdroppers only. The default of `ftp://`.
    #[default]
    Auto,
    /// Plain text.
    Never,
    /// `AUTH TLS` is required (RFC 4217). On port 990 the connection begins with TLS. The meaning of `ftps://`.
    Always,
    /// The connection begins with TLS, on any port.
    Implicit,
}

impl TlsMode {
    /// The port, if none is given.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Implicit => IMPLICIT_PORT,
            _ => PORT,
        }
    }
}

/// Options of connections to an FTP server.
#[derive(Debug, Clone, Default)]
pub struct FtpOptions {
    /// The user name; `anonymous` if `None`.
    pub user: Option<String>,
    /// The source of the password. Without one the user is prompted, except for the passwords of `anonymous` and `ftp`.
    pub password: Option<PasswordSource>,
    /// Whether connections are encrypted.
    pub tls: TlsMode,
    /// Trusted certificates, and the client's own.
    pub trust: TlsOptions,
    /// Where long waits for the server are reported, and the timeout of connections on which no bytes move although
    /// some are due. A slow connection does not time out.
    pub waits: Waits,
    /// Address family, and the timeout of connecting.
    pub reach: Reach,
    /// The proxy of control and data connections.
    pub proxy: Option<Socks5>,
}

impl FtpOptions {
    /// The port, if none is given.
    pub(crate) const fn default_port(&self) -> u16 {
        self.tls.default_port()
    }

    /// Whether the connection begins with TLS.
    pub(crate) const fn is_implicit(&self, port: u16) -> bool {
        match self.tls {
            TlsMode::Implicit => true,
            TlsMode::Always => port == IMPLICIT_PORT,
            TlsMode::Auto | TlsMode::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_implicit_on_port_990_or_if_requested() {
        let with = |tls| FtpOptions { tls, ..FtpOptions::default() };
        assert!(with(TlsMode::Always).is_implicit(990) && !with(TlsMode::Always).is_implicit(21));
        assert!(with(TlsMode::Implicit).is_implicit(2121));
        assert!(!with(TlsMode::Auto).is_implicit(990));
        assert_eq!(with(TlsMode::Implicit).default_port(), 990);
        assert_eq!(with(TlsMode::Always).default_port(), 21);
    }
}
