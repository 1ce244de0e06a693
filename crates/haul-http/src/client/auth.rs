//! Who we are, to one origin: the one that the user named, or one that it redirects to.
//!
//! ```text
//! token, user and password, netrc → what is said unasked (over TLS only) → a challenge → what it asks for
//! ```
//!
//! Basic and Bearer are said with every request once they have worked. Digest is computed for each. To an origin
//! that another one redirects to, only its own `machine` line of the netrc is said.
//!
//! Credentials are tried by one request, while the others wait: a wrong password that is sent by several at once
//! could lock the account. Those that are sent unasked are tried for two URLs, since the first one may be public. One
//! that was typed can be typed again if it is refused. What the server has refused for good is not sent to it again.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use data_encoding::HEXLOWER;
use haul_net::{MOST_TYPED, PasswordSource, Prompter, Secret, TRY_AGAIN};
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

/// What is needed to sign requests to one origin.
#[derive(Debug)]
pub struct SignIn {
    origin: Origin,
    user: Option<String>,
    password: Option<PasswordSource>,
    token: Option<PasswordSource>,
    netrc: Option<Arc<Netrc>>,
    /// Another origin has led here.
    is_redirected: bool,
    prompter: Arc<dyn Prompter>,
    state: Mutex<State>,
    /// The server has asked for credentials and accepted them.
    accepted: AtomicBool,
    /// Held by the request that finds out what to say, until the server has accepted it.
    finding: Arc<tokio::sync::Mutex<Found>>,
}

/// What has been found out.
#[derive(Debug, Default)]
struct Found {
    login: Option<Login>,
    /// How often a password was typed.
    typed: u32,
    /// Why nothing is said any more.
    refused: Option<String>,
}

impl Found {
    fn is_typed(&self) -> bool {
        self.login.as_ref().is_some_and(|login| login.is_typed)
    }
}

/// Credentials until the server has accepted them. Other requests do not send them before that.
#[derive(Debug)]
pub struct Trial {
    found: tokio::sync::OwnedMutexGuard<Found>,
    way: Arc<Way>,
    generation: u64,
    /// The server has not asked for credentials. If it accepts the request, that is no proof that they are right.
    is_unasked: bool,
}

impl Trial {
    /// Whether the server has not asked for them.
    pub const fn is_unasked(&self) -> bool {
        self.is_unasked
    }

    /// What to say with a request.
    ///
    /// # Errors
    /// It cannot be said of this request.
    pub fn said(&self, method: &Method, url: &Url) -> Result<Said> {
        Ok(Said { value: self.way.value(method, url)?, generation: self.generation })
    }
}

#[derive(Debug, Default)]
struct State {
    way: Option<Arc<Way>>,
    /// The only URL that the way is for, as long as it was sent unasked to no other one.
    only: Option<Url>,
    /// Changes with the way.
    generation: u64,
    /// Why nothing more is said to an origin that was redirected to: a wrong password that is sent for each file of
    /// many could lock the account.
    refused: Option<String>,
}

impl State {
    /// Whether requests to `url` are signed without a trial.
    fn is_for(&self, url: &Url) -> bool {
        self.way.is_some() && self.only.as_ref().is_none_or(|only| only == url)
    }
}

/// How requests are signed.
#[derive(Debug)]
enum Way {
    /// The same for all of them.
    Fixed(HeaderValue),
    Digest(DigestSession),
}

impl Way {
    /// What is said with a request.
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

/// As the user wrote it: a netrc need not be text.
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

/// What was said with a request.
#[derive(Debug, Clone)]
pub struct Said {
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

    /// To whom.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Begins to try what can be said unasked, if the server has not accepted anything yet. While another request
    /// tries it, this one waits.
    ///
    /// # Errors
    /// What there is to say cannot be had.
    pub async fn try_unasked(&self, url: &Url) -> Result<Option<Trial>> {
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
            (state.way.clone(), state.generation)
        };
        if let Some(way) = known {
            return Ok(Some(Trial { found, way, generation, is_unasked: true }));
        }
        let Some(way) = self.unasked(&mut found).await.map_err(|why| denied(url, why))? else {
            return Ok(None);
        };
        let (way, generation) = (Arc::new(way), generation + 1);
        Ok(Some(Trial { found, way, generation, is_unasked: true }))
    }

    /// Waits while a request tries to sign in. Whether one still has to.
    pub async fn is_to_be_tried(&self, url: &Url) -> bool {
        self.has_to_try(url) && self.finding.lock().await.refused.is_none() && self.has_to_try(url)
    }

    /// Whether there is something to say unasked that the server has not accepted yet.
    fn has_to_try(&self, url: &Url) -> bool {
        let has_something = self.token.is_some() || self.has_login();
        has_something && self.is_private() && !self.lock().is_for(url)
    }

    /// Whether there are a name and a password for this server, without asking for one.
    fn has_login(&self) -> bool {
        (self.user.is_some() && self.password.is_some()) || self.in_netrc(false).is_some()
    }

    /// What the server has accepted.
    ///
    /// # Errors
    /// It cannot be said of this request.
    pub fn known(&self, method: &Method, url: &Url) -> Result<Option<Said>> {
        if url.origin != self.origin {
            return Ok(None);
        }
        let (way, generation) = {
            let state = self.lock();
            (state.way.clone().filter(|_| state.is_for(url)), state.generation)
        };
        let Some(way) = way else { return Ok(None) };
        Ok(Some(Said { value: way.value(method, url)?, generation }))
    }

    /// Notes that the server has not refused what was tried with a request to `url`.
    pub fn accepted(&self, url: &Url, trial: Trial) {
        let Trial { way, found, is_unasked, .. } = trial;
        let is_first = is_unasked && self.lock().way.is_none();
        if !is_unasked {
            self.accepted.store(true, Ordering::Relaxed);
        }
        self.set(way, is_first.then(|| url.clone()));
        // Until here the others have waited.
        drop(found);
    }

    /// Whether there is something to say that has not been found out yet.
    pub fn is_needed(&self) -> bool {
        (self.user.is_some() || self.token.is_some() || self.in_netrc(false).is_some())
            && self.lock().way.is_none()
    }

    /// Finds out what to answer to a challenge; `said` is what was said with the request, and `trial` if it
    /// was not accepted before. What is tried next is returned, and for this request alone.
    ///
    /// # Errors
    /// There is nothing to say, or what was said is wrong.
    pub async fn challenged(
        &self,
        head: &Head,
        said: Option<&Said>,
        trial: Option<Trial>,
    ) -> Result<Option<Trial>> {
        let url = &head.url;
        let (mut found, tried) = match trial {
            Some(Trial { found, way, .. }) => (found, Some(way)),
            None => (Arc::clone(&self.finding).lock_owned().await, None),
        };
        let (known, generation) = {
            let state = self.lock();
            (state.way.clone().filter(|_| said.is_some() || state.is_for(url)), state.generation)
        };
        let is_older = said.is_none_or(|said| said.generation < generation);
        // Somebody else has found something out since.
        if tried.is_none() && known.is_some() && is_older {
            return Ok(None);
        }
        if let Some(cause) = &found.refused {
            return Err(denied(url, cause.clone()));
        }
        let is_accepted = self.accepted.load(Ordering::Relaxed);
        // What became of a password that was typed for a request which failed is not known.
        if tried.is_none() && !is_accepted && found.is_typed() {
            found.login = None;
        }
        let values = head.headers.get_all(WWW_AUTHENTICATE).iter().map(HeaderValue::as_bytes);
        let challenges = challenge::parse(values);
        if said.is_some() {
            match tried.as_deref().or(known.as_deref()) {
                Some(Way::Digest(_)) if is_stale(&challenges) => {}
                // What was said unasked may only have been said in the wrong way.
                Some(Way::Fixed(_)) if found.login.is_some() && wants_digest_only(&challenges) => {}
                _ if tried.is_some() && found.is_typed() && found.typed < MOST_TYPED => {
                    found.login = None;
                    self.prompter.notice(TRY_AGAIN).await;
                }
                _ => return Err(denied(url, self.refused(&mut found))),
            }
        }
        let way = self.answer(&challenges, &mut found).await.map_err(|why| denied(url, why))?;
        let way = Arc::new(way);
        if !is_accepted {
            let generation = generation + 1;
            return Ok(Some(Trial { found, way, generation, is_unasked: false }));
        }
        self.set(way, None);
        Ok(None)
    }

    /// Says what the server refuses. Unless it has accepted it before, it is not said again.
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
            state.way = None;
            state.generation += 1;
            state.refused = self.is_redirected.then(|| cause.clone());
        }
        cause
    }

    /// What is said without being asked, over an encrypted connection: a token, or a name and a password. The `default` of a netrc is for servers that ask: it names none of them.
    async fn unasked(&self, known: &mut Found) -> Result<Option<Way>, String> {
        if let Some(token) = &self.token {
            return self.bearer(token).await.map(Some);
        }
        if !self.has_login() {
            return Ok(None);
        }
        let login = self.login(false, known).await?;
        let way = Way::Fixed(header(
            &basic::authorization(&login.user, &login.password.0)
                .map_err(|error| error.to_string())?,
        )?);
        known.login = Some(login);
        Ok(Some(way))
    }

    async fn answer(&self, challenges: &[Challenge], known: &mut Found) -> Result<Way, String> {
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
                Ok(Way::Digest(session.map_err(|error| error.to_string())?))
            }
            None => {
                let value = basic::authorization(&found.user, &found.password.0);
                Ok(Way::Fixed(header(&value.map_err(|error| error.to_string())?)?))
            }
        }
    }

    async fn bearer(&self, token: &PasswordSource) -> Result<Way, String> {
        let token = token.fetch().await?;
        Ok(Way::Fixed(header(&format!("Bearer {}", token.expose()))?))
    }

    /// A name and a password; `asked` whether the server has asked for them.
    async fn login(&self, asked: bool, known: &mut Found) -> Result<Login, String> {
        if let (Some(user), Some(source)) = (&self.user, &self.password) {
            let password = Password::from(&source.fetch().await?);
            return Ok(Login { user: user.clone().into_bytes(), password, is_typed: false });
        }
        if let Some(login) = self.in_netrc(asked) {
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
            // Who has given up is not asked for each request.
            known.refused = Some(cause.clone());
            return Err(cause);
        };
        let (user, password) = (user.clone().into_bytes(), Password::from(&password));
        Ok(Login { user, password, is_typed: true })
    }

    /// What the netrc says of the server; of any server only if that has `asked`.
    fn in_netrc(&self, asked: bool) -> Option<Login> {
        let machine = self.netrc.as_ref()?.lookup(self.origin.host(), self.user.as_deref())?;
        if machine.is_default() && !asked {
            return None;
        }
        let (user, password) = match (&self.user, &machine.login, &machine.password) {
            (Some(user), _, Some(password)) => (user.clone().into_bytes(), password.clone()),
            (None, Some(login), Some(password)) => (login.clone(), password.clone()),
            // As in curl, that is one with an empty password. Of a user that was named it is asked for.
            (None, Some(login), None) => (login.clone(), Zeroizing::default()),
            _ => return None,
        };
        Some(Login { user, password: Password(password), is_typed: false })
    }

    /// Whether credentials are encrypted on their way.
    fn is_private(&self) -> bool {
        self.is_redirected || self.origin.scheme() == WebScheme::Https
    }

    fn set(&self, way: Arc<Way>, only: Option<Url>) {
        let mut state = self.lock();
        // The same way for further URLs is not a new one.
        if !state.way.as_ref().is_some_and(|known| Arc::ptr_eq(known, &way)) {
            state.generation += 1;
        }
        (state.way, state.only) = (Some(way), only);
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

/// The number that Digest was made with is too old; the password is right.
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

/// A number that nobody can guess, for Digest.
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
    use haul_net::Nobody;
    use http::{HeaderMap, StatusCode};

    use super::*;

    fn sign_in(url: &Url, netrc: &[u8]) -> SignIn {
        let netrc = Some(Arc::new(Netrc::parse(netrc).unwrap()));
        let options = HttpOptions { netrc, ..HttpOptions::default() };
        SignIn::new(url.origin.clone(), None, &options, Arc::new(Nobody))
    }

    async fn unasked(netrc: &[u8]) -> Option<String> {
        let url = Url::parse("https://h/f").unwrap();
        let trial = sign_in(&url, netrc).try_unasked(&url).await.unwrap()?;
        let said = trial.said(&Method::GET, &url).unwrap();
        Some(said.value.to_str().unwrap().to_owned())
    }

    /// It was sent to every server that has TLS.
    #[tokio::test]
    async fn the_default_of_a_netrc_waits_for_a_challenge() {
        let basic = Some("Basic YWRhOnA=");
        let default = b"default login ada password p";
        assert_eq!(unasked(b"machine h login ada password p").await.as_deref(), basic);
        assert_eq!(unasked(default).await, None);

        let url = Url::parse("https://h/f").unwrap();
        let sign_in = sign_in(&url, default);
        let mut headers = HeaderMap::new();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"r\""));
        let head = Head { status: StatusCode::UNAUTHORIZED, headers, url: url.clone() };
        let trial = sign_in.challenged(&head, None, None).await.unwrap().unwrap();
        let said = trial.said(&Method::GET, &url).unwrap();
        assert_eq!(said.value.to_str().ok(), basic);
    }

    /// A public page was taken for a proof that the password is right, so it was sent with each file, and refused.
    #[tokio::test]
    async fn credentials_that_were_not_asked_for_are_tried_for_two_urls() {
        let url = |path: &str| Url::parse(&format!("https://h/{path}")).unwrap();
        let (page, file, other) = (url(""), url("file"), url("other"));
        let challenge = |url: &Url| {
            let mut headers = HeaderMap::new();
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"r\""));
            Head { status: StatusCode::UNAUTHORIZED, headers, url: url.clone() }
        };
        for is_right in [true, false] {
            let sign_in = sign_in(&page, b"machine h login ada password p");
            let trial = sign_in.try_unasked(&page).await.unwrap().unwrap();
            sign_in.accepted(&page, trial);
            assert!(sign_in.known(&Method::GET, &page).unwrap().is_some());
            assert!(sign_in.known(&Method::GET, &file).unwrap().is_none());
            assert!(sign_in.is_to_be_tried(&file).await);
            let trial = sign_in.try_unasked(&file).await.unwrap().unwrap();
            let said = trial.said(&Method::GET, &file).unwrap();
            if is_right {
                sign_in.accepted(&file, trial);
                assert!(sign_in.known(&Method::GET, &other).unwrap().is_some());
                continue;
            }
            let refused = sign_in.challenged(&challenge(&file), Some(&said), Some(trial)).await;
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unauthenticated);
            for url in [&page, &file, &other] {
                assert!(sign_in.try_unasked(url).await.unwrap().is_none());
                assert!(sign_in.known(&Method::GET, url).unwrap().is_none());
                assert!(sign_in.challenged(&challenge(url), None, None).await.is_err());
            }
        }
    }

    #[tokio::test]
    async fn a_login_without_a_password_has_an_empty_one() {
        let said = unasked(b"machine h login ada").await;
        assert_eq!(said.as_deref(), Some("Basic YWRhOg=="));
        let said = unasked(b"machine h login ada password p\xe4ss").await;
        assert_eq!(said.as_deref(), Some("Basic YWRhOnDkc3M="));
    }
}
