//! Sends requests until there is a final response: follows redirects, authenticates, and retries transient
//! failures.

use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, Result, Retry};
use http::header::LOCATION;
use http::{Method, StatusCode};
use tokio::time::sleep;

use super::error;
use super::exchange::{Exchange, is_busy};
use super::head::Head;
use super::pauses::{LONGEST_WAIT, too_long, wanted_pause};
use super::request::{Request, is_safe, repeatable};
use super::response::Response;
use crate::parse::{Origin, Url, WebScheme};

/// Browsers follow 20 (Fetch standard), curl 50; fewer are enough to detect a loop.
const MOST_REDIRECTS: usize = 10;

/// How often a request restarts because another one has signed in meanwhile: a cookie may be valid for
/// few requests.
const MOST_RESTARTS: usize = 3;

/// The most 401 responses to one request: for missing credentials, a stale nonce, or credentials that another
/// request has replaced meanwhile.
const MOST_CHALLENGES: usize = 8;

/// How often a request is tried.
const TRIES: u32 = 5;
const FIRST_PAUSE: Duration = Duration::from_millis(300);

impl Exchange {
    /// Sends a request, and retries transient failures. Any status but 401 counts as a response.
    ///
    /// # Errors
    /// No response arrives, a redirect cannot be followed, sign-in fails, or the server asks for too long a pause.
    pub async fn patiently(&self, request: &Request) -> Result<Response> {
        let (mut tried, mut began) = (0, None);
        loop {
            let outcome = self.once(request).await;
            tried += 1;
            let again = match &outcome {
                Ok(response) => may_pass(response.status),
                Err(error) => error.retry() == Retry::Later,
            };
            if !again || tried >= TRIES {
                return outcome;
            }
            if let Ok(response) = outcome {
                let is_busy = is_busy(response.status);
                let pause = if is_busy { wanted_pause(&response) } else { None };
                let waited = began.get_or_insert_with(Instant::now).elapsed();
                if let Some(pause) = pause.filter(|pause| waited + *pause > LONGEST_WAIT) {
                    return Err(too_long(waited, pause, request.operation, &response.url));
                }
            }
            sleep(FIRST_PAUSE * (1 << (tried - 1))).await;
        }
    }

    /// Sends a request for at most `most` bytes on a shared connection, and if that is no plain success, on a
    /// connection of its own.
    ///
    /// # Errors
    /// As [`Exchange::patiently`].
    pub async fn small(&self, request: &Request, most: u64) -> Result<Response> {
        match self.pipelined(request, most).await {
            Some(response) => Ok(response),
            None => self.patiently(request).await,
        }
    }

    /// Sends a request once, follows redirects and responds to challenges.
    ///
    /// Many requests may be redirected to one login server, at the beginning or when a cookie has
    /// expired. One of them follows; the others wait for it and then restart with the cookies that it
    /// got.
    ///
    /// # Errors
    /// As [`Exchange::patiently`].
    pub async fn once(&self, request: &Request) -> Result<Response> {
        let mut url = request.url.clone();
        let (mut redirects, mut challenges) = (0, 0);
        let (mut walk, mut restarts) = (None, 0);
        let mut trial = self.sign_ins.try_preemptive(&url).await?;
        loop {
            let credentials = match &trial {
                Some(trial) => Some(trial.credentials(&request.method, &url)?),
                None => self.sign_ins.known(&request.method, &url)?,
            };
            let walks = self.walks.done();
            let changes = self.jar().changes();
            let response = self.send(request, &url, credentials.as_ref()).await?;
            if response.status == StatusCode::UNAUTHORIZED {
                challenges += 1;
                if challenges > MOST_CHALLENGES {
                    return Err(error::of_status(response.status, request.operation, &url));
                }
                let head = Head::clone(&response);
                // The request that tries a password may need this one's lane.
                drop(response);
                // Boxed because the future is large and rarely needed.
                trial =
                    Box::pin(self.sign_ins.challenged(&head, credentials.as_ref(), trial)).await?;
                continue;
            }
            if let Some(trial) = trial.take()
                && !(trial.is_preemptive() && may_pass(response.status))
            {
                self.sign_ins.accepted(&url, trial);
            }
            let Some(next) = redirect(&response, request)? else {
                if let Some(walk) = walk {
                    self.walks.ended(walk, self.jar().changes());
                }
                return Ok(response);
            };
            redirects += 1;
            // A server that sets a cookie may redirect to the same URL to check it.
            let leads_nowhere = next == url && self.jar().changes() == changes;
            if redirects > MOST_REDIRECTS || leads_nowhere {
                return Err(Error::new(ErrorKind::Protocol, request.operation)
                    .at(&request.url)
                    .because(format!("too many redirects, the last to {next}")));
            }
            drop(response);
            url = next;
            if walk.is_none() && self.signs_in_with_cookies(&url.origin) {
                let begun = self.walks.begin(&url.origin).await;
                if restarts < MOST_RESTARTS && self.walks.done() != walks {
                    restarts += 1;
                    url = request.url.clone();
                } else {
                    walk = Some(begun.from(self.jar().changes()));
                }
            }
            trial = self.sign_ins.try_preemptive(&url).await?;
        }
    }

    /// Whether a server that was redirected to authenticates, and may set cookies that spare other requests the
    /// redirect.
    fn signs_in_with_cookies(&self, origin: &Origin) -> bool {
        self.sign_ins.signs_for_others(origin) && self.walks.may_set_cookies(origin)
    }
}

/// Whether a status is transient.
pub fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 425 | 429 | 500 | 502 | 503 | 504)
}

/// The URL that a response redirects to; `None` if it is no redirect that haul follows. Fails if the redirect is not
/// allowed.
fn redirect(response: &Head, request: &Request) -> Result<Option<Url>> {
    let follows = match response.status.as_u16() {
        301 | 302 | 307 | 308 => true,
        303 => request.method == Method::GET || request.method == Method::HEAD,
        _ => false,
    };
    let Some(location) = response.header(&LOCATION).filter(|_| follows) else { return Ok(None) };
    let next = response.url.join(location).map_err(|cause| {
        Error::new(ErrorKind::Protocol, request.operation)
            .at(&request.url)
            .because(format!("the server redirects to an invalid location: {cause}"))
    })?;
    // A server behind a proxy that redirects a directory to its URL with a slash may name itself by an internal
    // host name in that URL.
    let next = match response.url.is_without_slash(&next) {
        true => next.on(response.url.origin.clone()),
        false => next,
    };
    if next.origin != response.url.origin && !is_safe(&request.method) {
        let cause = format!(
            "the server redirects to {next}; requests that change data go only to the server \
             that was named"
        );
        return Err(Error::new(ErrorKind::PermissionDenied, request.operation)
            .at(&request.url)
            .because(cause));
    }
    let tls = |url: &Url| url.origin.scheme() == WebScheme::Https;
    if tls(&response.url) && !tls(&next) {
        return Err(Error::new(ErrorKind::PermissionDenied, request.operation)
            .at(&request.url)
            .because(format!("the server redirects from HTTPS to plain HTTP, to {next}")));
    }
    if repeatable(&request.method) || matches!(response.status.as_u16(), 307 | 308) {
        return Ok(Some(next));
    }
    Err(Error::new(ErrorKind::Protocol, request.operation)
        .at(&request.url)
        .because(format!("the server redirects to {next}: use that location instead")))
}
