//! Decides which requests are admitted: checks host name and credentials.

use std::net::SocketAddr;
use std::time::Instant;

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use tokio::time::sleep;

use super::body::Body;
use super::credentials::{Credentials, Presented};
use super::failures::{Failures, REFUSAL, WINDOW};
use super::names::{Foreign, Names};
use super::refusal;
use super::visitor::{ClientAction, Observer};

/// The owner of locks, if no password is required.
const ANONYMOUS: &str = "anybody";

/// Checks requests.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) names: Names,
    /// `None` if no password is required.
    pub(super) credentials: Option<Credentials>,
    pub(super) failures: Failures,
    pub(super) observer: Observer,
}

impl Gate {
    /// The user of a request; or the response that refuses it.
    pub(super) async fn admit(
        &self,
        request: &Parts,
        from: SocketAddr,
    ) -> Result<&str, Response<Body>> {
        let by_any_name = self.credentials.is_some();
        self.names
            .check(request, by_any_name)
            .map_err(|Foreign(status, words)| refusal::text(status, words))?;
        let Some(credentials) = &self.credentials else { return Ok(ANONYMOUS) };
        if self.failures.are_too_many(from.ip(), Instant::now()) {
            return Err(too_many());
        }
        let Some(presented) = request.headers.get(header::AUTHORIZATION).and_then(Presented::read)
        else {
            return Err(challenge());
        };
        if credentials.allow(&presented) {
            return Ok(credentials.user());
        }
        self.failures.add(from.ip(), Instant::now());
        self.observer.notify(from, ClientAction::Refused { user: presented.user() });
        sleep(REFUSAL).await;
        Err(challenge())
    }
}

fn challenge() -> Response<Body> {
    let mut response = refusal::status(StatusCode::UNAUTHORIZED);
    let basic = HeaderValue::from_static("Basic realm=\"haul\", charset=\"UTF-8\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
    response
}

fn too_many() -> Response<Body> {
    let mut response = refusal::status(StatusCode::TOO_MANY_REQUESTS);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(WINDOW.as_secs()));
    response
}
