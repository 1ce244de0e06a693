//! Which proxy, if any: `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy`, as curl has them.
//!
//! | variable | for |
//! |---|---|
//! | `http_proxy`, `HTTP_PROXY` | `http` |
//! | `https_proxy`, `HTTPS_PROXY` | `https` |
//! | `all_proxy`, `ALL_PROXY` | both, where the one above is not set |
//! | `no_proxy`, `NO_PROXY` | hosts that are reached without one: see [`bypasses`] |
//!
//! Lower case goes before upper case, and one that is set to nothing means no proxy. In a CGI
//! program `HTTP_PROXY` is the `Proxy` header of whoever sent the request, so it is not looked at
//! where `REQUEST_METHOD` is set ("httpoxy", CVE-2016-5385).

mod bypass;

use std::fmt;

use zeroize::Zeroizing;

use super::href::{HrefError, Origin, WebScheme, decode};

pub use bypass::bypasses;

/// The port of an `http` proxy that is given without one (curl: `CURL_DEFAULT_PROXY_PORT`). That of
/// an `https` proxy is 443.
const DEFAULT_PORT: u16 = 1080;

/// A proxy.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// How it is talked to, and where it is.
    pub origin: Origin,
    /// As whom, if said.
    pub user: Option<String>,
    /// With what, if said.
    pub password: Option<Zeroizing<String>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// Without user and password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.origin)
    }
}

/// Why a variable is not the URL of a proxy. Its value is not repeated: it may have a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Of a kind that is known, but not spoken here.
    #[error("{0} names a SOCKS proxy, which is not supported; HTTP proxies are")]
    Socks(&'static str),
    /// Of another kind.
    #[error("{0} names a proxy that is neither http nor https")]
    Scheme(&'static str),
    /// No URL.
    #[error("{0} is not the URL of a proxy")]
    Malformed(&'static str),
}

/// The proxy for `target`; `variable` gives what a variable is set to.
pub fn proxy_for(
    target: &Origin,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Proxy>, ProxyError> {
    let names: &[&'static str] = match target.scheme() {
        WebScheme::Http if variable("REQUEST_METHOD").is_some() => {
            &["http_proxy", "all_proxy", "ALL_PROXY"]
        }
        WebScheme::Http => &["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"],
        WebScheme::Https => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
    };
    let found = names.iter().find_map(|name| Some((*name, Zeroizing::new(variable(name)?))));
    let Some((name, value)) = found.filter(|(_, value)| !value.trim().is_empty()) else {
        return Ok(None);
    };
    let exceptions = variable("no_proxy").or_else(|| variable("NO_PROXY"));
    if exceptions.is_some_and(|list| bypasses(&list, target.host(), target.port())) {
        return Ok(None);
    }
    parse(name, value.trim()).map(Some)
}

/// `[scheme://][user[:password]@]host[:port][/]`, with user and password percent-encoded.
fn parse(variable: &'static str, value: &str) -> Result<Proxy, ProxyError> {
    let malformed = || ProxyError::Malformed(variable);
    let (scheme, rest) = match value.split_once("://") {
        Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
        None => ("http".to_owned(), value),
    };
    let scheme = match &scheme[..] {
        "http" => WebScheme::Http,
        "https" => WebScheme::Https,
        "socks" | "socks4" | "socks4a" | "socks5" | "socks5h" => {
            return Err(ProxyError::Socks(variable));
        }
        _ => return Err(ProxyError::Scheme(variable)),
    };
    // A password can have a slash in it that should be encoded; what is behind the last '@' cannot.
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
    Ok(Proxy {
        origin,
        user: user.map(plain).transpose()?,
        password: password.map(plain).transpose()?.map(Zeroizing::new),
    })
}

#[cfg(test)]
mod tests;
