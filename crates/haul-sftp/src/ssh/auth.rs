//! User authentication: which method and which key to try next, given the methods that the server
//! accepts.
//!
//! ```text
//! Identities, password source, prompter → next attempt → Handshake → AuthResponse → next attempt …
//!                                                              ↘ Success: the steps that it took
//! ```
//!
//! There is no probe with the method "none": the response to the first attempt lists the methods.
//! The steps that led to success are a [`Credential`], which further connections repeat at once.

use std::sync::Arc;

use haul_net::TRY_AGAIN;
use haul_storage::{Error, ErrorKind, Result, Retry};

use super::config::{HostConfig, Method};
use super::identity::{Candidate, Identities, PassphrasePrompts};
use super::options::{PasswordSource, Prompter, Secret};
use super::transport::{AuthResponse, Handshake, Prompts, known_methods};

/// Most rounds of prompts, so that a server cannot prompt forever.
const MAX_ROUNDS: usize = 20;

/// The steps of a successful authentication.
pub type Credential = Vec<Step>;

/// A step of an authentication.
#[derive(Debug, Clone)]
pub enum Step {
    /// A key.
    Key(Arc<Candidate>),
    /// A password.
    Password(Secret),
    /// Responses to prompts, by round.
    Interactive(Vec<Vec<Secret>>),
}

/// The outcome of repeated steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// They were sufficient.
    Accepted,
    /// They were accepted, but are not sufficient.
    Partial,
    /// A step was refused.
    Refused,
}

/// The user to authenticate, and the available credentials.
#[derive(Debug)]
pub struct Applicant<'a> {
    /// The host's configuration.
    pub config: &'a HostConfig,
    /// The host's name in errors.
    pub location: &'a str,
    /// A source of a password other than a prompt.
    pub password: Option<&'a PasswordSource>,
    /// Prompts the user.
    pub prompter: &'a Arc<dyn Prompter>,
}

impl Applicant<'_> {
    /// Repeats steps that were accepted on another connection, or that it is trying now. Adds those that are accepted,
    /// but not sufficient, to `accepted`.
    ///
    /// # Errors
    /// If the connection is lost, or the server sends more than `MAX_ROUNDS` rounds of prompts.
    pub async fn repeat(
        &self,
        handshake: &mut Handshake,
        steps: &[Step],
        accepted: &mut Credential,
    ) -> Result<Outcome> {
        let mut outcome = Outcome::Refused;
        for step in steps {
            let response = match step {
                Step::Key(candidate) => {
                    let prompts = self.passphrase_prompts();
                    match self.offer(handshake, candidate, &prompts, true).await? {
                        Ok(response) => response,
                        Err(_) => return Ok(Outcome::Refused),
                    }
                }
                Step::Password(password) => handshake.password(password).await?,
                Step::Interactive(rounds) => {
                    let mut response = handshake.request_prompts().await?;
                    let mut rounds = rounds.iter();
                    let mut left = MAX_ROUNDS;
                    while let AuthResponse::Prompts(prompts) = response {
                        left = left.checked_sub(1).ok_or_else(|| self.too_many_prompts())?;
                        // If the number of prompts differs from before, the responses are empty and
                        // the steps fail.
                        let given =
                            rounds.next().filter(|given| given.len() == prompts.items.len());
                        let none = vec![Secret::new(""); prompts.items.len()];
                        response = handshake.respond_to_prompts(given.unwrap_or(&none)).await?;
                    }
                    response
                }
            };
            match response {
                AuthResponse::Success => return Ok(Outcome::Accepted),
                AuthResponse::Failure { partial: true, .. } => {
                    accepted.push(step.clone());
                    outcome = Outcome::Partial;
                }
                AuthResponse::Failure { .. } | AuthResponse::Prompts(_) => {
                    return Ok(Outcome::Refused);
                }
            }
        }
        Ok(outcome)
    }

    /// Tries all available credentials until the server accepts. `accepted` are steps that it has
    /// accepted on this connection already.
    ///
    /// # Errors
    /// `Unauthenticated`, not to be retried: nothing is left to try (the error lists what was tried), the password
    /// command fails, or the server sends too many prompts. Also a lost connection.
    pub async fn apply(
        &self,
        handshake: &mut Handshake,
        identities: Identities,
        accepted: Credential,
    ) -> Result<Credential> {
        let mut attempts = Attempts::new(self, identities);
        attempts.steps = accepted;
        loop {
            let Some(method) = attempts.next_method() else { return Err(attempts.exhausted()) };
            let response = match method {
                Method::PublicKey => attempts.public_key(handshake).await?,
                Method::Password => attempts.password(handshake).await?,
                Method::KeyboardInteractive => attempts.interactive(handshake).await?,
            };
            let Some((response, step)) = response else { continue };
            match response {
                AuthResponse::Success => {
                    attempts.steps.push(step);
                    return Ok(attempts.steps);
                }
                AuthResponse::Failure { remaining, partial } => {
                    attempts.failed(step, &remaining, partial);
                }
                AuthResponse::Prompts(_) => {}
            }
        }
    }

    /// The methods in the order in which they are tried.
    pub fn methods(&self) -> Vec<Method> {
        let mut methods = self.config.methods.clone();
        // A user who sets a password and names no key means the password; keys that an agent
        // happens to have would cost RTTs and attempts.
        let named = self.config.identities_named || self.config.methods_named;
        if self.password.is_some() && !named {
            methods.sort_by_key(|method| match method {
                Method::Password => 0,
                Method::KeyboardInteractive => 1,
                Method::PublicKey => 2,
            });
        }
        methods
    }

    /// Offers a key. `is_likely`: the server has accepted it before, or it is [`Identities::obvious`]. The inner error
    /// means that the key cannot sign or must not be used; the connection remains usable.
    async fn offer(
        &self,
        handshake: &mut Handshake,
        candidate: &Candidate,
        prompts: &PassphrasePrompts,
        is_likely: bool,
    ) -> Result<Result<AuthResponse>> {
        let attempt = async {
            let half = candidate.public_half(prompts).await?;
            candidate.check(&half, self.config)?;
            handshake.public_key(&half, &mut candidate.signer(prompts, is_likely)).await
        };
        match attempt.await {
            Err(error) if error.location() == self.location => Err(error),
            Err(error) if error.kind() != ErrorKind::Unauthenticated => Err(error),
            result => Ok(result),
        }
    }

    fn passphrase_prompts(&self) -> PassphrasePrompts {
        let attempts = if self.config.batch_mode { 0 } else { self.config.password_prompts };
        PassphrasePrompts { prompter: Arc::clone(self.prompter), attempts }
    }
}

/// The state of one authentication.
struct Attempts<'a> {
    applicant: &'a Applicant<'a>,
    passphrase_prompts: PassphrasePrompts,
    methods: Vec<Method>,
    /// The methods that the server accepts; unknown before the first response.
    remaining: Option<Vec<&'static str>>,
    candidates: std::vec::IntoIter<Arc<Candidate>>,
    keys_left: bool,
    notes: Vec<String>,
    tried: Vec<String>,
    steps: Credential,
    /// The source of the password, or the fetched password; `None` once it is used up.
    source: Option<PasswordSource>,
    /// Whether the last attempt sent the password of `source`, and the server had requested a password.
    source_sent: bool,
    /// Whether the last password that the user typed was refused.
    mistyped: bool,
    /// Whether a user responds to prompts.
    attended: bool,
    /// Password prompts that are left. They count for the whole authentication, as in OpenSSH;
    /// otherwise a server that always requires one more factor would prompt forever.
    prompts_left: u32,
    /// Attempts at keyboard-interactive that are left, counted in the same way.
    rounds: u32,
    interactive_done: bool,
}

impl<'a> Attempts<'a> {
    fn new(applicant: &'a Applicant<'a>, identities: Identities) -> Self {
        let config = applicant.config;
        let methods = applicant.methods();
        let passphrase_prompts = applicant.passphrase_prompts();
        Self {
            applicant,
            methods,
            remaining: None,
            keys_left: !identities.candidates.is_empty(),
            candidates: identities.candidates.into_iter(),
            notes: identities.notes,
            tried: Vec::new(),
            steps: Vec::new(),
            source: applicant.password.cloned(),
            source_sent: false,
            mistyped: false,
            attended: passphrase_prompts.attempts > 0,
            prompts_left: passphrase_prompts.attempts,
            rounds: config.password_prompts,
            interactive_done: false,
            passphrase_prompts,
        }
    }

    /// The most preferred method that the server accepts and that has something left to try.
    fn next_method(&self) -> Option<Method> {
        let accepted = |method: &Method| {
            self.remaining.as_ref().is_none_or(|names| names.contains(&method.name()))
        };
        let has_secret = self.source.is_some() || self.attended;
        let has_password = self.source.is_some() || (self.attended && self.prompts_left > 0);
        self.methods.iter().copied().filter(accepted).find(|method| match method {
            Method::PublicKey => self.keys_left,
            Method::Password => has_password,
            Method::KeyboardInteractive => !self.interactive_done && has_secret && self.rounds > 0,
        })
    }

    fn failed(&mut self, step: Step, remaining: &[&'static str], partial: bool) {
        if partial {
            self.steps.push(step);
            // The next factor may use the same method.
            self.interactive_done = false;
        } else if self.source_sent {
            match step {
                // The method was refused, not the password: the server may prompt for the same
                // password by keyboard-interactive.
                Step::Password(secret) if !remaining.contains(&Method::Password.name()) => {
                    self.source = Some(PasswordSource::Secret(secret));
                }
                // The given password is the one to use: do not prompt for another.
                _ => self.attended = false,
            }
        } else {
            self.mistyped = matches!(step, Step::Password(_));
        }
        self.source_sent = false;
        self.remaining = Some(remaining.to_vec());
    }

    async fn public_key(
        &mut self,
        handshake: &mut Handshake,
    ) -> Result<Option<(AuthResponse, Step)>> {
        let Some(candidate) = self.candidates.next() else {
            self.keys_left = false;
            return Ok(None);
        };
        self.keys_left = self.candidates.len() > 0;
        match self.applicant.offer(handshake, &candidate, &self.passphrase_prompts, false).await? {
            Ok(response) => {
                self.tried.push(candidate.describe());
                Ok(Some((response, Step::Key(candidate))))
            }
            Err(unusable) => {
                self.notes.push(unusable.to_string());
                Ok(None)
            }
        }
    }

    async fn password(
        &mut self,
        handshake: &mut Handshake,
    ) -> Result<Option<(AuthResponse, Step)>> {
        let (secret, from) = if let Some(source) = self.source.take() {
            self.source_sent = true;
            self.fetch(&source).await?
        } else {
            self.prompts_left -= 1;
            if std::mem::take(&mut self.mistyped) {
                self.applicant.prompter.notice(TRY_AGAIN).await;
            }
            let config = self.applicant.config;
            let prompt = format!("{}@{}'s password: ", config.user, config.alias);
            match self.applicant.prompter.secret(&prompt).await? {
                Some(secret) => (secret, "the password that was typed"),
                None => {
                    self.attended = false;
                    return Ok(None);
                }
            }
        };
        let response = handshake.password(&secret).await?;
        self.tried.push(from.to_owned());
        Ok(Some((response, Step::Password(secret))))
    }

    async fn interactive(
        &mut self,
        handshake: &mut Handshake,
    ) -> Result<Option<(AuthResponse, Step)>> {
        self.rounds -= 1;
        let mut given: Vec<Vec<Secret>> = Vec::new();
        let mut response = handshake.request_prompts().await?;
        let was_prompted = matches!(response, AuthResponse::Prompts(_));
        while let AuthResponse::Prompts(prompts) = response {
            if given.len() >= MAX_ROUNDS {
                return Err(self.applicant.too_many_prompts());
            }
            let responses = self.responses_to(&prompts).await?;
            response = handshake.respond_to_prompts(&responses).await?;
            given.push(responses);
        }
        // Refused without a prompt: another attempt would be, too.
        self.interactive_done |= !was_prompted;
        if given.iter().flatten().any(|response| !response.expose().is_empty()) {
            self.tried.push("the answers to the server's prompts".to_owned());
        }
        Ok(Some((response, Step::Interactive(given))))
    }

    /// A single hidden prompt gets the password of the source; all others are for the user. Without
    /// a user the responses are empty, since the server expects one per prompt.
    async fn responses_to(&mut self, prompts: &Prompts) -> Result<Vec<Secret>> {
        if let [(prompt, false)] = prompts.items.as_slice()
            && let Some(source) = self.source.take()
        {
            self.source_sent = prompt.to_ascii_lowercase().contains("password");
            let (secret, from) = self.fetch(&source).await?;
            self.tried.push(from.to_owned());
            return Ok(vec![secret]);
        }
        let config = self.applicant.config;
        let prompter = self.applicant.prompter;
        if !prompts.heading.is_empty() && self.attended && !prompts.items.is_empty() {
            prompter.notice(&prompts.heading).await;
        }
        let mut responses = Vec::new();
        for (prompt, visible) in &prompts.items {
            let prompt = format!("({}@{}) {prompt}", config.user, config.alias);
            let response = match (self.attended, visible) {
                (false, _) => None,
                (true, true) => prompter.visible(&prompt).await?.map(Secret::new),
                (true, false) => prompter.secret(&prompt).await?,
            };
            if response.is_none() {
                self.attended = false;
                self.interactive_done = true;
            }
            responses.push(response.unwrap_or_else(|| Secret::new("")));
        }
        Ok(responses)
    }

    async fn fetch(&self, source: &PasswordSource) -> Result<(Secret, &'static str)> {
        // `source` may be what the command has printed, after the server refused the method "password".
        let name = match self.applicant.password {
            Some(PasswordSource::Command(_)) => "the password of password-command",
            Some(PasswordSource::Secret(_)) | None => "the password of HAUL_PASSWORD",
        };
        let fetched = source.fetch().await;
        Ok((fetched.map_err(|cause| self.applicant.denied(cause))?, name))
    }

    fn exhausted(&self) -> Error {
        let mut cause = format!("permission denied for {}", self.applicant.config.user);
        match &self.remaining {
            Some(names) if !names.is_empty() => {
                cause = format!("{cause}; the server accepts {}", names.join(", "));
                if known_methods(names).is_empty() {
                    cause = format!("{cause}, none of which haul supports");
                }
            }
            _ => {}
        }
        if !self.steps.is_empty() {
            cause = format!("{cause} after it accepted the first factors");
        }
        cause = if self.tried.is_empty() {
            format!(
                "{cause}; there was nothing to try: no key, no password, no terminal to \
                     prompt on"
            )
        } else {
            format!("{cause}; tried {}", self.tried.join(", "))
        };
        for note in &self.notes {
            cause = format!("{cause}; {note}");
        }
        self.applicant.denied(cause)
    }
}

impl Applicant<'_> {
    fn too_many_prompts(&self) -> Error {
        self.denied("the server sent too many prompts")
    }

    fn denied(&self, cause: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unauthenticated, "authenticate")
            .at(self.location)
            .because(cause)
            .with_retry(Retry::Never)
    }
}
