//! The shared state of a connection: its phase, whether the user is being prompted, and how it ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use haul_net::{HostWaits, Pause};
use haul_storage::{Error, ErrorKind, Result, text};
use tokio::sync::watch;

use super::end::End;
use crate::ssh::options::Prompter;

/// The phase of a connection, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The first key exchange is in progress.
    Opening,
    /// The host key is verified, and our NEWKEYS is queued. The server's may not have arrived.
    Ready,
    /// The server has also sent EXT_INFO, with the signature algorithms that it accepts.
    Informed,
    /// The server has accepted the authentication service (SERVICE_ACCEPT).
    Serving,
    /// The connection has ended.
    Ended,
}

/// A connection as seen from outside.
#[derive(Debug)]
pub struct State {
    location: String,
    phase: watch::Sender<Phase>,
    end: OnceLock<End>,
    /// Whether the user is being prompted.
    prompting: AtomicBool,
    waits: HostWaits,
    /// The server's identification.
    pub version: OnceLock<String>,
    /// The hash of the first key exchange (RFC 4253, 7.2).
    pub session_id: OnceLock<Vec<u8>>,
    /// Signature algorithms that the server accepts from clients (RFC 8308, 3.1).
    pub signatures: OnceLock<Vec<String>>,
    /// Time from the first bytes out to the first bytes in.
    pub first_exchange: OnceLock<Duration>,
}

impl State {
    /// The state of a new connection. Long waits for the host are reported to `waits`.
    pub fn new(location: String, waits: HostWaits) -> Self {
        Self {
            location,
            phase: watch::Sender::new(Phase::Opening),
            end: OnceLock::new(),
            prompting: AtomicBool::new(false),
            waits,
            version: OnceLock::new(),
            session_id: OnceLock::new(),
            signatures: OnceLock::new(),
            first_exchange: OnceLock::new(),
        }
    }

    /// The host's name in errors.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// An error about this host.
    pub fn error(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, operation).at(&self.location)
    }

    /// The server's identification; empty before it has arrived.
    pub fn server_version(&self) -> &str {
        self.version.get().map_or("", String::as_str)
    }

    /// Enters a phase, unless the connection is further already.
    pub fn reach(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let further = *now < phase;
            if further {
                *now = phase;
            }
            further
        });
    }

    /// Waits until a phase is reached, or the connection has ended.
    pub async fn reached(&self, phase: Phase) {
        // The sender is in self and cannot be gone.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Ends the connection. Only the first reason counts.
    pub fn finish(&self, end: End) {
        // An error here means that there is an earlier reason.
        let _ = self.end.set(end);
        self.reach(Phase::Ended);
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<&End> {
        self.end.get()
    }

    /// Waits for the end.
    pub async fn ended(&self) {
        self.reached(Phase::Ended).await;
    }

    /// The error of an operation during which the connection has ended.
    pub fn lost(&self, operation: &'static str) -> Error {
        self.end.get().unwrap_or(&End::ClosedHere).during(&self.location, operation)
    }

    /// Marks that the user is being prompted, until the guard is dropped.
    pub fn prompting(&self) -> Prompting<'_> {
        self.prompting.store(true, Ordering::Relaxed);
        Prompting { state: self, _pause: self.waits.pause() }
    }

    /// Waits for the peer, but at most `limit`. The limit does not apply while the user is being prompted: comparing a
    /// fingerprint or finding a passphrase may take long. A long wait is reported.
    ///
    /// # Errors
    /// `Unreachable` at the limit.
    pub async fn within_limit<T>(
        &self,
        limit: Option<Duration>,
        operation: &'static str,
        waiting: impl Future<Output = T>,
    ) -> Result<T> {
        let what = || format!("response, to {operation}");
        let Some(limit) = limit else { return Ok(self.waits.watch(what, waiting).await) };
        tokio::pin!(waiting);
        loop {
            match self.waits.within(limit, what, &mut waiting).await {
                Some(result) => return Ok(result),
                None if self.prompting.load(Ordering::Relaxed) => {}
                None => {
                    return Err(self
                        .error(ErrorKind::Unreachable, operation)
                        .because(format!("timed out after {} s", limit.as_secs_f32())));
                }
            }
        }
    }
}

/// A guard: the user is being prompted until it is dropped.
#[derive(Debug)]
pub struct Prompting<'a> {
    state: &'a State,
    _pause: Pause,
}

impl Drop for Prompting<'_> {
    fn drop(&mut self) {
        self.state.prompting.store(false, Ordering::Relaxed);
    }
}

/// Shows the banner of a host once, even if many connections receive it.
#[derive(Debug)]
pub struct Greeter {
    prompter: Arc<dyn Prompter>,
    shown: Mutex<Option<String>>,
}

impl Greeter {
    /// Shows banners to `prompter`.
    pub fn new(prompter: Arc<dyn Prompter>) -> Self {
        Self { prompter, shown: Mutex::default() }
    }

    /// Shows a banner, unless it was the last one shown.
    pub async fn greet(&self, banner: String) {
        let last =
            self.shown.lock().unwrap_or_else(PoisonError::into_inner).replace(banner.clone());
        if last.as_ref() != Some(&banner) {
            self.prompter.notice(&banner).await;
        }
    }
}

/// [`visible`] text (RFC 4252, 5.4) without trailing white space.
pub fn printable(words: &str) -> String {
    visible(words.trim_end())
}

/// Joins the lines of a text from a server, for a message of one line.
pub fn one_line(words: &str) -> String {
    let lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// Text from a server with control characters escaped, except line ends and tabs.
pub fn visible(words: &str) -> String {
    text::lines(words).into_owned()
}
