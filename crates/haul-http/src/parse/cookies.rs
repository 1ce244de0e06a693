//! Cookies (RFC 6265): from `Set-Cookie` and from files, and which requests they are sent with.
//!
//! The crate `cookie` parses `Set-Cookie`; this module evaluates it. Stricter than the RFC:
//!
//! - A cookie received over TLS is sent over TLS or to this machine only, with or without `Secure`.
//! - A cookie without `Domain` is sent only to the port that set it (from a file, see [`Cookie::line`]).
//! - A `Domain` of one label, an address, or one like `co.uk` is refused for hosts below it: a list of all
//!   public suffixes would be as large as all of haul's HTTP code.

use std::fmt;
use std::net::Ipv4Addr;

use cookie::Cookie as Received;
use haul_net::with_port;
use zeroize::Zeroizing;

use super::href::{Origin, Url, WebScheme};

/// The most bytes of name and value together, as in browsers.
const LONGEST: usize = 4096;

/// Labels below a top-level domain of two letters that are registries: the names under them, as under
/// `co.uk`, belong to different owners.
const SHARED: &[&str] = &[
    "ac", "co", "com", "edu", "go", "gob", "gov", "gv", "ltd", "mil", "ne", "net", "nom", "or",
    "org",
];

/// The mark in a cookies.txt for cookies that scripts must not see.
const HTTP_ONLY: &str = "#HttpOnly_";

/// A cookie.
#[derive(Clone, PartialEq, Eq)]
pub struct Cookie {
    name: String,
    value: Zeroizing<String>,
    /// In lower case.
    host: String,
    /// Sent to this port only.
    port: Option<u16>,
    /// Sent to this host only, and to none below it.
    host_only: bool,
    path: String,
    /// Sent over TLS or to this machine only.
    secure: bool,
    http_only: bool,
    /// Seconds since the epoch; `None` for a session cookie.
    expires: Option<i64>,
}

/// Shows no value.
impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({} of {}{})", self.name, self.host, self.path)
    }
}

/// Why a file is not a cookies.txt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CookieFileError {
    /// It is not text.
    #[error("it is not a cookies.txt (Netscape format): export the cookies in that format")]
    NoText,
    /// The number of the first line that is neither a cookie nor a comment.
    #[error("line {0} is not a cookie: a cookies.txt has 7 fields in a line, separated by tabs")]
    Line(usize),
}

impl Cookie {
    /// The cookie that a `Set-Cookie` in a response from `url` sets, at `now` (seconds since the epoch).
    /// `None` if it is malformed, or that server may not set it.
    pub fn received(text: &str, url: &Url, now: i64) -> Option<Self> {
        let received = Received::parse(text).ok()?;
        let (name, value) = (received.name(), received.value());
        // Tabs may separate attributes. In a name or value they would break its line in a cookies.txt.
        let has_tab = name.contains('\t') || value.contains('\t');
        let is_bad = |byte: u8| is_control(byte) && byte != b'\t';
        if name.len() + value.len() > LONGEST || has_tab || text.bytes().any(is_bad) {
            return None;
        }
        let origin = &url.origin;
        let domain = received.domain().map(str::to_ascii_lowercase);
        let host_only = match domain.as_deref() {
            None | Some("") => true,
            Some(domain) if domain == origin.host() && !is_domain(domain) => true,
            Some(domain) if is_domain(domain) && is_below(origin.host(), domain) => false,
            Some(_) => return None,
        };
        let secure = received.secure().unwrap_or(false);
        if secure && !origin.is_trustworthy() {
            return None;
        }
        let path = received.path().filter(|path| path.starts_with('/'));
        // RFC 6265bis, 4.1.3.
        let fits = |prefix: &str, also: bool| !starts_with(name, prefix) || secure && also;
        if !fits("__Secure-", true) || !fits("__Host-", host_only && path == Some("/")) {
            return None;
        }
        let expires = match received.max_age() {
            Some(age) => Some(now.saturating_add(age.whole_seconds())),
            None => received.expires_datetime().map(|date| date.unix_timestamp()),
        };
        Some(Self {
            name: name.to_owned(),
            value: Zeroizing::new(value.to_owned()),
            host: domain.filter(|_| !host_only).unwrap_or_else(|| origin.host().to_owned()),
            port: host_only.then_some(origin.port()),
            host_only,
            path: path.map_or_else(|| directory(url.path()), str::to_owned),
            secure: secure || origin.scheme() == WebScheme::Https,
            http_only: received.http_only().unwrap_or(false),
            expires,
        })
    }

    /// A cookie that the user gives for a server.
    pub fn given(name: &str, value: &str, origin: &Origin) -> Self {
        Self {
            name: name.to_owned(),
            value: Zeroizing::new(value.to_owned()),
            host: origin.host().to_owned(),
            port: Some(origin.port()),
            host_only: true,
            path: "/".to_owned(),
            secure: origin.scheme() == WebScheme::Https,
            http_only: false,
            expires: None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// Its path; cookies with the longest path are sent first (RFC 6265, 5.4).
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether it has expired; `now` in seconds since the epoch.
    pub fn is_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether it is sent with a request for `url` (RFC 6265, 5.4).
    pub fn goes_to(&self, url: &Url) -> bool {
        let host = url.origin.host();
        let host_fits = self.host == host || !self.host_only && is_below(host, &self.host);
        let port_fits = self.port.is_none_or(|port| port == url.origin.port());
        let below = url.path().strip_prefix(&self.path);
        let path_fits = below.is_some_and(|below| {
            below.is_empty() || self.path.ends_with('/') || below.starts_with('/')
        });
        host_fits && port_fits && path_fits && (!self.secure || url.origin.is_trustworthy())
    }

    /// Whether it is sent over private connections only.
    pub const fn needs_privacy(&self) -> bool {
        self.secure
    }

    /// Whether it replaces `other`.
    pub fn replaces(&self, other: &Self) -> bool {
        let port_fits = self.port == other.port || self.port.is_none() || other.port.is_none();
        self.name == other.name && self.host == other.host && self.path == other.path && port_fits
    }

    /// Its line in a cookies.txt; `None` if it cannot be written. A port other than the default follows
    /// the host, as wget writes it: once read back, a cookie without one is sent to all ports, also one
    /// that was for the default port only. curl and browsers do not support ports there.
    pub fn line(&self) -> Option<String> {
        let Self { name, value, host, path, .. } = self;
        let word = |is: bool| if is { "TRUE" } else { "FALSE" };
        let mark = if self.http_only { HTTP_ONLY } else { "" };
        let dot = if self.host_only { "" } else { "." };
        let (below, secure) = (word(!self.host_only), word(self.secure));
        let expires = self.expires.unwrap_or(0);
        let scheme = if self.secure { WebScheme::Https } else { WebScheme::Http };
        let at = match self.port.filter(|port| *port != scheme.default_port()) {
            Some(port) => with_port(host, port),
            None => host.clone(),
        };
        let fields = [&name[..], value, host, path];
        let fits = fields.iter().all(|field| !field.bytes().any(is_control));
        let line =
            format!("{mark}{dot}{at}\t{below}\t{path}\t{secure}\t{expires}\t{name}\t{}", &**value);
        // One invalid line would make the whole file unreadable: the host may have a zone.
        (fits && Self::of_line(&line).is_some()).then(|| line + "\n")
    }

    fn of_line(line: &str) -> Option<Self> {
        let (line, http_only) = match line.strip_prefix(HTTP_ONLY) {
            Some(line) => (line, true),
            None => (line, false),
        };
        let fields: Vec<_> = line.split('\t').collect();
        let (fields, value) = match fields[..] {
            [a, b, c, d, e, f] => ([a, b, c, d, e, f], ""),
            [a, b, c, d, e, f, value] => ([a, b, c, d, e, f], value),
            _ => return None,
        };
        let [host, below, path, secure, expires, name] = fields;
        let is_true = |field: &str| match field {
            _ if field.eq_ignore_ascii_case("TRUE") => Some(true),
            _ if field.eq_ignore_ascii_case("FALSE") => Some(false),
            _ => None,
        };
        // Some exporters write fractions of a second.
        let expires = expires.split('.').next()?.parse::<i64>().ok()?;
        // wget writes a port other than the default. A cookie without a port is sent to all ports, as in
        // curl and browsers.
        let (host, port) = match host.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
                (name, Some(port.parse().ok()?))
            }
            _ => (host, None),
        };
        let host = host.trim_matches(['.', '[', ']']);
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if host.is_empty() || !host.bytes().all(fits) {
            return None;
        }
        let has_control = |field: &&str| field.bytes().any(is_control);
        if name.is_empty() || !path.starts_with('/') || [path, name, value].iter().any(has_control)
        {
            return None;
        }
        if name.contains(['=', ';']) || value.contains(';') {
            return None;
        }
        Some(Self {
            name: name.to_owned(),
            value: Zeroizing::new(value.to_owned()),
            host: host.to_ascii_lowercase(),
            port,
            host_only: !is_true(below)?,
            path: path.to_owned(),
            secure: is_true(secure)?,
            http_only,
            expires: Some(expires).filter(|expires| *expires != 0),
        })
    }
}

/// Parses a cookies.txt, as browser extensions, curl, wget and aria2 write it.
///
/// # Errors
/// If it is not text, or a line is neither a cookie nor a comment.
pub fn read(bytes: &[u8]) -> Result<Vec<Cookie>, CookieFileError> {
    let text = std::str::from_utf8(bytes).map_err(|_| CookieFileError::NoText)?;
    if text.starts_with("SQLite format 3") || text.contains('\0') {
        return Err(CookieFileError::NoText);
    }
    let lines = text.trim_start_matches('\u{feff}').lines().enumerate();
    let is_cookie = |line: &str| {
        !line.trim().is_empty() && (!line.starts_with('#') || line.starts_with(HTTP_ONLY))
    };
    let cookies = lines.filter(|(_, line)| is_cookie(line));
    cookies.map(|(at, line)| Cookie::of_line(line).ok_or(CookieFileError::Line(at + 1))).collect()
}

/// The default path of a cookie (RFC 6265, 5.1.4).
fn directory(path: &str) -> String {
    match path.rfind('/') {
        None | Some(0) => "/".to_owned(),
        Some(slash) => path[..slash].to_owned(),
    }
}

/// Whether `host` is `domain` or a name below it.
fn is_below(host: &str, domain: &str) -> bool {
    host == domain
        || !is_address(host) && host.strip_suffix(domain).is_some_and(|above| above.ends_with('.'))
}

/// Whether a cookie may be for this domain and all names below it.
fn is_domain(domain: &str) -> bool {
    let labels: Vec<_> = domain.split('.').collect();
    let is_shared = match labels[..] {
        [_] => true,
        [second, top] => top.len() == 2 && SHARED.contains(&second),
        _ => false,
    };
    !is_shared && !is_address(domain) && labels.iter().all(|label| !label.is_empty())
}

fn is_address(host: &str) -> bool {
    host.contains(':') || host.parse::<Ipv4Addr>().is_ok()
}

fn starts_with(name: &str, prefix: &str) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

const fn is_control(byte: u8) -> bool {
    byte < b' ' || byte == 0x7f
}

#[cfg(test)]
mod tests;
