//! Chooses a proxy by `--proxy`, `http_proxy`, `https_proxy`, `ftp_proxy`, `all_proxy` and `no_proxy`,
//! as in curl.
//!
//! | variable | for |
//! |---|---|
//! | [`OPTION`] | all, before the variables of the environment |
//! | `http_proxy`, `HTTP_PROXY` | `http` |
//! | `https_proxy`, `HTTPS_PROXY` | `https` |
//! | `ftp_proxy`, `FTP_PROXY` | FTP; an HTTP proxy means no proxy |
//! | `all_proxy`, `ALL_PROXY` | all, where the one above is not set |
//! | `no_proxy`, `NO_PROXY` | hosts that are reached without one: see [`bypasses`] |
//!
//! Lower case takes precedence over upper case, and an empty value (of the option: empty or `none`)
//! means no proxy. In a CGI program `HTTP_PROXY` is the `Proxy` header of the request, which an
//! attacker can set, so it is ignored if `REQUEST_METHOD` is set ("httpoxy", CVE-2016-5385; curl always
//! ignores it).

mod bypass;

use std::fmt;

use haul_net::{Secret, Socks5};
use zeroize::Zeroizing;

use super::href::{HrefError, Origin, WebScheme, decode};

pub use bypass::bypasses;

/// The name under which the value of the option `--proxy` is looked up.
pub const OPTION: &str = "--proxy";

/// The default port of an `http` or SOCKS proxy (curl: `CURL_DEFAULT_PROXY_PORT`). That of an `https`
/// proxy is 443.
const DEFAULT_PORT: u16 = 1080;

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its address, and whether connections to it use TLS.
    pub origin: Origin,
    /// Its protocol.
    pub protocol: Protocol,
    /// The user name, if given.
    pub user: Option<String>,
    /// The password, if given.
    pub password: Option<Zeroizing<String>>,
}

/// The protocol of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP: plain requests, and CONNECT for TLS.
    Http,
    /// SOCKS5.
    Socks5 {
        /// The proxy resolves host names, not this machine (`socks5h`).
        resolves: bool,
    },
}

impl Proxy {
    /// The proxy as a SOCKS proxy, if it is one.
    pub fn socks(&self) -> Option<Socks5> {
        let Protocol::Socks5 { resolves } = self.protocol else { return None };
        let password = || self.password.as_ref().map_or("", |password| password.as_str());
        let login = self.user.as_ref().map(|user| (user.clone(), Secret::new(password())));
        Socks5::new(self.origin.host(), self.origin.port(), login, resolves)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Shows neither user name nor password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.socks() {
            Some(socks) => write!(f, "{socks}"),
            None => write!(f, "{}", self.origin),
        }
    }
}

/// Why a variable is not the URL of a proxy. The error does not repeat its value, which may contain a
/// password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// A SOCKS proxy of another version.
    #[error("{0} names a SOCKS proxy of another version than 5: write socks5:// or socks5h://")]
    Socks(&'static str),
    /// A proxy with another scheme.
    #[error("{0} names a proxy whose scheme is not http, https, socks5 or socks5h")]
    Scheme(&'static str),
    /// User or password cannot be sent to a SOCKS proxy.
    #[error(
        "{0} names a SOCKS proxy with a user or password that is empty or longer than 255 bytes"
    )]
    Login(&'static str),
    /// An HTTP proxy, for FTP.
    #[error(
        "{0} names an HTTP proxy, and FTP goes through SOCKS proxies only: write socks5:// or socks5h://"
    )]
    NotForFtp(&'static str),
    /// Not a URL.
    #[error("{0} is not the URL of a proxy")]
    Malformed(&'static str),
}

/// The proxy for `target`; `variable` returns the value of a variable.
///
/// # Errors
/// The chosen proxy cannot be used.
pub fn proxy_for(
    target: &Origin,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, ProxyError> {
    let names: &[&'static str] = match target.scheme() {
        WebScheme::Http if variable("REQUEST_METHOD").is_some() => {
            &[OPTION, "http_proxy", "all_proxy", "ALL_PROXY"]
        }
        WebScheme::Http => &[OPTION, "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
        WebScheme::Https => &[OPTION, "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
    };
    let chosen = choose(names, target.host(), target.port(), variable);
    chosen.map(|(name, value)| parse(name, &value)).transpose()
}

/// Checks the value of [`OPTION`].
///
/// # Errors
/// It names no usable proxy.
pub fn check_option(value: &str) -> Result<(), ProxyError> {
    choose(&[OPTION], "", 0, |name| (name == OPTION).then(|| value.to_owned()))
        .map_or(Ok(()), |(name, value)| parse(name, &value).map(drop))
}

/// The proxy for the FTP server `host` at `port`. If the first variable of the environment that is set
/// names an HTTP proxy, the result is `None`; those after it are not considered.
///
/// # Errors
/// The chosen proxy cannot be used, or the option names an HTTP proxy.
pub fn proxy_for_ftp(
    host: &str,
    port: u16,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Socks5>, ProxyError> {
    let names = &[OPTION, "ftp_proxy", "FTP_PROXY", "all_proxy", "ALL_PROXY"];
    let Some((name, value)) = choose(names, host, port, variable) else { return Ok(None) };
    match parse(name, &value)?.socks() {
        None if name == OPTION => Err(ProxyError::NotForFtp(name)),
        socks => Ok(socks),
    }
}

/// The first of these variables that is set, unless its value means no proxy or `no_proxy` names the host.
fn choose(
    names: &[&'static str],
    host: &str,
    port: u16,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<(&'static str, Zeroizing<String>)> {
    let found = names.iter().find_map(|name| Some((*name, Zeroizing::new(variable(name)?))));
    let is_none = |name: &str, value: &str| value.is_empty() || name == OPTION && value == "none";
    let found = found.filter(|(name, value)| !is_none(name, value.trim()))?;
    let exceptions = variable("no_proxy").or_else(|| variable("NO_PROXY"));
    let is_excepted = exceptions.is_some_and(|list| bypasses(&list, host, port));
    (!is_excepted).then_some(found)
}

/// `[scheme://][user[:password]@]host[:port][/]`, with user and password percent-encoded.
fn parse(variable: &'static str, value: &str) -> Result<Proxy, ProxyError> {
    let value = value.trim();
    let malformed = || ProxyError::Malformed(variable);
    let (scheme, rest) = match value.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None => ("http".to_owned(), value),
    };
    let (scheme, protocol) = match &scheme[..] {
        "http" => (WebScheme::Http, Protocol::Http),
        "https" => (WebScheme::Https, Protocol::Http),
        "socks5" => (WebScheme::Http, Protocol::Socks5 { resolves: false }),
        "socks5h" => (WebScheme::Http, Protocol::Socks5 { resolves: true }),
        "socks" | "socks4" | "socks4a" => return Err(ProxyError::Socks(variable)),
        _ => return Err(ProxyError::Scheme(variable)),
    };
    // A password may contain a slash that should be encoded, so split at the last '@' first.
    let (login, rest) = match rest.rsplit_once('@') {
        Some((login, rest)) => (Some(login), rest),
        None => (None, rest),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if !matches!(path, "" | "/") {
        return Err(malformed());
    }
    let mut origin =
        Origin::parse(scheme, authority).map_err(|_: HrefError| ProxyError::Malformed(variable))?;
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.is_empty())
        && !authority.ends_with(']');
    if scheme == WebScheme::Http && !has_port {
        origin = Origin::new(scheme, origin.host(), Some(DEFAULT_PORT)).map_err(|_| malformed())?;
    }
    let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
        Some((user, password)) => (Some(user), Some(password).filter(|text| !text.is_empty())),
        None => (None, None),
    };
    let plain = |text: &str| {
        let text = decode(text.as_bytes()).and_then(|bytes| String::from_utf8(bytes).ok());
        text.filter(|text| !text.chars().any(char::is_control)).ok_or_else(malformed)
    };
    // Without a name and a password, there is no login with a SOCKS proxy; with a password alone, it is refused below.
    let user =
        user.filter(|user| protocol == Protocol::Http || !user.is_empty() || password.is_some());
    let proxy = Proxy {
        origin,
        protocol,
        user: user.map(plain).transpose()?,
        password: password.map(plain).transpose()?.map(Zeroizing::new),
    };
    if protocol != Protocol::Http && proxy.socks().is_none() {
        return Err(ProxyError::Login(variable));
    }
    Ok(proxy)
}

#[cfg(test)]
mod tests;
