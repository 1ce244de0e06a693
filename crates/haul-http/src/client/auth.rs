//! Authentication to one origin: the one that the user named, or one that it redirects to.
//!
//! ```text
//! token, user and password, netrc → preemptive credentials (if private) → challenge → its response
//! ```
//!
//! Basic and Bearer credentials are sent with every request once they have worked. Digest is computed
//! per request. An origin that another one redirects to gets only the `machine` line that the netrc has
//! for it.
//!
//! One request tries credentials while the others wait: a wrong password sent by several at once could
//! lock the account. Preemptive credentials are tried for two URLs, since the first one may be public.
//! A refused password that was typed can be typed again. Credentials that were refused for good are not
//! sent again.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::HEXLOWER;
use haul_net::{MAX_PROMPTS, PasswordSource, Prompter, Secret, TRY_AGAIN};
use haul_storage::{Error, ErrorKind, Result};
use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, Method};
use zeroize::Zeroizing;

use super::head::Head;
use super::options::HttpOptions;
use crate::parse::challenge::{self, Challenge};
use crate::parse::digest::DigestSession;
use crate::parse::netrc::Netrc;
use crate::parse::{Origin, Url, WebScheme, basic};

/// Authenticates requests to one origin.
#[derive(Debug)]
pub struct SignIn {
    origin: Origin,
    user: Option<String>,
    password: Option<PasswordSource>,
    token: Option<PasswordSource>,
    netrc: Option<Arc<Netrc>>,
    /// Another origin redirects to this one.
    is_redirected: bool,
    prompter: Arc<dyn Prompter>,
    state: Mutex<State>,
    /// The server has sent a challenge and accepted the credentials.
    accepted: AtomicBool,
    /// Held by the request that tries credentials, until the server has accepted or refused them.
    finding: Arc<tokio::sync::Mutex<Found>>,
}

/// The credentials found so far.
#[derive(Debug, Default)]
struct Found {
    login: Option<Login>,
    /// How often the user was prompted.
    typed: u32,
    /// Why no further credentials are sent.
    refused: Option<String>,
}

impl Found {
    fn is_typed(&self) -> bool {
        self.login.as_ref().is_some_and(|login| login.is_typed)
    }
}

/// Credentials on trial. Other requests do not send them before the server has accepted them.
#[derive(Debug)]
pub struct Trial {
    found: tokio::sync::OwnedMutexGuard<Found>,
    authorization: Arc<Authorization>,
    generation: u64,
    /// The server has sent no challenge. If it accepts the request, that does not prove the credentials right.
    is_preemptive: bool,
}

impl Trial {
    /// Whether they are preemptive: the server has sent no challenge.
    pub const fn is_preemptive(&self) -> bool {
        self.is_preemptive
    }

    /// The credentials for a request.
    ///
    /// # Errors
    /// They cannot be computed for this request.
    pub fn credentials(&self, method: &Method, url: &Url) -> Result<Credentials> {
        Ok(Credentials {
            value: self.authorization.value(method, url)?,
            generation: self.generation,
        })
    }
}

#[derive(Debug, Default)]
struct State {
    authorization: Option<Arc<Authorization>>,
    /// The only URL to which `authorization` was sent preemptively so far; it applies to no other one.
    only: Option<Url>,
    /// Incremented when `authorization` changes.
    generation: u64,
    /// Why no more credentials are sent to an origin that was redirected to: a wrong password sent for
    /// each of many files could lock the account.
    refused: Option<String>,
}

impl State {
    /// Whether requests to `url` are signed without a trial.
    fn is_for(&self, url: &Url) -> bool {
        self.authorization.is_some() && self.only.as_ref().is_none_or(|only| only == url)
    }
}

/// How requests are signed.
#[derive(Debug)]
enum Authorization {
    /// The same header field for all requests.
    Fixed(HeaderValue),
    Digest(DigestSession),
}

impl Authorization {
    /// The header field for a request.
    fn value(&self, method: &Method, url: &Url) -> Result<HeaderValue> {
        match self {
            Self::Fixed(value) => Ok(value.clone()),
            Self::Digest(session) => {
                let text = session.authorization(method.as_str(), url.target());
                let text = text.map_err(|error| denied(url, error.to_string()))?;
                header(&text).map_err(|why| denied(url, why))
            }
        }
    }
}

/// A name and a password.
#[derive(Debug, Clone)]
struct Login {
    user: Vec<u8>,
    password: Password,
    is_typed: bool,
}

/// The bytes as the user wrote them: a netrc need not be UTF-8.
#[derive(Clone)]
struct Password(Zeroizing<Vec<u8>>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl From<&Secret> for Password {
    fn from(secret: &Secret) -> Self {
        Self(Zeroizing::new(secret.expose().as_bytes().to_vec()))
    }
}

/// The credentials sent with a request.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// The header field.
    pub value: HeaderValue,
    generation: u64,
}

impl SignIn {
    /// For `origin`; `user` is that of the location.
    pub fn new(
        origin: Origin,
        user: Option<String>,
        options: &HttpOptions,
        prompter: Arc<dyn Prompter>,
    ) -> Self {
        Self {
            origin,
            user,
            password: options.password.clone(),
            token: options.token.clone(),
            netrc: options.netrc.clone(),
            is_redirected: false,
            prompter,
            state: Mutex::default(),
            accepted: AtomicBool::new(false),
            finding: Arc::default(),
        }
    }

    /// For an origin that another one redirects to, and that is private ([`Privacy`](super::privacy::Privacy)); `None`
    /// if the netrc does not name it.
    pub fn redirected(
        origin: Origin,
        netrc: Arc<Netrc>,
        prompter: Arc<dyn Prompter>,
    ) -> Option<Self> {
        let options = HttpOptions { netrc: Some(netrc), ..HttpOptions::default() };
        let sign_in = Self { is_redirected: true, ..Self::new(origin, None, &options, prompter) };
        let is_known = sign_in.in_netrc(false).is_some();
        is_known.then_some(sign_in)
    }

    /// The origin that requests are authenticated to.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Begins to try preemptive credentials, unless the server has accepted some. While another request
    /// tries them, this one waits.
    ///
    /// # Errors
    /// The credentials cannot be obtained. For an origin that another one redirects to, also if it refused them before.
    pub async fn try_preemptive(&self, url: &Url) -> Result<Option<Trial>> {
        if let Some(why) = &self.lock().refused {
            return Err(denied(url, why.clone()));
        }
        if !self.has_to_try(url) {
            return Ok(None);
        }
        let mut found = Arc::clone(&self.finding).lock_owned().await;
        if !self.has_to_try(url) || found.refused.is_some() {
            return Ok(None);
        }
        let (known, generation) = {
            let state = self.lock();
            (state.authorization.clone(), state.generation)
        };
        if let Some(authorization) = known {
            return Ok(Some(Trial { found, authorization, generation, is_preemptive: true }));
        }
        let Some(authorization) =
            self.preemptive(&mut found).await.map_err(|why| denied(url, why))?
        else {
            return Ok(None);
        };
        let (authorization, generation) = (Arc::new(authorization), generation + 1);
        Ok(Some(Trial { found, authorization, generation, is_preemptive: true }))
    }

    /// Waits while another request tries to sign in, and returns whether this one still has to.
    pub async fn is_to_be_tried(&self, url: &Url) -> bool {
        self.has_to_try(url) && self.finding.lock().await.refused.is_none() && self.has_to_try(url)
    }

    /// Whether there are preemptive credentials that the server has not accepted yet.
    fn has_to_try(&self, url: &Url) -> bool {
        let has_something = self.token.is_some() || self.has_login();
        has_something && self.is_private() && !self.lock().is_for(url)
    }

    /// Whether a user name and a password for this server are known without a prompt.
    fn has_login(&self) -> bool {
        (self.user.is_some() && self.password.is_some()) || self.in_netrc(false).is_some()
    }

    /// The credentials for a request, if the server has accepted them before.
    ///
    /// # Errors
    /// They cannot be computed for this request.
    pub fn known(&self, method: &Method, url: &Url) -> Result<Option<Credentials>> {
        if url.origin != self.origin {
            return Ok(None);
        }
        let (authorization, generation) = {
            let state = self.lock();
            (state.authorization.clone().filter(|_| state.is_for(url)), state.generation)
        };
        let Some(authorization) = authorization else { return Ok(None) };
        Ok(Some(Credentials { value: authorization.value(method, url)?, generation }))
    }

    /// Notes that the server has not refused the credentials tried with a request to `url`.
    pub fn accepted(&self, url: &Url, trial: Trial) {
        let Trial { authorization, found, is_preemptive, .. } = trial;
        let is_first = is_preemptive && self.lock().authorization.is_none();
        if !is_preemptive {
            self.accepted.store(true, Ordering::Relaxed);
        }
        self.set(authorization, is_first.then(|| url.clone()));
        // From here on, the waiting requests proceed.
        drop(found);
    }

    /// Whether a user name or credentials are known, but the server has not accepted any credentials so far.
    pub fn is_needed(&self) -> bool {
        (self.user.is_some() || self.token.is_some() || self.in_netrc(false).is_some())
            && self.lock().authorization.is_none()
    }

    /// Chooses credentials for a challenge; `credentials` are those sent with the request, and `trial` is given if they
    /// were not accepted before. Returns those to try next, for this request only; `None` if the request is to be
    /// repeated with the known ones.
    ///
    /// # Errors
    /// There are no credentials, or those sent are wrong.
    pub async fn challenged(
        &self,
        head: &Head,
        credentials: Option<&Credentials>,
        trial: Option<Trial>,
    ) -> Result<Option<Trial>> {
        let url = &head.url;
        let (mut found, tried) = match trial {
            Some(Trial { found, authorization, .. }) => (found, Some(authorization)),
            None => (Arc::clone(&self.finding).lock_owned().await, None),
        };
        let (known, generation) = {
            let state = self.lock();
            (
                state.authorization.clone().filter(|_| credentials.is_some() || state.is_for(url)),
                state.generation,
            )
        };
        let is_older = credentials.is_none_or(|credentials| credentials.generation < generation);
        // Another request has signed in since.
        if tried.is_none() && known.is_some() && is_older {
            return Ok(None);
        }
        if let Some(cause) = &found.refused {
            return Err(denied(url, cause.clone()));
        }
        let is_accepted = self.accepted.load(Ordering::Relaxed);
        // A password that was typed for a request that failed may be wrong.
        if tried.is_none() && !is_accepted && found.is_typed() {
            found.login = None;
        }
        let values = head.headers.get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::as_bytes);
        let challenges = challenge::parse(values);
        if credentials.is_some() {
            match tried.as_deref().or(known.as_deref()) {
                Some(Authorization::Digest(_)) if is_stale(&challenges) => {}
                // Preemptive credentials may be right, and only their scheme wrong.
                Some(Authorization::Fixed(_))
                    if found.login.is_some() && wants_digest_only(&challenges) => {}
                _ if tried.is_some() && found.is_typed() && found.typed < MAX_PROMPTS => {
                    found.login = None;
                    self.prompter.notice(TRY_AGAIN).await;
                }
                _ => return Err(denied(url, self.refused(&mut found))),
            }
        }
        let authorization =
            self.respond(&challenges, &mut found).await.map_err(|why| denied(url, why))?;
        let authorization = Arc::new(authorization);
        if !is_accepted {
            let generation = generation + 1;
            return Ok(Some(Trial { found, authorization, generation, is_preemptive: false }));
        }
        self.set(authorization, None);
        Ok(None)
    }

    /// Describes what the server refuses. Unless it has accepted the credentials before, they are not
    /// sent again.
    fn refused(&self, found: &mut Found) -> String {
        let what = match &self.token {
            Some(_) => "the token of HAUL_TOKEN",
            None if self.is_redirected => "the user name or password of its netrc line",
            None => "the user name or password",
        };
        let cause = format!("the server rejected {what}");
        if !self.accepted.load(Ordering::Relaxed) {
            *found = Found { refused: Some(cause.clone()), ..Found::default() };
            let mut state = self.lock();
            state.authorization = None;
            state.generation += 1;
            state.refused = self.is_redirected.then(|| cause.clone());
        }
        cause
    }

    /// Preemptive credentials, sent only where [`Self::is_private`] holds: a token, or a user name and
    /// password. The `default` entry of a netrc names no server and is used only after a challenge.
    async fn preemptive(&self, known: &mut Found) -> Result<Option<Authorization>, String> {
        if let Some(token) = &self.token {
            return self.bearer(token).await.map(Some);
        }
        if !self.has_login() {
            return Ok(None);
        }
        let login = self.login(false, known).await?;
        let authorization = Authorization::Fixed(header(
            &basic::authorization(&login.user, &login.password.0)
                .map_err(|error| error.to_string())?,
        )?);
        known.login = Some(login);
        Ok(Some(authorization))
    }

    /// The credentials for the strongest supported challenge.
    async fn respond(
        &self,
        challenges: &[Challenge],
        known: &mut Found,
    ) -> Result<Authorization, String> {
        let bearer = challenges.iter().any(|one| matches!(one, Challenge::Bearer { .. }));
        if let Some(token) = self.token.as_ref().filter(|_| bearer || challenges.is_empty()) {
            return self.bearer(token).await;
        }
        let digests = challenges.iter().filter(|one| matches!(one, Challenge::Digest(_)));
        let digest = match digests.max_by_key(|one| one.strength()) {
            Some(Challenge::Digest(digest)) => Some(digest),
            _ => None,
        };
        let has_basic = challenges.iter().any(|one| matches!(one, Challenge::Basic { .. }));
        if digest.is_none() && !has_basic {
            let names: Vec<_> = challenges.iter().filter_map(unsupported).collect();
            return Err(match (names.is_empty(), bearer) {
                (_, true) => "the server requires a token: put it into HAUL_TOKEN".to_owned(),
                (false, _) => {
                    format!(
                        "the server requires {} authentication, which haul does not \
                             support",
                        names.join(", ")
                    )
                }
                (true, _) => {
                    "the server requires credentials, but names no authentication method".to_owned()
                }
            });
        }
        let login = match known.login.take() {
            Some(login) => login,
            None => self.login(true, known).await?,
        };
        let found = known.login.insert(login);
        match digest {
            Some(digest) => {
                let session =
                    DigestSession::new(digest.clone(), &found.user, &found.password.0, &random()?);
                Ok(Authorization::Digest(session.map_err(|error| error.to_string())?))
            }
            None => {
                let value = basic::authorization(&found.user, &found.password.0);
                Ok(Authorization::Fixed(header(&value.map_err(|error| error.to_string())?)?))
            }
        }
    }

    async fn bearer(&self, token: &PasswordSource) -> Result<Authorization, String> {
        let token = token.fetch().await?;
        Ok(Authorization::Fixed(header(&format!("Bearer {}", token.expose()))?))
    }

    /// A user name and a password; `challenged`: the server has sent a challenge.
    async fn login(&self, challenged: bool, known: &mut Found) -> Result<Login, String> {
        if let (Some(user), Some(source)) = (&self.user, &self.password) {
            let password = Password::from(&source.fetch().await?);
            return Ok(Login { user: user.clone().into_bytes(), password, is_typed: false });
        }
        if let Some(login) = self.in_netrc(challenged) {
            return Ok(login);
        }
        let Some(user) = &self.user else {
            return Err("the server requires credentials: put USER@ before the host and the \
                        password into HAUL_PASSWORD, or both into ~/.netrc, or a token into \
                        HAUL_TOKEN"
                .to_owned());
        };
        let prompt = format!("Password of {user} at {}: ", self.origin);
        known.typed += 1;
        let typed = self.prompter.secret(&prompt).await.map_err(|error| error.to_string())?;
        let Some(password) = typed else {
            let cause =
                format!("no password for {user}, and no terminal to prompt on: set HAUL_PASSWORD");
            // A user who gave no password is not prompted again for every request.
            known.refused = Some(cause.clone());
            return Err(cause);
        };
        let (user, password) = (user.clone().into_bytes(), Password::from(&password));
        Ok(Login { user, password, is_typed: true })
    }

    /// The netrc's entry for the server; its `default` entry only if the server has `challenged` haul.
    fn in_netrc(&self, challenged: bool) -> Option<Login> {
        let machine = self.netrc.as_ref()?.lookup(self.origin.host(), self.user.as_deref())?;
        if machine.is_default() && !challenged {
            return None;
        }
        let (user, password) = match (&self.user, &machine.login, &machine.password) {
            (Some(user), _, Some(password)) => (user.clone().into_bytes(), password.clone()),
            (None, Some(login), Some(password)) => (login.clone(), password.clone()),
            // As in curl, no password means an empty one. If the user was named, haul prompts for it.
            (None, Some(login), None) => (login.clone(), Zeroizing::default()),
            _ => return None,
        };
        Some(Login { user, password: Password(password), is_typed: false })
    }

    /// Whether credentials may be sent before a challenge: over TLS, or to an origin that another one redirects to,
    /// which is always private (TLS, or without it on this machine).
    fn is_private(&self) -> bool {
        self.is_redirected || self.origin.scheme() == WebScheme::Https
    }

    fn set(&self, authorization: Arc<Authorization>, only: Option<Url>) {
        let mut state = self.lock();
        // Applying the same credentials to further URLs does not change them.
        if !state.authorization.as_ref().is_some_and(|known| Arc::ptr_eq(known, &authorization)) {
            state.generation += 1;
        }
        (state.authorization, state.only) = (Some(authorization), only);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unsupported(challenge: &Challenge) -> Option<&str> {
    match challenge {
        Challenge::Unsupported { scheme } => Some(scheme),
        _ => None,
    }
}

/// Whether Digest's nonce was too old; then the password is right.
fn is_stale(challenges: &[Challenge]) -> bool {
    challenges.iter().any(|one| matches!(one, Challenge::Digest(digest) if digest.stale))
}

fn wants_digest_only(challenges: &[Challenge]) -> bool {
    let basic = challenges.iter().any(|one| matches!(one, Challenge::Basic { .. }));
    !basic && challenges.iter().any(|one| matches!(one, Challenge::Digest(_)))
}

fn header(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "it has a character that a header field cannot contain".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

/// An unpredictable number, for Digest.
fn random() -> Result<String, String> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| "the system's random number generator failed")?;
    Ok(HEXLOWER.encode(&bytes))
}

fn denied(url: &Url, cause: String) -> Error {
    Error::new(ErrorKind::Unauthenticated, "authenticate").at(url).because(cause)
}

#[cfg(test)]
mod tests {
    use haul_net::NoPrompter;
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn sign_in(url: &Url, netrc: &[u8]) -> SignIn {
        let netrc = Some(Arc::new(Netrc::parse(netrc).unwrap()));
        let options = HttpOptions { netrc, ..HttpOptions::default() };
        SignIn::new(url.origin.clone(), None, &options, Arc::new(NoPrompter))
    }

    async fn preemptive(netrc: &[u8]) -> Option<String> {
        let url = Url::parse("https://h/f").unwrap();
        let trial = sign_in(&url, netrc).try_preemptive(&url).await.unwrap()?;
        let credentials = trial.credentials(&Method::GET, &url).unwrap();
        Some(credentials.value.to_str().unwrap().to_owned())
    }

    /// The `default` used to be sent to every server with TLS.
    #[tokio::test]
    async fn the_default_of_a_netrc_waits_for_a_challenge() {
        let basic = Some("Basic YWRhOnA=");
        let default = b"default login ada password p";
        assert_eq!(preemptive(b"machine h login ada password p").await.as_deref(), basic);
        assert_eq!(preemptive(default).await, None);

        let url = Url::parse("https://h/f").unwrap();
        let sign_in = sign_in(&url, default);
        let mut headers = HeaderMap::new();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"r\""));
        let head = Head { status: StatusCode::UNAUTHORIZED, headers, url: url.clone() };
        let trial = sign_in.challenged(&head, None, None).await.unwrap().unwrap();
        let credentials = trial.credentials(&Method::GET, &url).unwrap();
        assert_eq!(credentials.value.to_str().ok(), basic);
    }

    /// Success on a public page used to be taken for a proof of the password, so a wrong one was sent for each file.
    #[tokio::test]
    async fn preemptive_credentials_are_tried_for_two_urls() {
        let url = |path: &str| Url::parse(&format!("https://h/{path}")).unwrap();
        let (page, file, other) = (url(""), url("file"), url("other"));
        let challenge = |url: &Url| {
            let mut headers = HeaderMap::new();
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"r\""));
            Head { status: StatusCode::UNAUTHORIZED, headers, url: url.clone() }
        };
        for is_right in [true, false] {
            let sign_in = sign_in(&page, b"machine h login ada password p");
            let trial = sign_in.try_preemptive(&page).await.unwrap().unwrap();
            sign_in.accepted(&page, trial);
            assert!(sign_in.known(&Method::GET, &page).unwrap().is_some());
            assert!(sign_in.known(&Method::GET, &file).unwrap().is_none());
            assert!(sign_in.is_to_be_tried(&file).await);
            let trial = sign_in.try_preemptive(&file).await.unwrap().unwrap();
            let credentials = trial.credentials(&Method::GET, &file).unwrap();
            if is_right {
                sign_in.accepted(&file, trial);
                assert!(sign_in.known(&Method::GET, &other).unwrap().is_some());
                continue;
            }
            let refused =
                sign_in.challenged(&challenge(&file), Some(&credentials), Some(trial)).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unauthenticated);
            for url in [&page, &file, &other] {
                assert!(sign_in.try_preemptive(url).await.unwrap().is_none());
                assert!(sign_in.known(&Method::GET, url).unwrap().is_none());
                assert!(sign_in.challenged(&challenge(url), None, None).await.is_err());
            }
        }
    }

    #[tokio::test]
    async fn a_login_without_a_password_has_an_empty_one() {
        let credentials = preemptive(b"machine h login ada").await;
        assert_eq!(credentials.as_deref(), Some("Basic YWRhOg=="));
        let credentials = preemptive(b"machine h login ada password p\xe4ss").await;
        assert_eq!(credentials.as_deref(), Some("Basic YWRhOnDkc3M="));
    }
}
