//! Pauses that servers request with `Retry-After` (RFC 9110, 10.2.3), by origin and by URL.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use haul_net::HostWaits;
use haul_storage::{Error, ErrorKind, Result, Retry, Timestamp};
use http::header::RETRY_AFTER;
use tokio::time::sleep;

use super::head::Head;
use crate::parse::{Origin, Url, retry_after};

/// Longest pause that haul waits for, for one request in total; a longer one is an error.
pub const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Maximum number of URLs with a longer pause to remember; for others the request is sent again.
const MOST_AWAY: usize = 4096;

/// Requested pauses, some of which may have expired. Shared by all connections to a host.
#[derive(Debug, Default)]
pub struct Pauses {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    quiet_until: HashMap<Origin, Instant>,
    /// URLs with a pause longer than `LONGEST_WAIT`: this may concern a single file, for instance one
    /// being loaded from tape.
    away_until: HashMap<Url, Instant>,
}

impl Pauses {
    /// Records the pause that a response requests: for its whole origin up to `LONGEST_WAIT`, for its URL
    /// only if longer.
    pub fn learn(&self, head: &Head) {
        let Some(pause) = wanted_pause(head) else { return };
        let Some(until) = Instant::now().checked_add(pause) else { return };
        let mut state = self.lock();
        if pause <= LONGEST_WAIT {
            let longest = state.quiet_until.entry(head.url.origin.clone()).or_insert(until);
            *longest = until.max(*longest);
            return;
        }
        if state.away_until.len() >= MOST_AWAY {
            let now = Instant::now();
            state.away_until.retain(|_, until| *until > now);
        }
        if state.away_until.len() < MOST_AWAY || state.away_until.contains_key(&head.url) {
            state.away_until.insert(head.url.clone(), until);
        }
    }

    /// Waits until a request for `url` may be sent.
    ///
    /// # Errors
    /// `Busy`, not to be retried, while more than [`LONGEST_WAIT`] is left of a requested pause for `url`.
    pub async fn wait(&self, url: &Url, waits: &HostWaits, operation: &'static str) -> Result<()> {
        let until = {
            let state = self.lock();
            let quiet_until = state.quiet_until.get(&url.origin).copied();
            quiet_until.max(state.away_until.get(url).copied())
        };
        if let Some(pause) = until.map(|until| until.saturating_duration_since(Instant::now())) {
            if pause > LONGEST_WAIT {
                return Err(too_long(Duration::ZERO, pause, operation, url));
            }
            waits
                .watch(
                    || "end of the pause that the server requested (Retry-After)".to_owned(),
                    sleep(pause),
                )
                .await;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for a pause that exceeds [`LONGEST_WAIT`] together with the time that the request has already waited.
pub fn too_long(waited: Duration, pause: Duration, operation: &'static str, url: &Url) -> Error {
    let (pause, most) = (pause.as_secs_f64().ceil(), LONGEST_WAIT.as_secs());
    let before = match waited.as_millis().div_ceil(1000) {
        0 => String::new(),
        waited => format!(" after {waited} s"),
    };
    Error::new(ErrorKind::Busy, operation)
        .at(url)
        .because(format!(
            "the server asks to wait {pause} s (Retry-After){before}, more than the {most} s that \
             haul waits in total"
        ))
        .with_retry(Retry::Never)
}

/// The pause that a response requests with `Retry-After`.
pub fn wanted_pause(head: &Head) -> Option<Duration> {
    let now = Timestamp::from(SystemTime::now());
    retry_after::parse(head.header(&RETRY_AFTER)?, now)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;
    use crate::parse::WebScheme;

    /// Regression: 200 s after `Retry-After: 400`, a request failed for good.
    #[tokio::test]
    async fn the_end_of_a_long_pause_is_waited_for() {
        let origin = Origin::new(WebScheme::Http, "host", None).unwrap();
        let url = Url::new(origin, b"/file", None).unwrap();
        let (pauses, waits) = (Pauses::default(), HostWaits::default());
        let until = Instant::now() + Duration::from_millis(20);
        pauses.lock().away_until.insert(url.clone(), until);
        pauses.wait(&url, &waits, "access").await.unwrap();
        assert!(Instant::now() >= until);
        let until = Instant::now() + 2 * LONGEST_WAIT;
        pauses.lock().away_until.insert(url.clone(), until);
        let error = pauses.wait(&url, &waits, "access").await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Never));
        assert!(error.to_string().contains("asks to wait 600 s (Retry-After), more"), "{error}");
    }

    /// A response that was sent earlier, or by another server behind the same name, used to shorten a pause.
    #[test]
    fn a_shorter_pause_does_not_replace_a_longer_one() {
        let origin = Origin::new(WebScheme::Http, "host", None).unwrap();
        let pauses = Pauses::default();
        let until = |seconds: &'static str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(seconds))]);
            let url = Url::new(origin.clone(), b"/file", None).unwrap();
            pauses.learn(&Head { status: StatusCode::TOO_MANY_REQUESTS, headers, url });
            pauses.lock().quiet_until[&origin]
        };
        let longest = until("200");
        assert_eq!(until("1"), longest);
        assert!(until("250") > longest);
    }
}
