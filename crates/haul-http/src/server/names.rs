//! Checks that a request is meant for this server, and not sent by a page of another one.
//!
//! Without a password any client that reaches the server may use it, including every page in a browser on the
//! same machine. A browser states which page makes the request (`Origin`, `Sec-Fetch-Site`) and which name it
//! resolved (`Host`): a page whose name was made to resolve to this server ("DNS rebinding") has no foreign
//! origin, but a foreign name.

use std::net::IpAddr;

use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{Method, StatusCode};

/// The names of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    own: Vec<String>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Foreign(pub(super) StatusCode, pub(super) &'static str);

const NO_HOST: Foreign = Foreign(StatusCode::BAD_REQUEST, "exactly one Host header is required\n");
const OTHER_HOST: Foreign =
    Foreign(StatusCode::MISDIRECTED_REQUEST, "this server does not serve that host name\n");
const OTHER_PAGE: Foreign =
    Foreign(StatusCode::FORBIDDEN, "requests from pages of other origins are refused\n");

impl Names {
    /// The machine's own names, and further ones.
    pub(super) fn new(further: &[String]) -> Self {
        let mut own: Vec<String> = further.iter().map(|name| name.to_ascii_lowercase()).collect();
        if let Ok(name) = rustix::system::uname().nodename().to_str() {
            let name = name.to_ascii_lowercase();
            // The name in multicast DNS (RFC 6762).
            own.push(format!("{}.local", name.split('.').next().unwrap_or(&name)));
            own.push(name);
        }
        Self { own }
    }

    /// Checks whether to handle a request. `by_any_name`: a password protects against requests by other
    /// names.
    pub(super) fn check(&self, request: &Parts, by_any_name: bool) -> Result<(), Foreign> {
        let authority = authority(request)?;
        if !by_any_name && !self.is_own(host(authority)) {
            return Err(OTHER_HOST);
        }
        if let Some(origin) = request.headers.get(header::ORIGIN) {
            // The schemes are not compared: behind a proxy that terminates TLS, they differ.
            let from = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            if from.is_none_or(|(scheme, from)| !is_same(scheme, from, authority)) {
                return Err(OTHER_PAGE);
            }
        }
        let field = |name: &str| request.headers.get(name).map(|value| value.as_bytes());
        match field("sec-fetch-site") {
            None | Some(b"none" | b"same-origin") => Ok(()),
            // A link that the user follows is harmless: only the user sees the page, not the other site.
            _ if request.method == Method::GET && field("sec-fetch-mode") == Some(b"navigate") => {
                Ok(())
            }
            _ => Err(OTHER_PAGE),
        }
    }

    fn is_own(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let literal =
            host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        literal.parse::<IpAddr>().is_ok()
            || host == "localhost"
            || host.ends_with(".localhost")
            || self.own.contains(&host)
    }
}

/// The host name and port in the request.
pub(super) fn authority(request: &Parts) -> Result<&str, Foreign> {
    if let Some(authority) = request.uri.authority() {
        return Ok(authority.as_str());
    }
    let mut hosts = request.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().map_err(|_| NO_HOST),
        _ => Err(NO_HOST),
    }
}

/// Whether a URL's authority equals that of the request.
pub(super) fn is_same(scheme: &str, from: &str, authority: &str) -> bool {
    let usual = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    let plain = |name: &str| name.strip_suffix(usual).unwrap_or(name).to_ascii_lowercase();
    plain(from) == plain(authority)
}

/// The destination of a COPY or MOVE, as a path on this server.
pub(super) fn destination<'a>(
    headers: &'a HeaderMap,
    authority: &str,
) -> Result<&'a str, StatusCode> {
    let value = headers.get("destination").ok_or(StatusCode::BAD_REQUEST)?;
    let value = value.to_str().map_err(|_| StatusCode::BAD_REQUEST)?;
    if value.starts_with('/') && !value.starts_with("//") {
        return Ok(value);
    }
    let (scheme, rest) = value.split_once("://").ok_or(StatusCode::BAD_REQUEST)?;
    let slash = rest.find('/').ok_or(StatusCode::BAD_REQUEST)?;
    let (to, path) = rest.split_at(slash);
    // Some clients include a user name.
    let to = to.rsplit('@').next().unwrap_or(to);
    if is_same(scheme, to, authority) { Ok(path) } else { Err(StatusCode::BAD_GATEWAY) }
}

/// The authority without its port.
fn host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(method: &str, lines: &[(&str, &str)], by_any_name: bool) -> Result<(), Foreign> {
        let mut request = http::Request::builder().method(method).uri("/");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Names::new(&["NAS.example".to_owned()]).check(&parts, by_any_name)
    }

    #[test]
    fn without_a_password_only_own_names_and_addresses_are_accepted() {
        for host in
            ["127.0.0.1:8080", "[::1]:8080", "[::1]", "localhost", "a.localhost:1", "nas.example."]
        {
            assert_eq!(checked("GET", &[("host", host)], false), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil", ""] {
            assert_eq!(checked("GET", &[("host", host)], false), Err(OTHER_HOST), "{host}");
            assert_eq!(checked("GET", &[("host", host)], true), Ok(()), "{host}");
        }
        assert_eq!(checked("GET", &[], true), Err(NO_HOST));
        assert_eq!(checked("GET", &[("host", "a"), ("host", "b")], true), Err(NO_HOST));
    }

    #[test]
    fn requests_by_pages_of_other_servers_are_refused() {
        let host = ("host", "localhost:8080");
        let own = ("origin", "http://LOCALHOST:8080");
        assert_eq!(checked("PUT", &[host, own], true), Ok(()));
        for origin in ["null", "http://evil.example", "http://localhost", "http://localhost:8081"] {
            assert_eq!(
                checked("GET", &[host, ("origin", origin)], true),
                Err(OTHER_PAGE),
                "{origin}"
            );
        }
        let site = |site| ("sec-fetch-site", site);
        let navigate = ("sec-fetch-mode", "navigate");
        assert_eq!(checked("GET", &[host, site("none")], true), Ok(()));
        assert_eq!(checked("GET", &[host, site("cross-site"), navigate], true), Ok(()));
        assert_eq!(checked("GET", &[host, site("cross-site")], true), Err(OTHER_PAGE));
        assert_eq!(checked("DELETE", &[host, site("same-site"), navigate], true), Err(OTHER_PAGE));
    }

    #[test]
    fn a_destination_must_be_on_this_server() {
        let to = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("destination", value.parse().unwrap());
            destination(&headers, "host:80").map(str::to_owned)
        };
        assert_eq!(to("/a%20b"), Ok("/a%20b".to_owned()));
        assert_eq!(to("http://HOST/a"), Ok("/a".to_owned()));
        assert_eq!(to("http://me@host:80/a"), Ok("/a".to_owned()));
        assert_eq!(to("https://host/a"), Err(StatusCode::BAD_GATEWAY));
        assert_eq!(to("http://other/a"), Err(StatusCode::BAD_GATEWAY));
        for nonsense in ["a", "//other/a", "http://host"] {
            assert_eq!(to(nonsense), Err(StatusCode::BAD_REQUEST), "{nonsense}");
        }
    }
}
