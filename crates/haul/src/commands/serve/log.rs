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

use haul_storage::Error;
use serde::Serialize;

use crate::output::{Printer, human};

/// Events that wait to be printed.
const QUEUE: usize = 1024;

/// How long the end of the program waits for lines that nobody reads.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a server tells about a client.
pub(super) trait Told: Send + 'static {
    /// Where the client comes from.
    fn address(&self) -> SocketAddr;

    /// As people read it. A name is what a stranger has sent: nothing in it may reach a terminal
    /// unescaped.
    fn words(&self) -> String;

    /// As a line of JSON.
    fn object(&self) -> impl Serialize;
}

/// A log that is being written.
pub(super) struct Log<E> {
    queue: SyncSender<E>,
    lost: Arc<AtomicU64>,
}

/// The end of a log.
pub(super) struct LogEnd(Receiver<()>);

impl<E: Told> Log<E> {
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
    pub(super) fn note(&self, event: E) {
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
    fn run(&self, events: &Receiver<impl Told>) {
        while let Ok(event) = events.recv() {
            self.print(&event);
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                let lost = human::plural(lost, "event");
                self.printer.warning(
                    "clients",
                    &format!(
                        "{lost} dropped: the terminal is too \
                                                          slow"
                    ),
                );
            }
        }
    }

    fn print(&self, event: &impl Told) {
        if self.printer.is_json() {
            self.printer.object(&event.object());
            self.printer.flush();
        } else {
            self.printer.note(format_args!("haul: {}: {}", event.address(), event.words()));
        }
    }
}
