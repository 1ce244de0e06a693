//! Selects the proxy for a server, and opens tunnels through HTTP proxies.

use std::collections::HashMap;
use std::fmt;

use haul_net::{Socks5, with_port};
use haul_storage::{Error, ErrorKind, Result, Retry};
use http::HeaderValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::parse::proxy::{OPTION, Proxy, ProxyError, proxy_for, proxy_for_ftp};
use crate::parse::{Origin, basic};

/// The longest response of a proxy to CONNECT, in bytes.
const MAX_RESPONSE: usize = 16 << 10;

/// Environment variables, as they were at the start, and `--proxy`.
#[derive(Clone, Default)]
pub struct Proxies {
    variables: HashMap<String, String>,
}

/// Shows no values, since they may contain passwords.
impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proxies")
    }
}

impl Proxies {
    /// The proxy variables of this process. Other variables need not be UTF-8.
    pub fn of_environment() -> Self {
        let wanted = |name: &str| {
            let name = name.to_ascii_lowercase();
            name.ends_with("_proxy") || name == "request_method"
        };
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| wanted(name))?;
            // A proxy variable that is not UTF-8 is not left out: connections would bypass the proxy.
            Some((name, value.to_string_lossy().into_owned()))
        });
        Self { variables: variables.collect() }
    }

    /// The same with the value of `--proxy`, which overrides all variables but `no_proxy`.
    #[must_use]
    pub fn with_option(mut self, value: Option<&str>) -> Self {
        self.variables.extend(value.map(|value| (OPTION.to_owned(), value.to_owned())));
        self
    }

    /// The proxy for a server.
    ///
    /// # Errors
    /// A variable names an unusable proxy.
    pub fn of(&self, origin: &Origin) -> Result<Option<Proxy>> {
        let found = proxy_for(origin, |name| self.variables.get(name).cloned());
        found.map_err(|error| unusable(error, &origin.to_string()))
    }

    /// The proxy for an FTP server.
    ///
    /// # Errors
    /// As [`Proxies::of`].
    pub fn of_ftp(&self, host: &str, port: u16) -> Result<Option<Socks5>> {
        let found = proxy_for_ftp(host, port, |name| self.variables.get(name).cloned());
        found.map_err(|error| unusable(error, &with_port(host, port)))
    }
}

fn unusable(error: ProxyError, at: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, "find the proxy").at(at).because(error.to_string())
}

/// The value of `Proxy-Authorization`.
///
/// # Errors
/// It has characters that cannot be sent.
pub fn authorization(proxy: &Proxy) -> Result<Option<HeaderValue>> {
    let Some(user) = &proxy.user else { return Ok(None) };
    let password = proxy.password.as_ref().map_or("", |password| password.as_str());
    let wrong = |cause: String| {
        Error::new(ErrorKind::InvalidInput, "authenticate to the proxy").at(proxy).because(cause)
    };
    let text = basic::authorization(user, password).map_err(|error| wrong(error.to_string()))?;
    let mut value = HeaderValue::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// Opens a tunnel to a server through an HTTP proxy (CONNECT; RFC 9110, 9.3.6).
///
/// # Errors
/// The connection fails, or the proxy refuses or does not speak HTTP.
pub async fn tunnel(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    proxy: &Proxy,
    origin: &Origin,
) -> Result<()> {
    let host = match origin.host() {
        host if host.contains(':') => format!("[{host}]:{}", origin.port()),
        host => format!("{host}:{}", origin.port()),
    };
    let mut request = format!("CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n").into_bytes();
    if let Some(value) = authorization(proxy)? {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    let failed = |error| Error::from_io("connect through the proxy", error).at(proxy);
    stream.write_all(&request).await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    let wrong = |kind, cause: String| {
        Error::new(kind, "connect through the proxy").at(proxy).because(cause)
    };
    let mut received = Vec::new();
    loop {
        // Byte by byte, because bytes behind the response belong to the server.
        let byte = stream.read_u8().await.map_err(failed)?;
        received.push(byte);
        if received.ends_with(b"\r\n\r\n") {
            break;
        }
        if received.len() > MAX_RESPONSE {
            return Err(wrong(ErrorKind::Protocol, "its response is too long".to_owned()));
        }
    }
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(&received);
    match (parsed, response.code) {
        (Ok(_), Some(200..=299)) => Ok(()),
        (Ok(_), Some(407)) => {
            Err(wrong(ErrorKind::Unauthenticated, "it requires credentials".to_owned())
                .hinting("put them into its URL: http://USER:PASSWORD@HOST:PORT")
                .with_retry(Retry::Never))
        }
        (Ok(_), Some(code @ (502..=504))) => {
            Err(wrong(ErrorKind::Unreachable, format!("it returned {code}")))
        }
        (Ok(_), Some(code)) => {
            Err(wrong(ErrorKind::PermissionDenied, format!("it returned {code}")))
        }
        (Ok(_), None) => Err(wrong(ErrorKind::Protocol, "it returned no status".to_owned())),
        (Err(error), _) => Err(wrong(ErrorKind::Protocol, error.to_string())),
    }
}
