//! Authentication, one request after the other: what is sent to the server, and what it answers.
//! Which request comes next is [`auth`](crate::ssh::auth)'s part.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use haul_storage::{Error, Result};
use russh::MethodKind;
use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::{Certificate, HashAlg, PublicKey};
use tokio::time::timeout;

use super::events::{Events, State, visible};
use super::link::Knife;
use super::session::Session;
use super::{RoundTrips, patiently};
use crate::ssh::config::{HostConfig, Method};
use crate::ssh::options::Secret;

/// How long a server is given for its EXT_INFO to be read, which it sends together with the end of
/// the key exchange (RFC 8308, 2.4).
const EXTENSIONS: Duration = Duration::from_millis(20);

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
    /// Of a host whose key was accepted.
    pub(super) fn new(
        handle: Handle<Events>,
        state: Arc<State>,
        knife: Knife,
        config: &HostConfig,
        round_trips: RoundTrips,
    ) -> Self {
        let patience = config.silence_limit();
        let user = config.user.clone();
        Self { handle, state, user, patience, round_trips, service_requested: false, knife }
    }

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
        Session::new(self.handle, self.state, self.patience, self.knife)
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
                    heading: visible(heading.join("\n").trim()),
                    prompts: prompts.into_iter().map(|p| (visible(&p.prompt), p.echo)).collect(),
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

/// The names of the methods that haul has, of those that a server names.
pub fn known_methods(names: &[&str]) -> Vec<Method> {
    [Method::PublicKey, Method::KeyboardInteractive, Method::Password]
        .into_iter()
        .filter(|method| names.contains(&method.name()))
        .collect()
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").field("state", &self.state).finish_non_exhaustive()
    }
}
