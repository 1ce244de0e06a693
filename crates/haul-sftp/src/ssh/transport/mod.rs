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
mod link;
mod preferred;
mod tunnel;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use haul_storage::{Error, ErrorKind, Result, Retry};
use russh::client::{self, AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::{Certificate, HashAlg, PublicKey};
use russh::{Limits, MethodKind, SshId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

pub use self::channel::{Channel, Incoming, Outgoing};
pub use self::events::Greeter;
use self::events::{End, Events, Failure, State};
use self::link::Knife;
pub use self::tunnel::Tunnel;
use super::algorithms::Algorithms;
use super::config::{HostConfig, Method};
use super::host_key::HostKeyJudge;
use super::known_hosts::KnownHosts;
use super::options::Secret;

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

/// How long a server is given for its EXT_INFO to be read, which it sends together with the end of
/// the key exchange (RFC 8308, 2.4).
const EXTENSIONS: Duration = Duration::from_millis(20);

/// How long the far end may take to see a farewell.
const FAREWELL: Duration = Duration::from_secs(1);

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
    Ok(Handshake {
        handle,
        state,
        user: opening.config.user.clone(),
        patience: opening.config.silence_limit(),
        round_trips: opening.round_trips,
        service_requested: false,
        knife,
    })
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

/// What the server says to a request of authentication.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// That is enough.
    Success,
    /// It is not: it was wrong, or (`partial`) it was right and something else is needed too.
    Failure {
        /// The methods that can go on, by name.
        remaining: Vec<&'static str>,
        /// Whether this step was right.
        partial: bool,
    },
    /// Questions of keyboard-interactive.
    Questions(Questions),
}

/// Questions of keyboard-interactive (RFC 4256, 3.2).
#[derive(Debug, PartialEq, Eq)]
pub struct Questions {
    /// A heading and instructions, both often empty.
    pub heading: String,
    /// The questions, and whether the answer may be seen.
    pub prompts: Vec<(String, bool)>,
}

/// Signs with a private key.
#[async_trait]
pub trait SignWith: Send {
    /// Gives `data` followed by the signature over it, as a string of RFC 4251.
    async fn sign(&mut self, data: Vec<u8>, hash: Option<HashAlg>) -> Result<Vec<u8>>;
}

/// The public half of what is offered to a server.
#[derive(Debug, Clone)]
pub enum PublicHalf {
    /// A key.
    Key(PublicKey),
    /// A certificate for a key.
    Certificate(Box<Certificate>),
}

/// A connection to a host that is who it should be, and that does not know who we are.
pub struct Handshake {
    handle: Handle<Events>,
    state: Arc<State>,
    user: String,
    patience: Option<Duration>,
    round_trips: RoundTrips,
    service_requested: bool,
    knife: Knife,
}

impl Handshake {
    /// Offers a key, and signs with it if the server would take it: two round trips, or one if it
    /// would not.
    ///
    /// # Errors
    /// The connection was lost; what the signer says.
    pub async fn public_key(
        &mut self,
        half: &PublicHalf,
        signer: &mut dyn SignWith,
    ) -> Result<Answer> {
        let algorithm = match half {
            PublicHalf::Key(key) => key.algorithm(),
            PublicHalf::Certificate(certificate) => certificate.algorithm(),
        };
        let hash = if algorithm.is_rsa() { self.rsa_hash().await } else { None };
        self.request();
        let mut adapter = Adapter {
            signer,
            asked: false,
            round_trips: self.round_trips.clone(),
            state: Arc::clone(&self.state),
        };
        let (user, half) = (self.user.clone(), half.clone());
        let handle = &mut self.handle;
        let offering = async {
            match half {
                PublicHalf::Key(key) => {
                    handle.authenticate_publickey_with(user, key, hash, &mut adapter).await
                }
                PublicHalf::Certificate(certificate) => {
                    let certificate = *certificate;
                    handle
                        .authenticate_certificate_with(user, certificate, hash, &mut adapter)
                        .await
                }
            }
        };
        let result = patiently(self.patience, &self.state, "authenticate", offering).await?;
        match result {
            Ok(result) => self.answer(result).await,
            Err(SignFailure::Signer(error)) => Err(error),
            Err(SignFailure::Gone) => Err(self.state.lost("authenticate")),
        }
    }

    /// Sends a password.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn password(&mut self, password: &Secret) -> Result<Answer> {
        self.request();
        let sending = self.handle.authenticate_password(self.user.clone(), password.expose());
        let result = patiently(self.patience, &self.state, "authenticate", sending).await?;
        self.answer(result.map_err(|error| self.state.failed("authenticate", error))?).await
    }

    /// Asks for the questions of keyboard-interactive.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn questions(&mut self) -> Result<Answer> {
        self.request();
        let user = self.user.clone();
        let asking = self.handle.authenticate_keyboard_interactive_start(user, None);
        let response = patiently(self.patience, &self.state, "authenticate", asking).await?;
        self.interactive(response).await
    }

    /// Answers the questions, as many answers as there were prompts.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn answers(&mut self, answers: &[Secret]) -> Result<Answer> {
        self.round_trips.add(1);
        let answers = answers.iter().map(|answer| answer.expose().to_owned()).collect();
        let answering = self.handle.authenticate_keyboard_interactive_respond(answers);
        let response = patiently(self.patience, &self.state, "authenticate", answering).await?;
        self.interactive(response).await
    }

    /// Time of the first exchange: a round trip, and what starting a proxy took.
    pub fn first_exchange(&self) -> Duration {
        self.state.first_exchange.get().copied().unwrap_or_default()
    }

    /// The authenticated connection.
    pub fn into_session(self) -> Session {
        let Self { handle, state, patience, knife, .. } = self;
        Session { handle, state, patience, _knife: knife }
    }

    /// A request is one round trip, and the first one waits for the service to be accepted as well.
    fn request(&mut self) {
        self.round_trips.add(if self.service_requested { 1 } else { 2 });
        self.service_requested = true;
    }

    /// SHA-512 unless the server has said that it does not know it. Every server since 2016 that
    /// does not say so knows it.
    async fn rsa_hash(&self) -> Option<HashAlg> {
        match timeout(EXTENSIONS, self.handle.best_supported_rsa_hash()).await {
            Ok(Ok(Some(hash))) => hash,
            _ => Some(HashAlg::Sha512),
        }
    }

    async fn interactive(
        &mut self,
        response: Result<KeyboardInteractiveAuthResponse, russh::Error>,
    ) -> Result<Answer> {
        match response.map_err(|error| self.state.failed("authenticate", error))? {
            KeyboardInteractiveAuthResponse::Success => Ok(Answer::Success),
            KeyboardInteractiveAuthResponse::Failure { remaining_methods, partial_success } => {
                self.answer(AuthResult::Failure { remaining_methods, partial_success }).await
            }
            KeyboardInteractiveAuthResponse::InfoRequest { name, instructions, prompts } => {
                let heading = [name, instructions].map(|text| text.trim().to_owned());
                Ok(Answer::Questions(Questions {
                    heading: heading.join("\n").trim().to_owned(),
                    prompts: prompts.into_iter().map(|p| (p.prompt, p.echo)).collect(),
                }))
            }
        }
    }

    /// russh says "failure, and no method remains" for a lost connection as well.
    async fn answer(&mut self, result: AuthResult) -> Result<Answer> {
        match result {
            AuthResult::Success => Ok(Answer::Success),
            AuthResult::Failure { remaining_methods, partial_success } => {
                if remaining_methods.is_empty() {
                    self.state.ended().await;
                    if !self.state.refused_every_method() {
                        return Err(self.state.lost("authenticate"));
                    }
                }
                let remaining = remaining_methods
                    .iter()
                    .filter(|kind| **kind != MethodKind::None)
                    .map(<&'static str>::from)
                    .collect();
                Ok(Answer::Failure { remaining, partial: partial_success })
            }
        }
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

/// Passes russh's wish for a signature on, and counts the round trip that it costs.
struct Adapter<'a> {
    signer: &'a mut dyn SignWith,
    asked: bool,
    round_trips: RoundTrips,
    state: Arc<State>,
}

enum SignFailure {
    Signer(Error),
    Gone,
}

impl From<russh::SendError> for SignFailure {
    fn from(_: russh::SendError) -> Self {
        Self::Gone
    }
}

impl russh::Signer for Adapter<'_> {
    type Error = SignFailure;

    async fn auth_sign(
        &mut self,
        _key: &russh::keys::agent::AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, SignFailure> {
        if !self.asked {
            self.asked = true;
            self.round_trips.add(1);
        }
        let _asking = self.state.asking();
        self.signer.sign(data, hash).await.map_err(SignFailure::Signer)
    }
}

/// An authenticated connection.
pub struct Session {
    handle: Handle<Events>,
    state: Arc<State>,
    patience: Option<Duration>,
    _knife: Knife,
}

impl Session {
    /// What the server calls itself.
    pub fn server_version(&self) -> String {
        self.state.server_version()
    }

    /// Opens a session channel and asks for a subsystem on it, without waiting for the answer to
    /// that: it comes through [`Incoming::next`].
    ///
    /// # Errors
    /// `Busy` if the server opens no more channels; a lost connection.
    pub async fn subsystem(self: &Arc<Self>, name: &str) -> Result<Channel> {
        let opened = self.opened(self.handle.channel_open_session()).await?;
        channel::start(opened, Arc::clone(self), Arc::clone(&self.state), name).await
    }

    /// A stream to a host and port that the far end connects to.
    ///
    /// # Errors
    /// `Unreachable` if it cannot or may not connect; a lost connection.
    pub async fn direct_tcpip(self: &Arc<Self>, host: &str, port: u16) -> Result<Tunnel> {
        let (origin, origin_port) = ("127.0.0.1", 0);
        let opening = self.handle.channel_open_direct_tcpip(host, port.into(), origin, origin_port);
        let opened = self.opened(opening).await.map_err(|error| {
            let cause = error.cause();
            let error = if error.kind() == ErrorKind::Busy {
                Error::new(ErrorKind::Unreachable, "connect through a jump host")
            } else {
                error
            };
            error
                .because(format!("{} does not reach {host}:{port}: {cause}", self.state.location()))
        })?;
        Ok(Tunnel::new(opened, Arc::clone(self)))
    }

    async fn opened(
        &self,
        opening: impl Future<Output = Result<russh::Channel<client::Msg>, russh::Error>>,
    ) -> Result<russh::Channel<client::Msg>> {
        // Keepalives end the connection if nothing comes; the limit is for servers that answer
        // these and nothing else.
        let result = patiently(self.patience, &self.state, "open a channel", opening).await?;
        result.map_err(|error| match error {
            russh::Error::ChannelOpenFailure(reason) => self
                .state
                .error(ErrorKind::Busy, "open a channel")
                .because(self.state.refusal(&reason)),
            error => self.state.failed("open a channel", error),
        })
    }

    /// Says goodbye and waits a moment for it to be sent.
    pub async fn close(&self) {
        let goodbye = self.handle.disconnect(russh::Disconnect::ByApplication, "", "");
        // Whether it was heard makes no difference: the connection ends either way.
        let _ = timeout(FAREWELL, async {
            if goodbye.await.is_ok() {
                self.state.ended().await;
            }
        })
        .await;
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("state", &self.state).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The names of the methods that haul has, of those that a server names.
pub fn known_methods(names: &[&str]) -> Vec<Method> {
    [Method::PublicKey, Method::KeyboardInteractive, Method::Password]
        .into_iter()
        .filter(|method| names.contains(&method.name()))
        .collect()
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
