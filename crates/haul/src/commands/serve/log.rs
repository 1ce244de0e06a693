//! What clients do, a line each, where `-v` asks for it.
//!
//! ```text
//! the server's threads → a bounded queue → one thread → the printer
//! ```
//!
//! An output that nobody reads must not stop the server: what does not fit into the queue is counted
//! instead, and the count is printed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use haul_sftp::server::{ClientAction, ClientEvent};
use haul_storage::Error;
use serde::Serialize;

use crate::output::{Printer, human};
use crate::units::duration;

/// Events that wait to be printed.
const QUEUE: usize = 1024;

/// How long the end of the program waits for lines that nobody reads.
const PATIENCE: Duration = Duration::from_secs(1);

/// A log that is being written.
pub(super) struct Log {
    queue: SyncSender<ClientEvent>,
    lost: Arc<AtomicU64>,
}

/// The end of a log.
pub(super) struct LogEnd(Receiver<()>);

impl Log {
    /// Starts it.
    pub(super) fn start(printer: &Printer) -> Result<(Self, LogEnd), Error> {
        let (queue, events) = sync_channel(QUEUE);
        let (ended, end) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer { printer: printer.clone(), lost: Arc::clone(&lost) };
        let run = move || {
            writer.run(&events);
            // Whoever does not wait for it does not miss it.
            let _ = ended.send(());
        };
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(run)
            .map_err(|error| Error::from_io("start a thread", error))?;
        Ok((Self { queue, lost }, LogEnd(end)))
    }

    /// Writes an event down, later.
    pub(super) fn note(&self, event: ClientEvent) {
        if self.queue.try_send(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl LogEnd {
    /// Returns when everything is printed, or nobody reads it. The log itself has to be gone.
    pub(super) fn wait(self) {
        // Either error means that there is nothing to wait for any longer.
        let _ = self.0.recv_timeout(PATIENCE);
    }
}

struct Writer {
    printer: Printer,
    lost: Arc<AtomicU64>,
}

impl Writer {
    fn run(&self, events: &Receiver<ClientEvent>) {
        while let Ok(event) = events.recv() {
            self.print(&event);
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let lost = human::plural(lost, "event");
                self.printer.warning("clients", &format!("{lost} could not be printed in time"));
            }
        }
    }

    fn print(&self, event: &ClientEvent) {
        let line = Line::from(event);
        if self.printer.is_json() {
            self.printer.object(&line);
            self.printer.flush();
        } else {
            self.printer.note(format_args!("haul: {}: {}", event.address, words(&event.action)));
        }
    }
}

/// An event as people read it. A name is what a stranger has sent: nothing in it reaches a terminal
/// unescaped.
fn words(action: &ClientAction) -> String {
    match action {
        ClientAction::Connected => "connected".to_owned(),
        ClientAction::TurnedAway => "turned away: too many connections".to_owned(),
        ClientAction::LoggedIn { user, with } => {
            format!("logged in as {} with {with}", user.escape_debug())
        }
        ClientAction::Refused { user, with } => {
            format!("refused as {} with {with}", user.escape_debug())
        }
        ClientAction::TooLate => "cut: it did not log in in time".to_owned(),
        ClientAction::Left { after, .. } => format!("left after {}", duration(*after)),
    }
}

/// An event as a line of JSON.
#[derive(Debug, Serialize)]
struct Line<'a> {
    event: &'static str,
    address: SocketAddr,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
}

impl<'a> From<&'a ClientEvent> for Line<'a> {
    fn from(event: &'a ClientEvent) -> Self {
        let (action, user, with, seconds) = match &event.action {
            ClientAction::Connected => ("connected", None, None, None),
            ClientAction::TurnedAway => ("turned away", None, None, None),
            ClientAction::LoggedIn { user, with } => ("logged in", Some(user), Some(with), None),
            ClientAction::Refused { user, with } => ("refused", Some(user), Some(with), None),
            ClientAction::TooLate => ("too late", None, None, None),
            ClientAction::Left { user, after } => {
                ("left", user.as_ref(), None, Some(after.as_secs_f64()))
            }
        };
        Self {
            event: "client",
            address: event.address,
            action,
            user: user.map(String::as_str),
            with: with.map(ToString::to_string),
            seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use haul_sftp::server::Proof;

    use super::*;

    #[test]
    fn what_strangers_call_themselves_is_escaped() {
        let user = "me\n\u{1b}[31m".to_owned();
        let said = words(&ClientAction::Refused { user, with: Proof::Password });
        assert_eq!(said, "refused as me\\n\\u{1b}[31m with password");
    }
}
