//! Origins: scheme, host and port of a URL (RFC 6454, section 4).

use std::fmt;

use haul_storage::ascii_host;

use super::error::HrefError;

/// With or without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WebScheme {
    /// Plain.
    Http,
    /// Over TLS.
    Https,
}

impl WebScheme {
    /// The name in URLs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port if none is given.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }

    pub(super) fn parse(name: &[u8]) -> Option<Self> {
        let all = [Self::Http, Self::Https];
        all.into_iter().find(|scheme| name.eq_ignore_ascii_case(scheme.name().as_bytes()))
    }
}

/// A server. Equal servers compare equal, however they are written.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    scheme: WebScheme,
    /// ASCII (IDNA) in lower case, without the brackets of IPv6 and, if there are several labels, the dot at
    /// the end.
    host: String,
    port: u16,
}

impl Origin {
    /// A server by name or address; an IPv6 address with or without its brackets, a name in any alphabet.
    ///
    /// # Errors
    /// If `host` is neither.
    pub fn new(scheme: WebScheme, host: &str, port: Option<u16>) -> Result<Self, HrefError> {
        let host = &*ascii_host(host).ok_or(HrefError::Malformed)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_address = bare.contains(':');
        let host = match bare.strip_suffix('.') {
            Some(name) if !is_address && name.contains('.') => name,
            _ => bare,
        };
        // Characters that could end the host in a URL or in a request header. Only a zone has a '%'.
        let bad = |c: char| c.is_control() || c.is_whitespace() || "/\\?#@[]<>\"'".contains(c);
        let zone = if is_address { "" } else { "%" };
        let has_empty_label = bare.strip_suffix('.').unwrap_or(bare).split('.').any(str::is_empty);
        if !is_address && has_empty_label || host.chars().any(|c| bad(c) || zone.contains(c)) {
            return Err(HrefError::Malformed);
        }
        if is_address {
            let address = host.split('%').next().unwrap_or_default();
            let address =
                address.parse::<std::net::Ipv6Addr>().map_err(|_| HrefError::Malformed)?;
            let zone = &host[host.find('%').unwrap_or(host.len())..];
            let host = format!("{address}{zone}");
            return Ok(Self { scheme, host, port: port.unwrap_or(scheme.default_port()) });
        }
        let host = host.to_ascii_lowercase();
        Ok(Self { scheme, host, port: port.unwrap_or(scheme.default_port()) })
    }

    /// Parses `host`, `host:port` or `[address]:port`.
    ///
    /// # Errors
    /// If it is malformed, or has a user name.
    pub fn parse(scheme: WebScheme, authority: &str) -> Result<Self, HrefError> {
        if authority.contains('@') {
            return Err(HrefError::Credentials);
        }
        let (host, port) = match authority.rfind(':') {
            Some(colon) if !authority[colon..].contains(']') => {
                (&authority[..colon], &authority[colon + 1..])
            }
            _ => (authority, ""),
        };
        // Without brackets, the end of an address would be ambiguous.
        if host.contains(':') && !host.starts_with('[') {
            return Err(HrefError::Malformed);
        }
        let port = match port {
            "" => None,
            port if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                Some(port.ok_or(HrefError::Malformed)?)
            }
            _ => return Err(HrefError::Malformed),
        };
        Self::new(scheme, host, port)
    }

    /// With or without TLS.
    pub const fn scheme(&self) -> WebScheme {
        self.scheme
    }

    /// Host name (ASCII) or address, in lower case, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether eavesdroppers cannot read bytes sent there: over TLS, or within this machine.
    pub fn is_trustworthy(&self) -> bool {
        self.is_local() || self.scheme == WebScheme::Https
    }

    /// Whether it is on this machine (`localhost` is never elsewhere, RFC 6761, 6.3).
    pub fn is_local(&self) -> bool {
        match self.host.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost" || self.host.ends_with(".localhost"),
        }
    }

    /// For the `Host` header (RFC 9110, section 7.2): without the port if it is the default.
    pub fn authority(&self) -> String {
        // A zone has a meaning on this machine only and is not sent.
        let host = match self.host.split_once('%') {
            Some((address, _)) => format!("[{address}]"),
            None if self.host.contains(':') => format!("[{}]", self.host),
            None => self.host.clone(),
        };
        if self.port == self.scheme.default_port() { host } else { format!("{host}:{}", self.port) }
    }
}

/// `https://host`, as in a URL.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.authority())
    }
}
