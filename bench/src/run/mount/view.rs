//! What is measured in a mounted view.

use std::time::Duration;

use crate::record::{ByteSample, Outcome, Part};

/// The measurements in a mount; those that do not belong to the measure are empty.
#[derive(Debug)]
pub(in crate::run) struct View {
    /// From the start of the command to the mount.
    pub(in crate::run) ready: Duration,
    /// From opening a file, already looked up, to its first bytes.
    pub(in crate::run) first_byte: Option<Duration>,
    /// Bytes per second from opening to the end.
    pub(in crate::run) rate: Option<f64>,
    /// Bytes read, over time since the file was opened.
    pub(in crate::run) read: Vec<ByteSample>,
    pub(in crate::run) parts: Vec<Part>,
    /// Whether all bytes and names were correct.
    pub(in crate::run) outcome: Outcome,
}

impl View {
    /// A view with these parts; `wrong` is the reason if the result is incorrect.
    pub(super) fn of_parts<const N: usize>(
        parts: [(&str, Duration); N],
        wrong: Option<String>,
    ) -> Self {
        let part = |(name, time): (&str, Duration)| Part {
            name: name.to_owned(),
            seconds: time.as_secs_f64(),
        };
        Self {
            ready: Duration::ZERO,
            first_byte: None,
            rate: None,
            read: Vec::new(),
            parts: parts.map(part).into(),
            outcome: outcome(wrong),
        }
    }
}

/// The outcome of a run that did not fail.
pub(super) fn outcome(wrong: Option<String>) -> Outcome {
    wrong.map_or(Outcome::Ok, |cause| Outcome::Wrong { cause })
}
