//! Authentication, one request after the other: what is sent to the server, and what it answers.
//! Which request comes next is [`auth`](crate::ssh::auth)'s part.
//!
//! Nothing is waited for that need not be: the service is requested in the same flight as the first
//! method, and behind a request that may be the last one goes what is to happen after it, as far as
//! the server is known to bear that ([`Ahead`]). A server that refuses the request passes over the
//! rest; the next request takes it along again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use haul_storage::{ErrorKind, Result, Retry};
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey};
use tokio::sync::mpsc;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::RttCounter;
use super::channel::{data, subsystem_request};
use super::connection::Connection;
use super::early::{EARLY, Early};
use super::end::End;
use super::session::{Knife, Opened, Session, is_openssh, register, session_channel};
use super::state::{Phase, visible};
use super::wire::{Put, Reader, message};
use crate::ssh::choice::CERTIFICATE;
use crate::ssh::config::{HostConfig, Method};
use crate::ssh::options::Secret;

/// How long a server is given for its EXT_INFO to be read, which it sends together with the end of
/// the key exchange (RFC 8308, 2.4).
const EXTENSIONS: Duration = Duration::from_millis(20);

/// How RSA keys sign (RFC 8332), best first.
pub const RSA_SIGNATURES: [(&str, Option<HashAlg>); 3] = [
    ("rsa-sha2-512", Some(HashAlg::Sha512)),
    ("rsa-sha2-256", Some(HashAlg::Sha256)),
    ("ssh-rsa", None),
];

const SERVICE: &[u8] = b"ssh-connection";

/// Names of methods of authentication, for messages.
const METHODS: [&str; 5] =
    ["publickey", "password", "keyboard-interactive", "hostbased", "gssapi-with-mic"];

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
    /// Whether signing asks nobody for anything: neither for a passphrase nor for a touch.
    fn is_silent(&self) -> bool;

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

/// How much of what follows authentication is sent along with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ahead {
    /// A server of which nothing is known might end the connection.
    Nothing,
    /// haul's own server passes over what comes too early, but the number that it gives a channel
    /// has to be waited for.
    Channel,
    /// OpenSSH gives the first channel the number 0, handles what comes in order, and answers what
    /// comes too early with UNIMPLEMENTED.
    Everything,
}

/// A connection to a host that is who it should be, and that does not know who we are.
pub struct Handshake {
    connection: Arc<Connection>,
    answers: mpsc::Receiver<Bytes>,
    user: String,
    /// How the user may prove to have a key (PubkeyAcceptedAlgorithms).
    user_keys: Vec<&'static str>,
    patience: Option<Duration>,
    round_trips: RttCounter,
    service_requested: bool,
    ahead: Ahead,
    early: Option<Early>,
    knife: Knife,
}

impl Handshake {
    /// Of a host whose key was accepted.
    pub(super) fn new(
        knife: Knife,
        answers: mpsc::Receiver<Bytes>,
        config: &HostConfig,
        round_trips: RttCounter,
    ) -> Self {
        Self {
            connection: Arc::clone(&knife.connection),
            answers,
            user: config.user.clone(),
            user_keys: config.user_keys.clone(),
            patience: config.silence_limit(),
            round_trips,
            service_requested: false,
            ahead: Ahead::Nothing,
            early: None,
            knife,
        }
    }

    /// What the server calls itself.
    pub fn server_version(&self) -> &str {
        self.connection.state.server_version()
    }

    /// Says which channel is wanted once the server lets us in, and what is sent on it first.
    /// `may_guess`: its number has not been guessed wrong before.
    pub fn want(&mut self, subsystem: &str, first: Bytes, may_guess: bool) {
        let version = self.server_version();
        // What follows the success would have to be compressed already.
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

    /// Offers a key. Where nobody has to be asked for anything it signs at once; else only when the
    /// server has said that it would take the key, which is one round trip more.
    ///
    /// # Errors
    /// The connection was lost; what the signer says.
    pub async fn public_key(
        &mut self,
        half: &PublicHalf,
        signer: &mut dyn SignWith,
    ) -> Result<Answer> {
        let (name, hash, blob) = self.offered(half).await?;
        if !signer.is_silent() {
            let mut probe = self.request(b"publickey");
            probe.boolean(false);
            probe.string(name.as_bytes());
            probe.string(&blob);
            self.ask(&probe, false).await?;
            let answer = self.answer().await?;
            if answer.first() != Some(&message::USERAUTH_60) {
                return self.understood(&answer);
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
        let asking = self.connection.state.asking();
        let signed = signer.sign(signed, hash).await?;
        drop(asking);
        self.ask(&signed[start..], true).await?;
        let answer = self.answer().await?;
        self.understood(&answer)
    }

    /// Sends a password.
    ///
    /// # Errors
    /// The connection was lost; the server wants another password first.
    pub async fn password(&mut self, password: &Secret) -> Result<Answer> {
        let mut request = Zeroizing::new(self.request(b"password"));
        request.boolean(false);
        request.string(password.expose().as_bytes());
        self.ask(&request, true).await?;
        let answer = self.answer().await?;
        if answer.first() == Some(&message::USERAUTH_60) {
            return Err(self
                .connection
                .state
                .error(ErrorKind::Unauthenticated, "authenticate")
                .because("the server wants the password to be changed first")
                .with_retry(Retry::Never));
        }
        self.understood(&answer)
    }

    /// Asks for the questions of keyboard-interactive.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn questions(&mut self) -> Result<Answer> {
        let mut request = self.request(b"keyboard-interactive");
        request.string(b"");
        request.string(b"");
        self.ask(&request, false).await?;
        let answer = self.answer().await?;
        self.understood(&answer)
    }

    /// Answers the questions, as many answers as there were prompts.
    ///
    /// # Errors
    /// The connection was lost.
    pub async fn answers(&mut self, answers: &[Secret]) -> Result<Answer> {
        let mut response = Zeroizing::new(vec![message::USERAUTH_INFO_RESPONSE]);
        response.u32(super::wire::length(answers.len()));
        for answer in answers {
            response.string(answer.expose().as_bytes());
        }
        self.ask(&response, true).await?;
        let answer = self.answer().await?;
        self.understood(&answer)
    }

    /// Time of the first exchange: a round trip, and what starting a proxy took.
    pub fn first_exchange(&self) -> Duration {
        self.connection.state.first_exchange.get().copied().unwrap_or_default()
    }

    /// The authenticated connection, and the channel that was wanted.
    ///
    /// # Errors
    /// `Busy` if the server opens no channel; a lost connection.
    pub async fn into_session(self) -> Result<(Arc<Session>, Option<Opened>)> {
        let session = Arc::new(Session::new(self.knife, self.patience));
        let Some(early) = self.early else { return Ok((session, None)) };
        // Waiting for the channel, and before that for leave to open it, where it was not guessed.
        self.round_trips.add(match (&early.sent, early.guessed) {
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

    /// The best of what the configuration allows that the server has not left out. Every server since
    /// 2016 that does not say what it takes knows SHA-512.
    async fn rsa_hash(&self, suffix: &str) -> Option<HashAlg> {
        let state = &self.connection.state;
        // Without an answer in time the most likely holds.
        let _ = timeout(EXTENSIONS, state.reached(Phase::Informed)).await;
        let takes = |name: &str| {
            state.signatures.get().is_none_or(|names| names.iter().any(|known| known == name))
        };
        let allowed = || {
            RSA_SIGNATURES.iter().filter(|(name, _)| {
                self.user_keys.iter().any(|known| known.strip_suffix(suffix) == Some(name))
            })
        };
        // A server that takes none of them refuses any.
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

    /// Sends a request, with the service's before the first one, and with what is wanted afterwards
    /// behind one that may be the last.
    ///
    /// # Errors
    /// The connection was lost.
    async fn ask(&mut self, request: &[u8], may_be_last: bool) -> Result<()> {
        let mut service = None;
        if !self.service_requested {
            self.service_requested = true;
            let mut message = vec![message::SERVICE_REQUEST];
            message.string(b"ssh-userauth");
            if self.server_version().starts_with(LIBSSH) {
                self.connection.put(&message);
                self.round_trips.add(1);
                let state = &self.connection.state;
                let accepted = state.reached(Phase::Serving);
                state.patiently(self.patience, "authenticate", accepted).await?;
            } else {
                service = Some(message);
            }
        }
        self.round_trips.add(1);
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

    /// The server's next word on authentication.
    async fn answer(&mut self) -> Result<Bytes> {
        let state = &self.connection.state;
        let answer = state.patiently(self.patience, "authenticate", self.answers.recv()).await?;
        match answer {
            Some(answer) => Ok(answer),
            None => {
                state.ended().await;
                Err(state.lost("authenticate"))
            }
        }
    }

    fn understood(&self, answer: &[u8]) -> Result<Answer> {
        read_answer(answer)
            .map_err(|end| end.during(self.connection.state.location(), "authenticate"))
    }
}

/// How a server made of libssh begins its identification. Its `ssh_handle_key_exchange` waits for a state
/// that has passed already when a request of authentication arrives together with NEWKEYS, and never
/// returns (0.10.6): such a server hangs unless authentication waits for SERVICE_ACCEPT.
const LIBSSH: &str = "SSH-2.0-libssh";

/// The number that OpenSSH gives the first channel of a connection.
const FIRST_CHANNEL: u32 = 0;

/// Reads an answer to a request of authentication.
///
/// # Errors
/// It is none.
pub(super) fn read_answer(answer: &[u8]) -> Result<Answer, End> {
    let mut reader = Reader::new(answer);
    match reader.byte()? {
        message::USERAUTH_SUCCESS => Ok(Answer::Success),
        message::USERAUTH_FAILURE => {
            let names = reader.names()?;
            let partial = reader.boolean()?;
            let known = |name: &&str| METHODS.iter().copied().find(|known| known == name);
            Ok(Answer::Failure { remaining: names.iter().filter_map(known).collect(), partial })
        }
        message::USERAUTH_60 => {
            let heading = [reader.text()?, reader.text()?].map(|text| text.trim().to_owned());
            reader.string()?;
            let count = reader.u32()?;
            let mut prompts = Vec::new();
            for _ in 0..count {
                prompts.push((visible(&reader.text()?), reader.boolean()?));
            }
            let heading = visible(heading.join("\n").trim());
            Ok(Answer::Questions(Questions { heading, prompts }))
        }
        other => Err(super::end::violation(format!("message {other} in authentication"))),
    }
}

/// The names of the methods that haul has, of those that a server names.
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
