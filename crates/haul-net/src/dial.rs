//! Opens a TCP connection to the first address of a host that responds (Happy Eyeballs, RFC 8305):
//! one more address is dialled every 250 ms, or as soon as one has failed, so that none waits for
//! another's timeout. Through a SOCKS proxy, the addresses of the proxy are raced.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haul_storage::{Error, ErrorKind, Result, Retry, io_cause};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

use super::authority::with_port;
use super::socks::{Socks5, Target};

/// "Connection Attempt Delay" of RFC 8305, 5.
const STAGGER: Duration = Duration::from_millis(250);

/// How to reach a host.
#[derive(Debug, Clone, Default)]
pub struct DialOptions {
    /// The address family to use.
    pub family: Family,
    /// The local address to connect from.
    pub bind: Option<String>,
    /// Timeout until the connection is established.
    pub limit: Option<Duration>,
    /// The connection is lost if sent bytes are not acknowledged for this long.
    pub silence: Option<Duration>,
    /// The proxy to connect through.
    pub proxy: Option<Socks5>,
}

/// Options that apply to all hosts of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// The address family to use.
    pub family: Family,
    /// Timeout until a connection is established.
    pub limit: Duration,
}

impl Default for Reach {
    fn default() -> Self {
        Self { family: Family::Any, limit: Duration::from_secs(60) }
    }
}

/// The address family to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// IPv4 and IPv6.
    #[default]
    Any,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A connection, and its RTT as measured by the handshake.
#[derive(Debug)]
pub struct Dialled {
    /// The connection, without Nagle's delay.
    pub stream: TcpStream,
    /// Time from SYN to SYN-ACK; through a proxy, from the request to connect to its reply.
    pub rtt: Duration,
}

/// Connects to a host.
///
/// # Errors
/// `Unreachable`, with the failure of every address, or after the timeout. It is not retried if the name does not
/// exist. Through a proxy, also other kinds, if the proxy refuses the credentials or the target, or does not speak
/// SOCKS5.
pub async fn dial(host: &str, port: u16, options: &DialOptions) -> Result<Dialled> {
    let unreachable = || {
        let error = Error::new(ErrorKind::Unreachable, "connect");
        error.at(with_port(host, port))
    };
    let attempt = async {
        match &options.proxy {
            None => direct(host, port, options).await,
            Some(proxy) => {
                let dialled = through(proxy, host, port, options).await;
                dialled.map_err(|error| error.at(with_port(host, port)))
            }
        }
    };
    match options.limit {
        None => attempt.await,
        Some(limit) => timeout(limit, attempt).await.unwrap_or_else(|_| {
            Err(unreachable().because(format!("timed out after {} s", limit.as_secs())))
        }),
    }
}

async fn direct(host: &str, port: u16, options: &DialOptions) -> Result<Dialled> {
    let unreachable = || Error::new(ErrorKind::Unreachable, "connect").at(with_port(host, port));
    let addresses = addresses(host, port, options.family).await.map_err(|error| {
        let retry = if is_transient(&error) { Retry::Later } else { Retry::Never };
        unreachable().with_source(error).with_retry(retry)
    })?;
    let only = format!("{}: ", with_port(host, port));
    race(&addresses, options).await.map_err(|failures| {
        // If the host was given as an address, the error names it already.
        unreachable().because(failures.strip_prefix(&only).unwrap_or(&failures))
    })
}

/// Connects to a host through a proxy. If this machine resolves the name, its addresses are tried
/// one after the other.
async fn through(proxy: &Socks5, host: &str, port: u16, options: &DialOptions) -> Result<Dialled> {
    // An IPv6 zone is local, and means nothing to the proxy.
    let bare = host.split('%').next().unwrap_or(host);
    let targets = match Target::named(bare, port) {
        Target::Name(..) if !proxy.resolves() => {
            let found = addresses(host, port, options.family).await.map_err(|error| {
                let retry = if is_transient(&error) { Retry::Later } else { Retry::Never };
                Error::new(ErrorKind::Unreachable, "connect").with_source(error).with_retry(retry)
            })?;
            found.into_iter().map(Target::Address).collect()
        }
        target => vec![target],
    };
    let mut failure = None;
    for target in targets {
        // The same limits apply to the connection to the proxy.
        let to_proxy = direct(proxy.host(), proxy.port(), options).await.map_err(|error| {
            let retry = error.retry();
            let cause = format!("the proxy {proxy} cannot be reached: {}", error.cause());
            Error::new(ErrorKind::Unreachable, "connect").because(cause).with_retry(retry)
        })?;
        let Dialled { mut stream, .. } = to_proxy;
        match proxy.connect(&mut stream, &target).await {
            Ok(rtt) => return Ok(Dialled { stream, rtt }),
            Err(error) if error.kind() == ErrorKind::Unreachable => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| Error::new(ErrorKind::Unreachable, "connect")))
}

async fn addresses(host: &str, port: u16, family: Family) -> io::Result<Vec<SocketAddr>> {
    let found = tokio::net::lookup_host((host, port)).await?;
    let wanted = |address: &SocketAddr| match family {
        Family::Any => true,
        Family::V4 => address.is_ipv4(),
        Family::V6 => address.is_ipv6(),
    };
    let found = interleave(found.filter(wanted).collect());
    if found.is_empty() {
        return Err(io::Error::other("the host has no address of the requested family"));
    }
    Ok(found)
}

/// Whether a failed lookup may succeed later. The standard library hides the error number of
/// getaddrinfo(3) and returns its message, which is never translated here because nothing sets a
/// locale. The first three are the messages for `EAI_AGAIN` of glibc, of musl and of FreeBSD. The number of a
/// system error, such as "too many open files", exists only for `EAI_SYSTEM`.
fn is_transient(error: &io::Error) -> bool {
    const AGAIN: [&str; 4] = [
        "Temporary failure in name resolution",
        "Try again",
        "Name could not be resolved at this time",
        "temporarily unavailable",
    ];
    let words = error.to_string();
    error.raw_os_error().is_some() || AGAIN.iter().any(|again| words.contains(again))
}

/// Alternates families, beginning with that of the first address (RFC 8305, 4).
fn interleave(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().copied() else { return addresses };
    let (same, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv4() == first.is_ipv4());
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut result: Vec<SocketAddr> = Vec::new();
    loop {
        let pair = [same.next(), other.next()];
        if pair == [None, None] {
            return result;
        }
        for address in pair.into_iter().flatten() {
            if !result.contains(&address) {
                result.push(address);
            }
        }
    }
}

/// The first connection that succeeds, or a text with all failures.
async fn race(addresses: &[SocketAddr], options: &DialOptions) -> Result<Dialled, String> {
    let mut waiting = addresses.iter();
    let mut attempts = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        if let Some(&address) = waiting.next() {
            attempts.push(async move { (address, connect(address, options).await) });
        } else if attempts.is_empty() {
            return Err(failures.join("; "));
        }
        let more = waiting.len() > 0;
        tokio::select! {
            Some((address, result)) = attempts.next() => match result {
                Ok(dialled) => return Ok(dialled),
                Err(error) => failures.push(format!("{address}: {}", io_cause(&error))),
            },
            () = sleep(STAGGER), if more => {}
        }
    }
}

async fn connect(address: SocketAddr, options: &DialOptions) -> io::Result<Dialled> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(bind) = &options.bind {
        let local: IpAddr = bind
            .parse()
            .map_err(|_| io::Error::other(format!("{bind} is not a local address to bind to")))?;
        socket.bind(SocketAddr::new(local, 0))?;
    }
    let start = Instant::now();
    let stream = socket.connect(address).await?;
    let rtt = start.elapsed();
    stream.set_nodelay(true)?;
    limit_silence(&stream, options.silence)?;
    Ok(Dialled { stream, rtt })
}

/// Keepalives reveal a dead link only to a reader. With this, the kernel fails a connection whose
/// sent bytes are not acknowledged for `limit`; a slow link that moves bytes is not affected.
/// It is set on Linux only.
fn limit_silence(stream: &TcpStream, limit: Option<Duration>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if let Some(limit) = limit {
        let millis = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, limit);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_dialled_with_families_in_turn() {
        let parse = |list: &[&str]| -> Vec<SocketAddr> {
            list.iter().map(|text| text.parse().unwrap()).collect()
        };
        let found = parse(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "[::1]:1"]);
        assert_eq!(interleave(found), parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
    }

    #[tokio::test]
    async fn a_silent_address_does_not_delay_the_next() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listening = listener.local_addr().unwrap();
        // From TEST-NET-1 (RFC 5737): no host has this address, and usually no error is returned.
        let silent: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let dialled = race(&[silent, listening], &DialOptions::default()).await.unwrap();
        assert_eq!(dialled.stream.peer_addr().unwrap(), listening);
    }

    #[tokio::test]
    async fn if_all_addresses_fail_all_failures_are_named() {
        // The sockets stay bound, so that no other test listens on these ports.
        let bound = |socket: io::Result<TcpSocket>, address: &str| {
            let socket = socket.unwrap();
            socket.bind(address.parse().unwrap()).unwrap();
            socket
        };
        let closed =
            [bound(TcpSocket::new_v4(), "127.0.0.1:0"), bound(TcpSocket::new_v6(), "[::1]:0")];
        let addresses = closed.each_ref().map(|socket| socket.local_addr().unwrap());
        let failures = race(&addresses, &DialOptions::default()).await.unwrap_err();
        for address in addresses {
            assert!(failures.contains(&address.to_string()), "{failures}");
        }
    }

    #[tokio::test]
    async fn a_name_that_does_not_exist_is_not_retried() {
        // Longer than a label may be (RFC 1035, 2.3.4), so no resolver is queried.
        let name = "a".repeat(64);
        let error = dial(&name, 22, &DialOptions::default()).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.retry()),
            (ErrorKind::Unreachable, Retry::Never),
            "{error}"
        );
        assert!(error.to_string().contains(&format!("{name}:22")), "{error}");
    }

    #[test]
    fn a_transient_lookup_failure_is_retried() {
        let failed = |words: &str| io::Error::other(format!("failed to lookup: {words}"));
        assert!(is_transient(&failed("Temporary failure in name resolution")));
        assert!(is_transient(&failed("Name could not be resolved at this time")));
        assert!(is_transient(&io::Error::from_raw_os_error(24)));
        assert!(!is_transient(&failed("Name or service not known")));
        assert!(!is_transient(&failed("No address associated with hostname")));
        assert!(!is_transient(&io::Error::other(
            "the host has no address of the requested family"
        )));
    }
}
