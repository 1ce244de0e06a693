//! The log of client activity that `haul serve`, `haul share` and `haul bridge` print with `-v`, one line per event.
//! `haul share` prints some events without it, too.
//!
//! ```text
//! the server's threads → a bounded queue → one thread → the printer
//! ```
//!
//! An output that blocks must not stop the server: events that do not fit into the queue are dropped, and their number
//! is printed later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use haul_storage::Error;
use serde::Serialize;

use crate::output::{Printer, human};

/// Maximum number of events that wait to be printed.
const QUEUE: usize = 1024;

/// How long the program waits for a blocked output when it ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// An event of a client that can be printed.
pub(super) trait LogEvent: Send + 'static {
    /// The address of the client.
    fn address(&self) -> SocketAddr;

    /// The event as text. Names come from unauthenticated clients and must be escaped for the terminal.
    fn text(&self) -> String;

    /// The event as a JSON object.
    fn object(&self) -> impl Serialize;
}

/// Sends events to the thread that prints them.
pub(super) struct Log<E> {
    queue: SyncSender<E>,
    lost: Arc<AtomicU64>,
}

/// Waits for the thread that prints events.
pub(super) struct LogEnd(Option<Receiver<()>>);

impl<E: LogEvent> Log<E> {
    /// An observer that prints the events of a server with `-v`, and ignores them otherwise.
    pub(super) fn observer(
        printer: &Printer,
    ) -> Result<(impl Fn(E) + Send + Sync + use<E>, LogEnd), Error> {
        let (log, end) = match printer.is_verbose() {
            true => {
                let (log, end) = Self::start(printer)?;
                (Some(log), end)
            }
            false => (None, LogEnd(None)),
        };
        let observer = move |event| {
            if let Some(log) = &log {
                log.note(event);
            }
        };
        Ok((observer, end))
    }

    /// Starts the thread that prints events.
    pub(super) fn start(printer: &Printer) -> Result<(Self, LogEnd), Error> {
        let (queue, events) = sync_channel(QUEUE);
        let (ended, end) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let writer = Writer { printer: printer.clone(), lost: Arc::clone(&lost) };
        let run = move || {
            writer.run(&events);
            // The receiver is gone if `LogEnd` was dropped.
            let _ = ended.send(());
        };
        thread::Builder::new()
            .name("log".to_owned())
            .spawn(run)
            .map_err(|error| Error::from_io("start a thread", error))?;
        Ok((Self { queue, lost }, LogEnd(Some(end))))
    }

    /// Queues an event, or drops it if the queue is full.
    pub(super) fn note(&self, event: E) {
        if self.queue.try_send(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl LogEnd {
    /// Waits until all events are printed, but not longer than [`PATIENCE`]. Drop the [`Log`] first: its thread ends
    /// only then.
    pub(super) fn wait(self) {
        if let Some(end) = self.0 {
            // Both errors (timeout, thread gone) mean that there is nothing more to wait for.
            let _ = end.recv_timeout(PATIENCE);
        }
    }
}

struct Writer {
    printer: Printer,
    lost: Arc<AtomicU64>,
}

impl Writer {
    fn run(&self, events: &Receiver<impl LogEvent>) {
        while let Ok(event) = events.recv() {
            self.print(&event);
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let lost = human::plural(lost, "event");
                self.printer
                    .warning("clients", &format!("{lost} dropped (the output is too slow)"));
            }
        }
    }

    fn print(&self, event: &impl LogEvent) {
        if self.printer.is_json() {
            self.printer.object(&event.object());
            self.printer.flush();
        } else {
            self.printer.note(format_args!("haul: {}: {}", event.address(), event.text()));
        }
    }
}
