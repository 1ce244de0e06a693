//! What everybody can know of a connection: how far it is, whether somebody is being asked
//! something, and how it ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use haul_net::{HostWaits, Pause};
use haul_storage::{Error, ErrorKind, Result, text};
use tokio::sync::watch;

use super::end::End;
use crate::ssh::options::Prompter;

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Keys are being exchanged for the first time.
    Opening,
    /// They have been, and the host is who it should be.
    Ready,
    /// The server has said what signatures it takes, too.
    Informed,
    /// The server has accepted the request for authentication (SERVICE_ACCEPT).
    Serving,
    /// It is over.
    Ended,
}

/// A connection as seen from outside.
#[derive(Debug)]
pub struct State {
    location: String,
    phase: watch::Sender<Phase>,
    end: OnceLock<End>,
    asking: AtomicBool,
    waits: HostWaits,
    /// What the server calls itself.
    pub version: OnceLock<String>,
    /// The hash of the first key exchange (RFC 4253, 7.2).
    pub session_id: OnceLock<Vec<u8>>,
    /// Signature algorithms that the server takes from clients (RFC 8308, 3.1).
    pub signatures: OnceLock<Vec<String>>,
    /// Time from the first bytes out to the first bytes in.
    pub first_exchange: OnceLock<Duration>,
}

impl State {
    /// Of a connection that begins. Long waits for the host are reported to `waits`.
    pub fn new(location: String, waits: HostWaits) -> Self {
        Self {
            location,
            phase: watch::Sender::new(Phase::Opening),
            end: OnceLock::new(),
            asking: AtomicBool::new(false),
            waits,
            version: OnceLock::new(),
            session_id: OnceLock::new(),
            signatures: OnceLock::new(),
            first_exchange: OnceLock::new(),
        }
    }

    /// What the host is called in errors.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// An error about this host.
    pub fn error(&self, kind: ErrorKind, operation: &'static str) -> Error {
        Error::new(kind, operation).at(&self.location)
    }

    /// What the server calls itself.
    pub fn server_version(&self) -> &str {
        self.version.get().map_or("", String::as_str)
    }

    /// It has come so far.
    pub fn reach(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let further = *now < phase;
            if further {
                *now = phase;
            }
            further
        });
    }

    /// Waits until it has come so far, or has ended.
    pub async fn reached(&self, phase: Phase) {
        // The sender is in self and cannot be gone.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// It is over. Only the first reason counts.
    pub fn finish(&self, end: End) {
        // Somebody else has said why before.
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

    /// The error of a connection that has ended in the midst of something.
    pub fn lost(&self, operation: &'static str) -> Error {
        self.end.get().unwrap_or(&End::GivenUp).during(&self.location, operation)
    }

    /// Somebody is being asked something until what is given is dropped.
    pub fn asking(&self) -> Asking<'_> {
        self.asking.store(true, Ordering::Relaxed);
        Asking { state: self, _pause: self.waits.pause() }
    }

    /// Waits for the far end, but not longer than `limit` at a stretch in which nobody here is
    /// asked anything: whoever compares a fingerprint or looks for a passphrase may take their time.
    /// A long wait is reported.
    ///
    /// # Errors
    /// `Unreachable` when the time is over.
    pub async fn patiently<T>(
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
                None if self.asking.load(Ordering::Relaxed) => {}
                None => {
                    return Err(self
                        .error(ErrorKind::Unreachable, operation)
                        .because(format!("timed out after {} s", limit.as_secs_f32())));
                }
            }
        }
    }
}

/// Somebody is being asked something.
#[derive(Debug)]
pub struct Asking<'a> {
    state: &'a State,
    _pause: Pause,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.state.asking.store(false, Ordering::Relaxed);
    }
}

/// Shows the banner of a host, once however many connections have it.
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

    /// Shows a banner.
    pub async fn greet(&self, banner: String) {
        let last =
            self.shown.lock().unwrap_or_else(PoisonError::into_inner).replace(banner.clone());
        if last.as_ref() != Some(&banner) {
            self.prompter.notice(&banner).await;
        }
    }
}

/// Text of a server with what would steer a terminal escaped (RFC 4252, 5.4), and without the space
/// after it.
pub fn printable(words: &str) -> String {
    visible(words.trim_end())
}

/// What a server says in several lines, in one: a message has one line.
pub fn one_line(words: &str) -> String {
    let lines = words.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// Text of a server with what would steer a terminal escaped.
pub fn visible(words: &str) -> String {
    text::lines(words).into_owned()
}
