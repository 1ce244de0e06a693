//! Counts what a transfer does, and sends its events.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::{Error, Retry};

use crate::flow::Flow;
use crate::{
    Action, CurrentFile, Event, EventSink, FileEvent, LinkSummary, Phase, Progress, Reason, Summary,
};

/// The time over which a rate is averaged.
const RATE_SPAN: Duration = Duration::from_secs(3);

/// The counters of one transfer, and its event sink.
#[derive(Debug)]
pub struct Tally {
    events: EventSink,
    /// The `moved_bytes` of the summary, to be read without the lock.
    moved: Arc<AtomicU64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    summary: Summary,
    planned: bool,
    total_files: u64,
    total_bytes: u64,
    /// Files and bytes counted ahead of the plan, and whether that is all.
    counted_files: u64,
    counted_bytes: u64,
    is_counted: bool,
    /// Bytes done of the files that are being moved now, by this run or an earlier one.
    partial_bytes: u64,
    samples: VecDeque<(Duration, u64)>,
}

impl State {
    /// Bytes of the planned files that are not done.
    const fn left(&self) -> u64 {
        self.total_bytes.saturating_sub(self.summary.bytes + self.partial_bytes)
    }
}

impl Tally {
    /// Counters at zero.
    pub fn new(events: EventSink) -> Self {
        Self { events, moved: Arc::default(), state: Mutex::default() }
    }

    /// The counter of bytes that have reached the destination.
    pub fn moved_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.moved)
    }

    /// A file joined the plan.
    pub fn plan_file(&self, bytes: u64) {
        let mut state = self.lock();
        state.total_files += 1;
        state.total_bytes = state.total_bytes.saturating_add(bytes);
    }

    /// The files and bytes counted so far ahead of the plan; `all` if the count is complete.
    pub fn counted(&self, files: u64, bytes: u64, all: bool) {
        let mut state = self.lock();
        (state.counted_files, state.counted_bytes) = (files, bytes);
        state.is_counted = all;
    }

    /// A planned file has another length than it was planned with.
    pub fn replan_file(&self, before: u64, now: u64) {
        let mut state = self.lock();
        state.total_bytes = state.total_bytes.saturating_sub(before).saturating_add(now);
    }

    /// A planned file is skipped after all.
    pub fn unplan_file(&self, bytes: u64) {
        let mut state = self.lock();
        state.total_files = state.total_files.saturating_sub(1);
        state.total_bytes = state.total_bytes.saturating_sub(bytes);
    }

    /// The plan is complete.
    pub fn planned(&self) {
        let (files, bytes) = {
            let mut state = self.lock();
            state.planned = true;
            (state.total_files, state.total_bytes)
        };
        self.events.send(Event::Planned { files, bytes });
    }

    /// Whether a file was planned, or the plan is complete.
    pub fn is_plan_begun(&self) -> bool {
        let state = self.lock();
        state.planned || state.total_files > 0
    }

    /// Whether the plan is complete.
    pub fn is_planned(&self) -> bool {
        self.lock().planned
    }

    /// Bytes that are still to be moved; `u64::MAX` until the plan is complete.
    pub fn remaining(&self) -> u64 {
        let state = self.lock();
        if !state.planned {
            return u64::MAX;
        }
        state.left()
    }

    /// Bytes that are still to be moved of the files planned so far.
    pub fn known_remaining(&self) -> u64 {
        self.lock().left()
    }

    /// `bytes` of a file have reached the destination.
    pub fn moved(&self, bytes: u64) {
        let mut state = self.lock();
        state.partial_bytes += bytes;
        state.summary.moved_bytes += bytes;
        self.moved.fetch_add(bytes, Ordering::AcqRel);
    }

    /// `bytes` of a file were left by an earlier run.
    pub fn resumed(&self, bytes: u64) {
        let mut state = self.lock();
        state.partial_bytes += bytes;
        state.summary.resumed_bytes += bytes;
    }

    /// `bytes` of a file are a hole, which needs no moving.
    pub fn skipped_hole(&self, bytes: u64) {
        self.lock().partial_bytes += bytes;
    }

    /// A file that had `partial` bytes is abandoned or restarted.
    pub fn forget(&self, partial: u64) {
        let mut state = self.lock();
        state.partial_bytes = state.partial_bytes.saturating_sub(partial);
    }

    /// A file of the plan is done; `partial` bytes of it had been counted as it moved.
    pub fn file(&self, event: FileEvent, partial: u64) {
        {
            let mut state = self.lock();
            state.partial_bytes = state.partial_bytes.saturating_sub(partial);
            state.summary.files += 1;
            state.summary.bytes += event.bytes;
            state.summary.unchanged += u64::from(event.action == Action::Unchanged);
            let is_new = event.reason.is_none_or(|reason| reason == Reason::New);
            state.summary.replaced += u64::from(event.action == Action::Copied && !is_new);
        }
        self.note(event);
    }

    /// Something was done with an entry that is not a file of the plan.
    pub fn note(&self, event: FileEvent) {
        {
            let mut state = self.lock();
            state.summary.links += u64::from(event.action == Action::Linked);
            state.summary.removed += u64::from(event.action == Action::Removed);
        }
        self.events.send(Event::File(event));
    }

    /// A file was read back and compared.
    pub fn verified(&self) {
        self.lock().summary.verified += 1;
    }

    /// A directory was created.
    pub fn directory(&self) {
        self.lock().summary.directories += 1;
    }

    /// An entry was skipped; the warning gives the reason.
    pub fn skipped(&self, location: String, message: impl Into<String>) {
        self.lock().summary.skipped += 1;
        self.warn(location, message);
    }

    /// Sends a warning.
    pub fn warn(&self, location: String, message: impl Into<String>) {
        self.events.send(Event::Warning { location, message: message.into() });
    }

    /// An operation will be retried.
    pub fn retry(&self, error: Error, attempt: u32, pause: Duration) {
        self.lock().summary.retries += 1;
        debug_assert_ne!(error.retry(), Retry::Never);
        self.events.send(Event::Retry { error: error.into(), attempt, pause });
    }

    /// Something could not be copied or removed, or the whole transfer stops.
    pub fn fail(&self, error: Error) {
        self.lock().summary.failed += 1;
        self.events.send(Event::Failed(error));
    }

    /// Reports which files are in flight.
    pub fn current(&self, files: Vec<CurrentFile>) {
        self.events.send(Event::Current(files));
    }

    /// Reports the progress of the transfer.
    pub fn progress(&self, flow: &Flow, phase: Option<Phase>) {
        let elapsed = flow.now();
        let link = link(flow);
        let progress = {
            let mut state = self.lock();
            let moved = state.summary.moved_bytes;
            state.samples.push_back((elapsed, moved));
            while state.samples.len() > 2 && state.samples[1].0 + RATE_SPAN <= elapsed {
                state.samples.pop_front();
            }
            let (since, before) = state.samples.front().copied().unwrap_or_default();
            let seconds = elapsed.saturating_sub(since).as_secs_f64();
            // The count may be too high by now, if files were removed meanwhile.
            let (mut total_files, mut total_bytes) = (state.total_files, state.total_bytes);
            if !state.planned {
                total_files = total_files.max(state.counted_files);
                total_bytes = total_bytes.max(state.counted_bytes);
            }
            let rate = if seconds > 0.0 { (moved - before) as f64 / seconds } else { 0.0 };
            Progress {
                phase: phase.unwrap_or(match state.planned || state.is_counted {
                    true => Phase::Moving,
                    false => Phase::Planning,
                }),
                elapsed,
                files: state.summary.files,
                total_files,
                bytes: state.summary.bytes + state.partial_bytes,
                total_bytes,
                moved_bytes: moved,
                bytes_per_second: rate as u64,
                link,
            }
        };
        self.events.send(Event::Progress(progress));
    }

    /// The summary at the end.
    pub fn summary(&self, flow: &Flow, interrupted: bool) -> Summary {
        let (_, lanes) = flow.link();
        let mut summary = self.lock().summary.clone();
        summary.elapsed = flow.now();
        summary.interrupted = interrupted;
        summary.link = LinkSummary { lanes, ..link(flow) };
        summary
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of the link now.
fn link(flow: &Flow) -> LinkSummary {
    let (status, _) = flow.link();
    LinkSummary {
        lanes: status.open,
        window_bytes: flow.decision().window_bytes,
        rtt: status.rtt,
        connect: status.connect,
        path: status.path,
    }
}
