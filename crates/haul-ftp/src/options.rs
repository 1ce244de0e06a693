//! How a server is to be talked to.

use haul_net::tls::TlsOptions;
use haul_net::{PasswordSource, Reach, Socks5, Waits};

/// The port of a control connection that begins with TLS (RFC 4217 calls it deprecated, and it is in
/// wide use).
pub(crate) const IMPLICIT_PORT: u16 = 990;
pub(crate) const PORT: u16 = 21;

/// Whether a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsMode {
    /// As the server offers: `AUTH TLS` is asked for, and where it is refused all goes in plain text.
    /// Who can alter the connection can make it plain, so it protects from listeners only. This is
    /// what `ftp://` means by default.
    #[default]
    Auto,
    /// Plain text, without asking.
    Never,
    /// `AUTH TLS`, or nothing is sent (RFC 4217). On port 990 the connection begins with TLS. This is
    /// what `ftps://` means.
    Always,
    /// The connection begins with TLS, on whatever port.
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

/// How a server is to be talked to.
#[derive(Debug, Clone, Default)]
pub struct FtpOptions {
    /// As whom; `anonymous` if nobody is given.
    pub user: Option<String>,
    /// Where the password comes from; without it the prompter is asked. Nobody is asked for that of
    /// `anonymous`.
    pub password: Option<PasswordSource>,
    /// Whether connections are encrypted.
    pub tls: TlsMode,
    /// Whom to trust, and who we are.
    pub trust: TlsOptions,
    /// Where long waits for the server are reported, and how long they may be: a connection on which nothing
    /// moves for that long although something should is lost. A slow one that moves bytes is not.
    pub waits: Waits,
    /// How the server is reached.
    pub reach: Reach,
    /// The proxy that control and data connections go through.
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
    fn tls_comes_first_on_its_port_or_where_that_is_said() {
        let with = |tls| FtpOptions { tls, ..FtpOptions::default() };
        assert!(with(TlsMode::Always).is_implicit(990) && !with(TlsMode::Always).is_implicit(21));
        assert!(with(TlsMode::Implicit).is_implicit(2121));
        assert!(!with(TlsMode::Auto).is_implicit(990));
        assert_eq!(with(TlsMode::Implicit).default_port(), 990);
        assert_eq!(with(TlsMode::Always).default_port(), 21);
    }
}
