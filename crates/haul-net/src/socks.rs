//! SOCKS version 5 (RFC 1928), with user and password (RFC 1929): a proxy that forwards a TCP
//! connection.
//!
//! ```text
//! methods → method (→ user and password → status) → CONNECT → reply, then bytes from the server
//! ```

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, Result, Retry};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::authority::with_port;
use super::secret::Secret;

const VERSION: u8 = 5;
/// Version of the user/password negotiation (RFC 1929), which has version numbers of its own.
const LOGIN_VERSION: u8 = 1;

const NO_LOGIN: u8 = 0;
const LOGIN: u8 = 2;
const NO_METHOD: u8 = 0xff;

const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Longest name, user and password: their length is sent in one byte.
const LONGEST: usize = 255;

/// A SOCKS5 proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socks5 {
    host: String,
    port: u16,
    login: Option<(String, Secret)>,
    resolves: bool,
}

/// As in a URL, without the credentials.
impl fmt::Display for Socks5 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.resolves { "socks5h" } else { "socks5" };
        write!(f, "{scheme}://{}", with_port(&self.host, self.port))
    }
}

impl Socks5 {
    /// A proxy at `host:port`, with credentials in case it requires them. With `resolves`, the
    /// proxy resolves host names instead of this machine (`socks5h`). `None` if user or password
    /// are empty or longer than 255 bytes, which the protocol cannot send.
    pub fn new(
        host: &str,
        port: u16,
        login: Option<(String, Secret)>,
        resolves: bool,
    ) -> Option<Self> {
        let fits = |text: &str| (1..=LONGEST).contains(&text.len());
        if let Some((user, password)) = &login
            && !(fits(user) && fits(password.expose()))
        {
            return None;
        }
        Some(Self { host: host.to_owned(), port, login, resolves })
    }

    /// Its host name or address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether the proxy resolves host names.
    pub const fn resolves(&self) -> bool {
        self.resolves
    }

    /// Connects to `target`, and returns the time from the request to the reply: about the RTT to the server.
    /// Bytes that follow on `stream` are from the server.
    ///
    /// # Errors
    /// If the name is longer than 255 bytes, the connection is lost, or the proxy refuses, cannot reach the server, or
    /// does not speak SOCKS5.
    pub(crate) async fn connect(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        target: &Target<'_>,
    ) -> Result<Duration> {
        self.greet(stream).await?;
        let mut request = vec![VERSION, CONNECT, 0];
        target.write(&mut request).ok_or_else(|| {
            self.failed(
                ErrorKind::InvalidInput,
                "a name of more than 255 bytes cannot be sent to it",
            )
        })?;
        let start = Instant::now();
        self.send(stream, &request).await?;
        let [version, reply, _, kind] = self.receive(stream).await?;
        let rtt = start.elapsed();
        if version != VERSION {
            return Err(self.wrong(version));
        }
        if reply != 0 {
            return Err(self.refused(reply));
        }
        // The proxy's own address towards the server, which is not needed.
        let length = match kind {
            IPV4 => 4,
            IPV6 => 16,
            NAME => usize::from(self.receive::<1>(stream).await?[0]),
            _ => return Err(self.failed(ErrorKind::Protocol, "its reply is malformed")),
        };
        let mut rest = [0; LONGEST + 2];
        stream.read_exact(&mut rest[..length + 2]).await.map_err(|error| self.lost(&error))?;
        Ok(rtt)
    }

    /// Negotiates a method, and authenticates if that is user and password.
    async fn greet(&self, stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<()> {
        let methods: &[u8] = if self.login.is_some() {
            &[VERSION, 2, NO_LOGIN, LOGIN]
        } else {
            &[VERSION, 1, NO_LOGIN]
        };
        self.send(stream, methods).await?;
        let [version, method] = self.receive(stream).await?;
        if version != VERSION {
            return Err(self.wrong(version));
        }
        match (method, &self.login) {
            (NO_LOGIN, _) => Ok(()),
            (LOGIN, Some((user, password))) => {
                let mut message = zeroize::Zeroizing::new(Vec::with_capacity(3 + 2 * LONGEST));
                message.push(LOGIN_VERSION);
                for text in [user, password.expose()] {
                    message.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                    message.extend_from_slice(text.as_bytes());
                }
                self.send(stream, &message).await?;
                match self.receive(stream).await? {
                    [_, 0] => Ok(()),
                    _ => Err(self.failed(
                        ErrorKind::Unauthenticated,
                        "it rejected the user name or password",
                    )),
                }
            }
            (LOGIN | NO_METHOD, None) => Err(self
                .failed(ErrorKind::Unauthenticated, "it requires credentials")
                .hinting("put them into its URL: socks5://USER:PASSWORD@HOST:PORT")),
            _ => Err(self.failed(
                ErrorKind::Unauthenticated,
                "it accepts neither password authentication nor anonymous clients",
            )),
        }
    }

    async fn send(&self, stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<()> {
        stream.write_all(bytes).await.map_err(|error| self.lost(&error))?;
        stream.flush().await.map_err(|error| self.lost(&error))
    }

    async fn receive<const N: usize>(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        stream.read_exact(&mut bytes).await.map_err(|error| self.lost(&error))?;
        Ok(bytes)
    }

    /// The error for a reply other than 0 (RFC 1928, 6).
    fn refused(&self, reply: u8) -> Error {
        let (kind, retry, cause) = match reply {
            1 => (ErrorKind::Unreachable, Retry::Later, "general failure"),
            2 => {
                (ErrorKind::PermissionDenied, Retry::Never, "its rules do not allow the connection")
            }
            3 => (ErrorKind::Unreachable, Retry::Later, "network unreachable"),
            4 => (ErrorKind::Unreachable, Retry::Later, "host unreachable"),
            5 => (ErrorKind::Unreachable, Retry::Later, "connection refused"),
            6 => (ErrorKind::Unreachable, Retry::Later, "TTL expired"),
            7 => (ErrorKind::Unsupported, Retry::Never, "it does not support CONNECT"),
            8 => (ErrorKind::Unsupported, Retry::Never, "it does not support this type of address"),
            _ => (ErrorKind::Protocol, Retry::Never, "an error code that SOCKS5 does not define"),
        };
        Error::new(kind, "connect")
            .because(format!("the proxy {self} reports: {cause}"))
            .with_retry(retry)
    }

    /// The error for a response that is not SOCKS5.
    fn wrong(&self, version: u8) -> Error {
        let cause = match version {
            b'H' => "it is an HTTP proxy",
            4 | 0 => "it speaks version 4 only",
            _ => "it does not speak SOCKS5",
        };
        self.failed(ErrorKind::Protocol, cause)
    }

    fn lost(&self, error: &io::Error) -> Error {
        let cause = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
            _ => haul_storage::io_cause(error),
        };
        Error::new(ErrorKind::Unreachable, "connect").because(format!("the proxy {self}: {cause}"))
    }

    fn failed(&self, kind: ErrorKind, cause: &str) -> Error {
        let error = Error::new(kind, "connect").because(format!("the proxy {self}: {cause}"));
        error.with_retry(Retry::Never)
    }
}

/// The target of a connection through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// An address.
    Address(SocketAddr),
    /// A name for the proxy to resolve.
    Name(&'a str, u16),
}

impl<'a> Target<'a> {
    /// Parses `host` as an address, or keeps it as a name.
    pub(crate) fn named(host: &'a str, port: u16) -> Self {
        match host.parse::<IpAddr>() {
            Ok(address) => Self::Address(SocketAddr::new(address, port)),
            Err(_) => Self::Name(host, port),
        }
    }

    /// Appends the target to a request; `None` if the name is too long.
    fn write(&self, to: &mut Vec<u8>) -> Option<()> {
        let port = match self {
            Self::Address(SocketAddr::V4(address)) => {
                to.push(IPV4);
                to.extend_from_slice(&address.ip().octets());
                address.port()
            }
            Self::Address(SocketAddr::V6(address)) => {
                to.push(IPV6);
                to.extend_from_slice(&address.ip().octets());
                address.port()
            }
            Self::Name(name, port) => {
                to.extend_from_slice(&[NAME, u8::try_from(name.len()).ok()?]);
                to.extend_from_slice(name.as_bytes());
                *port
            }
        };
        to.extend_from_slice(&port.to_be_bytes());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// The bytes expected from the client, and the response.
    type Step<'a> = (&'a [u8], &'a [u8]);

    fn proxy(login: Option<(&str, &str)>) -> Socks5 {
        let login = login.map(|(user, password)| (user.to_owned(), Secret::new(password)));
        Socks5::new("p", 1080, login, true).unwrap()
    }

    /// Runs a proxy that follows `script`; returns the client's outcome, and the bytes that it left unread.
    async fn played(
        proxy: &Socks5,
        target: Target<'_>,
        script: &[Step<'_>],
    ) -> (Result<Duration>, Vec<u8>) {
        let (mut near, mut far) = duplex(4096);
        let playing = async {
            for (expected, response) in script {
                let mut request = vec![0; expected.len()];
                far.read_exact(&mut request).await.unwrap();
                assert_eq!(request, *expected);
                far.write_all(response).await.unwrap();
            }
            far.shutdown().await.unwrap();
        };
        let connecting = async { proxy.connect(&mut near, &target).await };
        let (outcome, ()) = tokio::join!(connecting, playing);
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        (outcome, rest)
    }

    #[tokio::test]
    async fn a_name_is_sent_to_the_proxy_and_bytes_after_the_reply_are_the_servers() {
        let request = b"\x05\x01\x00\x03\x06server\x01\xbb";
        for bound in [
            &b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50"[..],
            b"\x05\x00\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50",
            b"\x05\x00\x00\x03\x01p\x00\x50",
        ] {
            let reply = [bound, b"220 hello"].concat();
            let script: [Step<'_>; 2] = [(b"\x05\x01\x00", b"\x05\x00"), (&request[..], &reply)];
            let (outcome, rest) = played(&proxy(None), Target::named("server", 443), &script).await;
            outcome.unwrap();
            assert_eq!(rest, b"220 hello");
        }
    }

    #[tokio::test]
    async fn addresses_are_sent_as_addresses() {
        let replied = &b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"[..];
        for (host, request) in [
            ("192.0.2.1", &b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"[..]),
            ("::1", b"\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50"),
        ] {
            let script: [Step<'_>; 2] = [(b"\x05\x01\x00", b"\x05\x00"), (request, replied)];
            played(&proxy(None), Target::named(host, 80), &script).await.0.unwrap();
        }
    }

    #[tokio::test]
    async fn user_and_password_are_sent_only_on_request() {
        let proxy = proxy(Some(("ada", "geheim")));
        let login = &b"\x01\x03ada\x06geheim"[..];
        let request = &b"\x05\x01\x00\x03\x01h\x00\x50"[..];
        let replied = &b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"[..];
        let methods = &b"\x05\x02\x00\x02"[..];
        let script = [(methods, &b"\x05\x02"[..]), (login, b"\x01\x00"), (request, replied)];
        played(&proxy, Target::named("h", 80), &script).await.0.unwrap();
        let script = [(methods, &b"\x05\x00"[..]), (request, replied)];
        played(&proxy, Target::named("h", 80), &script).await.0.unwrap();
        let script = [(methods, &b"\x05\x02"[..]), (login, b"\x01\x01")];
        let error = played(&proxy, Target::named("h", 80), &script).await.0.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Unauthenticated, Retry::Never));
        assert!(!error.to_string().contains("geheim") && !format!("{proxy:?}").contains("geheim"));
    }

    #[tokio::test]
    async fn errors_of_the_proxy_are_explained() {
        let methods = &b"\x05\x01\x00"[..];
        let request = &b"\x05\x01\x00\x03\x01h\x00\x50"[..];
        let cases: [(&[Step<'_>], &str, Retry); 6] = [
            (&[(methods, b"\x05\xff")], "it requires credentials", Retry::Never),
            (&[(methods, b"HT")], "it is an HTTP proxy", Retry::Never),
            (&[(methods, b"")], "it closed the connection", Retry::Later),
            (
                &[(methods, b"\x05\x00"), (request, b"\x05\x05\x00\x01\0\0\0\0\0\0")],
                "connection refused",
                Retry::Later,
            ),
            (
                &[(methods, b"\x05\x00"), (request, b"\x05\x02\x00\x01\0\0\0\0\0\0")],
                "its rules do not allow the connection",
                Retry::Never,
            ),
            (
                &[(methods, b"\x05\x00"), (request, b"\x05\x00\x00\x09\0\0\0\0\0\0")],
                "its reply is malformed",
                Retry::Never,
            ),
        ];
        for (script, cause, retry) in cases {
            let (outcome, _) = played(&proxy(None), Target::named("h", 80), script).await;
            let error = outcome.unwrap_err();
            assert!(error.to_string().contains(cause), "{error}");
            assert!(error.to_string().contains("socks5h://p:1080"), "{error}");
            assert_eq!(error.retry(), retry, "{error}");
        }
    }

    #[test]
    fn credentials_and_names_that_cannot_be_sent_are_refused() {
        let long = "x".repeat(256);
        for (user, password) in [("", "p"), ("u", ""), (&long[..], "p"), ("u", &long[..])] {
            let login = Some((user.to_owned(), Secret::new(password)));
            assert_eq!(Socks5::new("p", 1, login, false), None);
        }
        assert_eq!(Target::named(&long, 80).write(&mut Vec::new()), None);
    }
}
