//! Authentication: sends requests one after the other and parses the responses.
//! [`auth`](crate::ssh::auth) decides which request comes next.
//!
//! To save RTTs, the service is requested in the same flight as the first method, and a request that
//! may be the last one is followed at once by the messages that open the channel, as far as the server
//! is known to tolerate them ([`Ahead`]). A server that refuses the request ignores those; the next
//! request carries them again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use haul_storage::{ErrorKind, Result, Retry};
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey};
use tokio::sync::mpsc;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::connection::{CloseOnDrop, Connection};
use super::counters::RttCounter;
use super::early::{EARLY, Early};
use super::end::End;
use super::line::{data, subsystem_request};
use super::session::{Opened, Session, is_openssh, register, session_channel};
use super::state::{Phase, visible};
use super::wire::{Put, Reader, message};
use crate::ssh::choice::CERTIFICATE;
use crate::ssh::config::{HostConfig, Method};
use crate::ssh::options::Secret;

/// How long haul waits for the server's EXT_INFO, which is sent together with the end of the key
/// exchange (RFC 8308, 2.4).
const EXTENSIONS: Duration = Duration::from_millis(20);

/// Signature algorithms of RSA keys (RFC 8332), best first.
pub const RSA_SIGNATURES: [(&str, Option<HashAlg>); 3] = [
    ("rsa-sha2-512", Some(HashAlg::Sha512)),
    ("rsa-sha2-256", Some(HashAlg::Sha256)),
    ("ssh-rsa", None),
];

const SERVICE: &[u8] = b"ssh-connection";

/// The authentication methods recognized in a server's list. Those that haul does not support are only named in
/// error messages.
const METHODS: [&str; 5] =
    ["publickey", "password", "keyboard-interactive", "hostbased", "gssapi-with-mic"];

/// The server's response to an authentication request.
#[derive(Debug, PartialEq, Eq)]
pub enum AuthResponse {
    /// The user is authenticated.
    Success,
    /// The request was refused, or (`partial`) it was accepted but another method is required too.
    Failure {
        /// The methods that can continue, by name.
        remaining: Vec<&'static str>,
        /// Whether this step was accepted.
        partial: bool,
    },
    /// Prompts of keyboard-interactive.
    Prompts(Prompts),
}

/// Prompts of keyboard-interactive (RFC 4256, 3.2).
#[derive(Debug, PartialEq, Eq)]
pub struct Prompts {
    /// A heading and instructions, both often empty.
    pub heading: String,
    /// The prompts, and whether what the user types may be echoed.
    pub items: Vec<(String, bool)>,
}

/// Signs with a private key.
#[async_trait]
pub trait SignWith: Send {
    /// Whether signing needs no interaction: neither a passphrase nor a touch.
    fn is_silent(&self) -> bool;

    /// Returns `data` followed by the signature over it, as a string of RFC 4251.
    async fn sign(&mut self, data: Vec<u8>, hash: Option<HashAlg>) -> Result<Vec<u8>>;
}

/// The public half of a key that is offered to a server.
#[derive(Debug, Clone)]
pub enum PublicHalf {
    /// A key.
    Key(PublicKey),
    /// A certificate for a key.
    Certificate(Box<Certificate>),
}

/// Which of the messages after authentication are sent along with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// None: an unknown server might end the connection.
    Nothing,
    /// The request for a channel. haul's own server ignores messages that arrive too early, but does
    /// not give the first channel the number 0.
    Channel,
    /// All. OpenSSH gives the first channel the number 0, handles messages in order, and responds to
    /// those that arrive too early with UNIMPLEMENTED.
    Everything,
}

/// A connection whose host is verified and whose user is not authenticated yet.
pub struct Handshake {
    connection: Arc<Connection>,
    responses: mpsc::Receiver<Bytes>,
    user: String,
    /// Algorithms allowed for user keys (PubkeyAcceptedAlgorithms).
    user_keys: Vec<&'static str>,
    response_limit: Option<Duration>,
    rtts: RttCounter,
    service_requested: bool,
    ahead: Ahead,
    early: Option<Early>,
    close_on_drop: CloseOnDrop,
}

impl Handshake {
    /// For a host whose key was accepted.
    pub(super) fn new(
        close_on_drop: CloseOnDrop,
        responses: mpsc::Receiver<Bytes>,
        config: &HostConfig,
        rtts: RttCounter,
    ) -> Self {
        Self {
            connection: Arc::clone(&close_on_drop.connection),
            responses,
            user: config.user.clone(),
            user_keys: config.user_keys.clone(),
            response_limit: config.silence_limit(),
            rtts,
            service_requested: false,
            ahead: Ahead::Nothing,
            early: None,
            close_on_drop,
        }
    }

    /// The server's identification.
    pub fn server_version(&self) -> &str {
        self.connection.state.server_version()
    }

    /// Sets which channel to open after authentication, and the first data on it.
    /// `may_guess`: no guess of its number has failed before.
    pub fn want(&mut self, subsystem: &str, first: Bytes, may_guess: bool) {
        let version = self.server_version();
        // Messages behind the successful request would have to be compressed already.
        let compressed = self.connection.agreed_on_compression();
        self.ahead = if compressed {
            Ahead::Nothing
        } else if is_openssh(version) && may_guess && first.len() <= EARLY {
            Ahead::Everything
        } else if is_openssh(version) || version.starts_with("SSH-2.0-haul_") {
            Ahead::Channel
        } else {
            Ahead::Nothing
        };
        let subsystem = subsystem.to_owned();
        self.early = Some(Early { subsystem, first, sent: None, guessed: false });
    }

    /// Offers a key. Signs at once if that needs no interaction; otherwise only after the server has
    /// confirmed that it would accept the key, which costs one more RTT.
    ///
    /// # Errors
    /// The connection was lost, or the response is late or malformed; the signer's errors.
    pub async fn public_key(
        &mut self,
        half: &PublicHalf,
        signer: &mut dyn SignWith,
    ) -> Result<AuthResponse> {
        let (name, hash, blob) = self.offered(half).await?;
        if !signer.is_silent() {
            let mut probe = self.request(b"publickey");
            probe.boolean(false);
            probe.string(name.as_bytes());
            probe.string(&blob);
            self.send_request(&probe, false).await?;
            let reply = self.next_response().await?;
            if reply.first() != Some(&message::USERAUTH_60) {
                return self.parse_response(&reply);
            }
        }
        let session_id = self.connection.state.session_id.get().cloned().unwrap_or_default();
        let mut signed = Vec::new();
        signed.string(&session_id);
        let start = signed.len();
        signed.extend_from_slice(&self.request(b"publickey"));
        signed.boolean(true);
        signed.string(name.as_bytes());
        signed.string(&blob);
        let prompting = self.connection.state.prompting();
        let signed = signer.sign(signed, hash).await?;
        drop(prompting);
        self.send_request(&signed[start..], true).await?;
        let reply = self.next_response().await?;
        self.parse_response(&reply)
    }

    /// Sends a password.
    ///
    /// # Errors
    /// The connection was lost, or the response is late or malformed; the server requires a password change first.
    pub async fn password(&mut self, password: &Secret) -> Result<AuthResponse> {
        let mut request = Zeroizing::new(self.request(b"password"));
        request.boolean(false);
        request.string(password.expose().as_bytes());
        self.send_request(&request, true).await?;
        let reply = self.next_response().await?;
        if reply.first() == Some(&message::USERAUTH_60) {
            return Err(self
                .connection
                .state
                .error(ErrorKind::Unauthenticated, "authenticate")
                .because("the server wants the password to be changed first")
                .with_retry(Retry::Never));
        }
        self.parse_response(&reply)
    }

    /// Starts keyboard-interactive: requests its prompts.
    ///
    /// # Errors
    /// The connection was lost, or the response is late or malformed.
    pub async fn request_prompts(&mut self) -> Result<AuthResponse> {
        let mut request = self.request(b"keyboard-interactive");
        request.string(b"");
        request.string(b"");
        self.send_request(&request, false).await?;
        let reply = self.next_response().await?;
        self.parse_response(&reply)
    }

    /// Sends what the user entered, one response for each prompt.
    ///
    /// # Errors
    /// The connection was lost, or the response is late or malformed.
    pub async fn respond_to_prompts(&mut self, responses: &[Secret]) -> Result<AuthResponse> {
        let mut info_response = Zeroizing::new(vec![message::USERAUTH_INFO_RESPONSE]);
        info_response.u32(super::wire::length(responses.len()));
        for response in responses {
            info_response.string(response.expose().as_bytes());
        }
        self.send_request(&info_response, true).await?;
        let reply = self.next_response().await?;
        self.parse_response(&reply)
    }

    /// Duration of the first exchange: an RTT, plus the time to start a proxy.
    pub fn first_exchange(&self) -> Duration {
        self.connection.state.first_exchange.get().copied().unwrap_or_default()
    }

    /// The authenticated connection, and the channel set by [`want`](Self::want).
    ///
    /// # Errors
    /// `Busy` if the server opens no channel; a lost connection.
    pub async fn into_session(self) -> Result<(Arc<Session>, Option<Opened>)> {
        let session = Arc::new(Session::new(self.close_on_drop, self.response_limit));
        let Some(early) = self.early else { return Ok((session, None)) };
        // One RTT for the channel if it was not guessed, and one more if it was not requested early.
        self.rtts.add(match (&early.sent, early.guessed) {
            (Some(_), true) => 0,
            (Some(_), false) => 1,
            (None, _) => 2,
        });
        let opened = session.early(early).await?;
        Ok((session, Some(opened)))
    }

    /// The name of the algorithm that a key signs with, its hash, and the public half.
    async fn offered(&self, half: &PublicHalf) -> Result<(String, Option<HashAlg>, Vec<u8>)> {
        let (algorithm, blob) = match half {
            PublicHalf::Key(key) => (key.algorithm(), key.to_bytes()),
            PublicHalf::Certificate(certificate) => {
                (certificate.algorithm(), certificate.to_bytes())
            }
        };
        let blob = blob.map_err(|error| {
            self.connection
                .state
                .error(ErrorKind::Unauthenticated, "use the key")
                .with_source(error)
        })?;
        let is_rsa = matches!(algorithm, Algorithm::Rsa { .. });
        let suffix = if matches!(half, PublicHalf::Certificate(_)) { CERTIFICATE } else { "" };
        let hash = if is_rsa { self.rsa_hash(suffix).await } else { None };
        let algorithm = if is_rsa { Algorithm::Rsa { hash } } else { algorithm };
        let name = match half {
            PublicHalf::Key(_) => algorithm.as_str().to_owned(),
            PublicHalf::Certificate(_) => algorithm.to_certificate_type(),
        };
        Ok((name, hash, blob))
    }

    /// The best hash that the configuration allows and the server accepts. Every server since 2016 that
    /// does not list what it accepts knows SHA-512.
    async fn rsa_hash(&self, suffix: &str) -> Option<HashAlg> {
        let state = &self.connection.state;
        // Without EXT_INFO in time, every hash counts as accepted.
        let _ = timeout(EXTENSIONS, state.reached(Phase::Informed)).await;
        let takes = |name: &str| {
            state.signatures.get().is_none_or(|names| names.iter().any(|known| known == name))
        };
        let allowed = || {
            RSA_SIGNATURES.iter().filter(|(name, _)| {
                self.user_keys.iter().any(|known| known.strip_suffix(suffix) == Some(name))
            })
        };
        // A server that accepts none of them refuses whichever is sent.
        let best = allowed().find(|(name, _)| takes(name)).or_else(|| allowed().next());
        best.and_then(|(_, hash)| *hash)
    }

    fn request(&self, method: &[u8]) -> Vec<u8> {
        let mut request = vec![message::USERAUTH_REQUEST];
        request.string(self.user.as_bytes());
        request.string(SERVICE);
        request.string(method);
        request
    }

    /// Sends a request. The first one is preceded by the service request. One that may be the last is
    /// followed by the messages that open the channel.
    ///
    /// # Errors
    /// The connection was lost, or libssh's response to the service request is late.
    async fn send_request(&mut self, request: &[u8], may_be_last: bool) -> Result<()> {
        let mut service = None;
        if !self.service_requested {
            self.service_requested = true;
            let mut message = vec![message::SERVICE_REQUEST];
            message.string(b"ssh-userauth");
            if self.server_version().starts_with(LIBSSH) {
                self.connection.put(&message);
                self.rtts.add(1);
                let state = &self.connection.state;
                let accepted = state.reached(Phase::Serving);
                state.within_limit(self.response_limit, "authenticate", accepted).await?;
            } else {
                service = Some(message);
            }
        }
        self.rtts.add(1);
        let mut output = self.connection.output();
        if let Some(service) = service {
            output.put(&service);
        }
        output.put(request);
        let ahead = if may_be_last { self.ahead } else { Ahead::Nothing };
        if let Some(early) = self.early.as_mut().filter(|_| ahead != Ahead::Nothing) {
            let guessed = ahead == Ahead::Everything;
            let (line, _) = early.sent.get_or_insert_with(|| {
                let (line, events) = register(&self.connection);
                if guessed {
                    line.guessed(FIRST_CHANNEL, early.first.len());
                }
                (line, events)
            });
            output.put(&session_channel(line));
            if guessed {
                early.guessed = true;
                output.put(&subsystem_request(FIRST_CHANNEL, &early.subsystem));
                if !early.first.is_empty() {
                    output.put(&data(FIRST_CHANNEL, &early.first));
                }
            }
        }
        drop(output);
        self.connection.send();
        Ok(())
    }

    /// The server's next authentication message.
    async fn next_response(&mut self) -> Result<Bytes> {
        let state = &self.connection.state;
        let reply =
            state.within_limit(self.response_limit, "authenticate", self.responses.recv()).await?;
        match reply {
            Some(reply) => Ok(reply),
            None => {
                state.ended().await;
                Err(state.lost("authenticate"))
            }
        }
    }

    fn parse_response(&self, reply: &[u8]) -> Result<AuthResponse> {
        parse_auth_response(reply)
            .map_err(|end| end.during(self.connection.state.location(), "authenticate"))
    }
}

/// Prefix of the identification of servers based on libssh. If an authentication request arrives together
/// with NEWKEYS, libssh's `ssh_handle_key_exchange` waits for a state that has already passed and never
/// returns (0.10.6): such a server hangs unless authentication waits for SERVICE_ACCEPT.
const LIBSSH: &str = "SSH-2.0-libssh";

/// The number that OpenSSH gives the first channel of a connection.
const FIRST_CHANNEL: u32 = 0;

/// Parses a response to an authentication request.
///
/// # Errors
/// The message is malformed, or not such a response.
pub(super) fn parse_auth_response(reply: &[u8]) -> Result<AuthResponse, End> {
    let mut reader = Reader::new(reply);
    match reader.byte()? {
        message::USERAUTH_SUCCESS => Ok(AuthResponse::Success),
        message::USERAUTH_FAILURE => {
            let names = reader.names()?;
            let partial = reader.boolean()?;
            let known = |name: &&str| METHODS.iter().copied().find(|known| known == name);
            Ok(AuthResponse::Failure {
                remaining: names.iter().filter_map(known).collect(),
                partial,
            })
        }
        message::USERAUTH_60 => {
            let heading = [reader.text()?, reader.text()?].map(|text| text.trim().to_owned());
            reader.string()?;
            let count = reader.u32()?;
            let mut items = Vec::new();
            for _ in 0..count {
                items.push((visible(&reader.text()?), reader.boolean()?));
            }
            let heading = visible(heading.join("\n").trim());
            Ok(AuthResponse::Prompts(Prompts { heading, items }))
        }
        other => Err(super::end::violation(format!("message {other} in authentication"))),
    }
}

/// The methods that haul supports, of those that a server names.
pub fn known_methods(names: &[&str]) -> Vec<Method> {
    [Method::PublicKey, Method::KeyboardInteractive, Method::Password]
        .into_iter()
        .filter(|method| names.contains(&method.name()))
        .collect()
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").field("state", &self.connection.state).finish_non_exhaustive()
    }
}
