//! Shows the clients of a share on a terminal: address, route, file, bytes and rate.
//!
//! ```text
//! counters of the server → sampled twice a second, by a thread of its own → the terminal
//! ```
//!
//! A stopped terminal (Ctrl-S) blocks only this thread.

use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use haul_peer::server::{SessionStatus, Sessions};

use crate::output::{ClientDisplay, ClientLine, Printer};
use crate::units::per_second;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(500);

/// Samples over which the rate is averaged: three seconds.
const SAMPLES: usize = 7;

/// How long the program waits for a stopped terminal when it ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// The thread that shows clients.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Sender<()>,
    ended: Receiver<()>,
}

impl Watch {
    /// Shows these sessions; `None` if nothing can be drawn.
    pub(super) fn start(sessions: Sessions, printer: &Printer) -> Option<Self> {
        let mut display = ClientDisplay::new(printer)?;
        let (stop, stopped) = channel();
        let (end, ended) = channel();
        let watch = move || {
            let mut rates = Rates::default();
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                display.show(&rates.sample(sessions.status(), Instant::now()));
            }
            drop((display, end));
        };
        // Without a thread, nothing is shown.
        thread::Builder::new().name("clients".to_owned()).spawn(watch).ok()?;
        Some(Self { stop, ended })
    }

    /// Removes the display.
    pub(super) fn end(self) {
        drop(self.stop);
        // Both errors mean that there is nothing more to wait for.
        let _ = self.ended.recv_timeout(PATIENCE);
    }
}

/// Bytes of each session at the last samples.
#[derive(Debug, Default)]
struct Rates(HashMap<u64, VecDeque<(Instant, u64)>>);

impl Rates {
    /// The sessions as they are shown.
    fn sample(&mut self, sessions: Vec<SessionStatus>, now: Instant) -> Vec<ClientLine> {
        self.0.retain(|number, _| sessions.iter().any(|session| session.number == *number));
        sessions.into_iter().map(|session| self.line(&session, now)).collect()
    }

    fn line(&mut self, session: &SessionStatus, now: Instant) -> ClientLine {
        let bytes = session.sent + session.received;
        let samples = self.0.entry(session.number).or_default();
        samples.push_back((now, bytes));
        if samples.len() > SAMPLES {
            samples.pop_front();
        }
        let rate = |(then, before): &(Instant, u64)| {
            per_second(bytes.saturating_sub(*before), now.saturating_duration_since(*then))
        };
        let file = match &session.file {
            _ if session.lanes == 0 => "connection lost".to_owned(),
            // `Display` escapes control characters.
            file => file.as_ref().map_or_else(String::new, ToString::to_string),
        };
        ClientLine {
            address: session.address.ip().to_canonical().to_string(),
            route: session.route.to_string(),
            file,
            bytes,
            bytes_per_second: samples.front().map_or(0, rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use haul_peer::server::Route;
    use haul_storage::RelPath;

    use super::*;

    fn session(number: u64, sent: u64) -> SessionStatus {
        let file = Some(Arc::new(RelPath::parse("a/\u{1b}[2Jb").unwrap()));
        SessionStatus {
            number,
            address: "192.0.2.7:4180".parse().unwrap(),
            route: Route::Bridge,
            lanes: 2,
            sent,
            received: 0,
            file,
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds_and_names_are_escaped() {
        let mut rates = Rates::default();
        let start = Instant::now();
        let mut shown = Vec::new();
        for sample in 0..10_u32 {
            let sent = if sample < 2 { 0 } else { u64::from(sample - 1) * 500 };
            shown = rates.sample(vec![session(1, sent), session(2, 0)], start + INTERVAL * sample);
        }
        let [first, second] = &shown[..] else { panic!("{shown:?}") };
        assert_eq!((first.bytes_per_second, first.bytes), (1000, 4000));
        assert_eq!((first.address.as_str(), first.route.as_str()), ("192.0.2.7", "bridge"));
        assert!(!first.file.contains('\u{1b}') && first.file.ends_with("[2Jb"), "{first:?}");
        assert_eq!(second.bytes_per_second, 0);
        // The samples of a session that has ended are removed.
        assert_eq!(rates.sample(vec![session(2, 0)], start).len(), 1);
        assert_eq!(rates.0.len(), 1);
        let lost = SessionStatus { lanes: 0, ..session(2, 0) };
        assert_eq!(rates.sample(vec![lost], start)[0].file, "connection lost");
    }
}
