//! Servers that have asked to be left alone for a while (`Retry-After`, RFC 9110, 10.2.3).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use haul_net::HostWaits;
use haul_storage::{Error, ErrorKind, Result, Retry, Timestamp};
use http::header::RETRY_AFTER;
use tokio::time::sleep;

use super::head::Head;
use crate::parse::{Origin, Url, retry_after};

/// A server that wants to be left alone for longer than this, for one request altogether, is an error to
/// be told.
pub const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// So many such things are remembered; of others it is learnt anew.
const AWAY_MOST: usize = 4096;

/// Who wants to be left alone, and until when.
#[derive(Debug, Default)]
pub struct Pauses {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    quiet_until: HashMap<Origin, Instant>,
    /// What is asked for in vain until then. That may be one file, which is fetched from a tape, say.
    away_until: HashMap<Url, Instant>,
}

impl Pauses {
    /// Remembers that the server has too much to do, and for how long it wants to be left alone.
    pub fn learn(&self, head: &Head) {
        let Some(pause) = wanted_pause(head) else { return };
        let Some(until) = Instant::now().checked_add(pause) else { return };
        let mut state = self.lock();
        if pause <= LONGEST_WAIT {
            state.quiet_until.insert(head.url.origin.clone(), until);
        } else if state.away_until.len() < AWAY_MOST {
            state.away_until.insert(head.url.clone(), until);
        }
    }

    /// Waits until the server may be asked.
    ///
    /// # Errors
    /// `Busy` if that takes too long.
    pub async fn wait(&self, url: &Url, waits: &HostWaits, operation: &'static str) -> Result<()> {
        let (until, away) = {
            let state = self.lock();
            (state.quiet_until.get(&url.origin).copied(), state.away_until.get(url).copied())
        };
        let left = away.map(|until| until.saturating_duration_since(Instant::now()));
        if let Some(pause) = left.filter(|left| !left.is_zero()) {
            return Err(too_long(pause, operation, url));
        }
        if let Some(pause) = until.map(|until| until.saturating_duration_since(Instant::now())) {
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

/// A pause that nobody waits for.
pub fn too_long(pause: Duration, operation: &'static str, url: &Url) -> Error {
    let (pause, most) = (pause.as_secs_f64().ceil(), LONGEST_WAIT.as_secs());
    Error::new(ErrorKind::Busy, operation)
        .at(url)
        .because(format!(
            "the server asks to wait {pause} s (Retry-After), more than the {most} s that haul \
             waits"
        ))
        .with_retry(Retry::Never)
}

/// How long the server wants to be left alone.
pub fn wanted_pause(head: &Head) -> Option<Duration> {
    let now = Timestamp::from(SystemTime::now());
    retry_after::parse(head.header(&RETRY_AFTER)?, now)
}
