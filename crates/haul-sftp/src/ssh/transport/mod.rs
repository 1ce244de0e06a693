//! The SSH protocol itself, by russh. This is the only place that knows russh's connections and
//! channels; keys are of the crate ssh-key, which it brings along.
//!
//! ```text
//! stream → open: versions, key exchange, host key judged → Handshake: one request of
//! authentication after the other → Session: channels
//! ```
//!
//! Round trips are counted where they are waited for.

mod channel;
mod events;
mod handshake;
mod link;
mod preferred;
mod session;
mod tunnel;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result, Retry};
use russh::client;
use russh::{Limits, SshId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

pub use self::channel::{Channel, Incoming, Outgoing};
pub use self::events::Greeter;
use self::events::{End, Events, Failure, State};
pub use self::handshake::{Answer, Handshake, PublicHalf, Questions, SignWith, known_methods};
pub use self::session::Session;
pub use self::tunnel::Tunnel;
use super::algorithms::Algorithms;
use super::config::HostConfig;
use super::host_key::HostKeyJudge;
use super::known_hosts::KnownHosts;

/// Bytes that a server may send on a channel before it hears that they arrived: enough for 1 Gbit/s
/// at 250 ms. Dropbear stalls above 64 MiB.
const WINDOW: u32 = 32 << 20;

/// The largest that russh takes.
const PACKET: u32 = 65_535;

/// Bytes after which keys are exchanged anew. RFC 4344 allows 2^32 blocks of AES, 64 GiB; OpenSSH
/// takes as much. Packets have a number of 32 bits as well: at 16 GiB those of haul's size use a
/// few million.
const REKEY: u64 = 16 << 30;

/// Without a byte limit reached, keys last a day.
const REKEY_TIME: Duration = Duration::from_secs(86_400);

/// Anything that an SSH connection can run over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Counts the times that somebody waited for an answer from the far end.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips(Arc<AtomicU32>);

impl RoundTrips {
    /// So many more.
    pub fn add(&self, count: u32) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// All so far.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What [`open`] needs to know besides the stream.
#[derive(Debug)]
pub struct Opening<'a> {
    /// The host's configuration.
    pub config: &'a HostConfig,
    /// What is offered.
    pub algorithms: &'a Algorithms,
    /// Who decides on the host key.
    pub judge: Arc<HostKeyJudge>,
    /// What the host keys are compared with.
    pub known: Arc<KnownHosts>,
    /// Who is shown banners.
    pub greeter: Arc<Greeter>,
    /// What the host is called in errors.
    pub location: String,
    /// Where round trips are counted.
    pub round_trips: RoundTrips,
}

/// Exchanges versions and keys, and has the host key judged.
///
/// # Errors
/// `Busy` if the server closes before that is done, as one with too many unauthenticated
/// connections does; `Unreachable` if it does not answer; `Protocol` if the two have no common
/// language; what the judge says.
pub async fn open<S: Stream + 'static>(stream: S, opening: Opening<'_>) -> Result<Handshake> {
    let has_authority = opening.known.has_authority(&opening.judge.host);
    let config = Arc::new(client_config(opening.config, opening.algorithms, has_authority));
    let state = Arc::new(State::new(opening.location));
    let events = Events::new(Arc::clone(&state), opening.judge, opening.known, opening.greeter);
    let (stream, knife) = link::link(stream, Arc::clone(&state.first_exchange));
    let connecting = client::connect_stream(config, stream, events);
    let patience = opening.config.connect_timeout;
    let handle = patiently(patience, &state, "connect", connecting).await?;
    let handle = match handle {
        Ok(handle) => handle,
        Err(failure) => return Err(state.opening_failed(failure)),
    };
    // Versions and algorithms cross each other; then the keys.
    opening.round_trips.add(1 + state.kex_round_trips());
    Ok(Handshake::new(handle, state, knife, opening.config, opening.round_trips))
}

fn client_config(config: &HostConfig, algorithms: &Algorithms, certified: bool) -> client::Config {
    // More than the cipher stands is not for a configuration to allow.
    let rekey = config.rekey_limit.unwrap_or(REKEY).min(REKEY);
    let rekey = usize::try_from(rekey).unwrap_or(usize::MAX);
    // russh gives up at the tick after so many; 0 would mean never.
    let alive_max = match config.alive_count {
        0 => 0,
        count => usize::try_from(count.saturating_sub(1).max(1)).unwrap_or(usize::MAX),
    };
    client::Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!(
            "SSH-2.0-haul_",
            env!("CARGO_PKG_VERSION")
        ))),
        limits: Limits {
            rekey_write_limit: rekey,
            rekey_read_limit: rekey,
            rekey_time_limit: REKEY_TIME,
        },
        window_size: WINDOW,
        maximum_packet_size: PACKET,
        preferred: preferred::preferred(algorithms, certified),
        keepalive_interval: config.alive_interval,
        keepalive_max: alive_max,
        nodelay: true,
        ..client::Config::default()
    }
}

/// Waits for the far end, but not longer than `limit` at a stretch in which nobody here is asked
/// anything: whoever compares a fingerprint or looks for a passphrase may take their time.
async fn patiently<T>(
    limit: Option<Duration>,
    state: &State,
    operation: &'static str,
    waiting: impl Future<Output = T>,
) -> Result<T> {
    let Some(limit) = limit else { return Ok(waiting.await) };
    tokio::pin!(waiting);
    loop {
        match timeout(limit, &mut waiting).await {
            Ok(result) => return Ok(result),
            Err(_) if state.is_asking() => {}
            Err(_) => {
                return Err(state
                    .error(ErrorKind::Unreachable, operation)
                    .because(format!("no answer within {} s", limit.as_secs_f32())));
            }
        }
    }
}

impl State {
    /// Why no connection came about.
    fn opening_failed(&self, failure: Failure) -> Error {
        match failure {
            Failure::Refused(error) => error,
            Failure::Ssh(error) => self.opening_error(&error),
        }
    }

    fn opening_error(&self, error: &russh::Error) -> Error {
        use russh::Error as Ssh;
        let closed = || self.error(ErrorKind::Busy, "connect");
        match error {
            // The server said why: what it cannot negotiate, it never will.
            _ if self.end_is(|end| matches!(end, End::Farewell { fatal: true, .. })) => self
                .error(ErrorKind::Protocol, "connect")
                .because(self.reason().unwrap_or_default()),
            Ssh::Disconnect | Ssh::HUP => closed().because(self.reason().unwrap_or_else(|| {
                "the server closed the connection before keys were exchanged; it may have too many \
                 connections that are not authenticated (MaxStartups)"
                    .to_owned()
            })),
            Ssh::IO(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::ConnectionReset
                        | std::io::ErrorKind::ConnectionAborted
                        | std::io::ErrorKind::BrokenPipe
                        | std::io::ErrorKind::UnexpectedEof
                ) =>
            {
                closed().because(format!(
                    "the server closed the connection before keys were exchanged ({error})"
                ))
            }
            Ssh::IO(error) => {
                self.error(ErrorKind::Unreachable, "connect").because(error.to_string())
            }
            Ssh::NoCommonAlgo { kind, ours, theirs } => {
                self.error(ErrorKind::Protocol, "connect").because(format!(
                    "no common {} algorithm: haul offers {}, the server has {}",
                    preferred::kind(kind),
                    ours.join(","),
                    theirs.join(",")
                ))
            }
            Ssh::Version => self
                .error(ErrorKind::Protocol, "connect")
                .because("what answers there does not speak SSH"),
            Ssh::WrongServerSig => self
                .error(ErrorKind::Unauthenticated, "verify the host key")
                .because("the server does not hold the private half of the key that it shows")
                .with_retry(Retry::Never),
            error => self.error(ErrorKind::Protocol, "connect").because(error.to_string()),
        }
    }
}
