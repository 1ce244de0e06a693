//! Checks files against a manifest.
//!
//! ```text
//! manifest ─→ several files at once ─→ ranges within the memory budget ─→ FileHasher ─→ events
//!                    └→ (strict) names, sorted on disk ─→ compared with a walk ─→ extra files
//! ```
//!
//! Memory is bounded for any length of the manifest and of the files.

mod check;
mod event;
mod extra;

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haul_storage::{RelPath, Result, Storage};

use crate::Cancel;
use crate::manifest::{LineError, ManifestReader, NumberedLine};
pub(crate) use check::{Checker, Hashed};
pub use event::{VerifyEvent, VerifyOptions};
use extra::Extras;

/// The summary of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifySummary {
    /// Files with the digest in the manifest.
    pub matched: u64,
    /// Of these, files of which a server reported the digest instead of sending the bytes.
    pub reported: u64,
    /// Files with another digest.
    pub mismatched: u64,
    /// Files that do not exist.
    pub missing: u64,
    /// Files and directories that could not be read.
    pub unreadable: u64,
    /// Files that the manifest does not list (only with `strict`).
    pub extra: u64,
    /// Invalid lines.
    pub malformed: u64,
    /// Lines that were skipped: other digests, `SIZE` lines of the BSDs, the frame of a signature.
    pub skipped: u64,
    /// Bytes that were hashed, holes included.
    pub bytes: u64,
    /// Operations that were retried.
    pub retries: u64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

impl VerifySummary {
    /// Whether everything was checked and matches the manifest. An invalid line may have listed a file that
    /// is damaged, so it counts as a failure.
    pub fn is_clean(&self) -> bool {
        let failed = self.mismatched + self.missing + self.unreadable + self.extra + self.malformed;
        failed == 0 && !self.interrupted && !self.lists_nothing()
    }

    /// Whether the whole manifest was read, and no line lists a file or is invalid. Such a manifest proves
    /// nothing.
    pub fn lists_nothing(&self) -> bool {
        let listed = self.matched + self.mismatched + self.missing + self.unreadable;
        listed == 0 && self.malformed == 0 && !self.interrupted
    }

    fn count(&mut self, event: &VerifyEvent) {
        match event {
            VerifyEvent::Progress { bytes } => self.bytes += bytes,
            VerifyEvent::Matched { reported, .. } => {
                self.matched += 1;
                self.reported += u64::from(*reported);
            }
            VerifyEvent::Mismatched { .. } => self.mismatched += 1,
            VerifyEvent::Missing { .. } => self.missing += 1,
            VerifyEvent::Unreadable { .. } => self.unreadable += 1,
            VerifyEvent::Extra { .. } => self.extra += 1,
            VerifyEvent::Malformed { .. } => self.malformed += 1,
            VerifyEvent::Retry { .. } => self.retries += 1,
        }
    }
}

/// Checks the files below `base` that the manifest lists, several at once, and reports the results to
/// `events`.
///
/// If a name with `\` does not exist, it is tried with `/` instead: some tools on Windows write paths that
/// way.
///
/// # Errors
/// If the manifest itself cannot be read, or temporary files cannot be created, written or read. Failures of the listed
/// files are in events and summary.
pub async fn verify(
    storage: Arc<dyn Storage>,
    base: &RelPath,
    mut manifest: ManifestReader,
    options: &VerifyOptions,
    events: impl Fn(VerifyEvent) + Send + Sync,
    cancel: &Cancel,
) -> Result<VerifySummary> {
    let counting = Counting::new(events);
    let send = |event| counting.send(event);
    let checker = Checker::new(&*storage, base, options, &send);
    let mut extras = options.strict.then(|| Extras::new(&*storage, options, &send));
    let mut checks = FuturesUnordered::new();
    let mut ended = false;
    let mut interrupted = false;
    let mut skipped = 0;
    while !ended || !checks.is_empty() {
        let has_room = !ended && checks.len() < options.parallel.max(1);
        tokio::select! {
            biased;
            () = cancel.cancelled() => {
                interrupted = true;
                break;
            }
            Some(event) = checks.next(), if !checks.is_empty() => {
                if let Some(extras) = &mut extras {
                    extras.add_listed(&event).await?;
                }
                send(event);
            }
            line = manifest.next(), if has_room => match line? {
                None => ended = true,
                Some(NumberedLine { number, listed }) => {
                    match listed.and_then(|listed| checker.prepare(&listed)) {
                        Ok(ready) => checks.push(checker.check(ready)),
                        Err(LineError::Other | LineError::Signature) => skipped += 1,
                        Err(error) => {
                            let error = manifest.line_error(number, error);
                            send(VerifyEvent::Malformed { line: number, error });
                        }
                    }
                }
            },
        }
    }
    drop(checks);
    if let Some(extras) = extras
        && !interrupted
    {
        tokio::select! {
            biased;
            () = cancel.cancelled() => interrupted = true,
            outcome = Box::pin(extras.find(base, &manifest)) => outcome?,
        }
    }
    Ok(VerifySummary { interrupted, skipped, ..counting.summary() })
}

/// Passes events on and counts them.
struct Counting<F> {
    events: F,
    summary: std::sync::Mutex<VerifySummary>,
}

impl<F: Fn(VerifyEvent)> Counting<F> {
    fn new(events: F) -> Self {
        Self { events, summary: std::sync::Mutex::default() }
    }

    fn send(&self, event: VerifyEvent) {
        self.summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner).count(&event);
        (self.events)(event);
    }

    fn summary(&self) -> VerifySummary {
        self.summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
