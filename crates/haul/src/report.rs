//! Hears the events of a transfer: prints them, and collects digests for the manifest.
//!
//! The engine must not wait for a terminal, so events pass through a bounded queue to a thread of
//! their own. If even that is full (a reader of the output that does not read), the engine waits:
//! memory is bounded, and nothing but progress is ever left out.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use haul_engine::{Action, Event, EventSink};
use haul_storage::RelPath;

use crate::manifest::Manifest;
use crate::output::{Printer, ProgressDisplay, human, json};

/// Events that may wait.
const QUEUE: usize = 4096;

/// How long messages gather while many come.
const GATHER: Duration = Duration::from_millis(2);

/// The thread that hears the events.
#[derive(Debug)]
pub(crate) struct Report {
    sender: SyncSender<Message>,
    thread: JoinHandle<Option<Manifest>>,
    /// Whether anybody wants to hear of single files.
    files: bool,
}

#[derive(Debug)]
enum Message {
    Event(Event),
    End,
}

impl Report {
    /// Starts it. Paths are printed below `base`; the manifest hears of every finished entry.
    pub(crate) fn start(
        printer: &Printer,
        base: RelPath,
        manifest: Option<Manifest>,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE);
        let display = ProgressDisplay::new(printer);
        let files = printer.is_verbose() || printer.is_json() || manifest.is_some();
        let mut listener = Listener { printer: printer.clone(), display, base, manifest };
        let thread = thread::Builder::new().name("report".to_owned()).spawn(move || {
            listener.listen(&receiver);
            listener.manifest
        })?;
        Ok(Self { sender, thread, files })
    }

    /// Where the engine sends its events.
    pub(crate) fn sink(&self) -> EventSink {
        let sender = self.sender.clone();
        let files = self.files;
        EventSink::new(move |event| {
            if matches!(&event, Event::File(file) if !files && !file.dry_run) {
                return;
            }
            // A listener that is gone has panicked; `finish` brings that up.
            if matches!(event, Event::Progress(_)) {
                drop(sender.try_send(Message::Event(event)));
            } else {
                drop(sender.send(Message::Event(event)));
            }
        })
    }

    /// Waits until everything that was sent is printed, and gives the manifest back.
    pub(crate) fn finish(self) -> Option<Manifest> {
        drop(self.sender.send(Message::End));
        match self.thread.join() {
            Ok(manifest) => manifest,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

struct Listener {
    printer: Printer,
    display: ProgressDisplay,
    base: RelPath,
    manifest: Option<Manifest>,
}

impl Listener {
    fn listen(&mut self, receiver: &Receiver<Message>) {
        let mut woken = Instant::now();
        loop {
            let message = match receiver.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => {
                    // Whoever reads along gets it now; a busy stream is handed on in large pieces.
                    self.printer.flush();
                    let Ok(message) = receiver.recv() else { break };
                    // Each wake-up costs the engine a system call. When they come thick and fast,
                    // more messages are let gather for the next one.
                    if woken.elapsed() < GATHER && !matches!(message, Message::End) {
                        thread::sleep(GATHER);
                    }
                    woken = Instant::now();
                    message
                }
                Err(TryRecvError::Disconnected) => break,
            };
            match message {
                Message::Event(event) => self.hear(&event),
                Message::End => break,
            }
        }
        self.display.end();
    }

    fn hear(&mut self, event: &Event) {
        match event {
            Event::Planned { files, bytes } => {
                self.object(|| json::Event::Plan { files: *files, bytes: *bytes });
            }
            Event::Progress(progress) => {
                self.display.update(progress);
                self.object(|| progress.into());
            }
            Event::File(file) => {
                let path = below(&self.base, &file.path);
                if let Some(manifest) = &mut self.manifest {
                    manifest.note(file);
                }
                self.object(|| json::Event::file(file, &path));
                let wanted = self.printer.is_verbose()
                    || (file.dry_run
                        && file.action != Action::Unchanged
                        && !self.printer.is_quiet());
                if wanted && !self.printer.is_json() {
                    self.printer.result(human::file(file, &path));
                }
            }
            Event::Retry { error, attempt, pause } => {
                if self.printer.is_json() {
                    self.object(|| json::Event::retry(error, *attempt, *pause));
                } else {
                    self.printer.note(human::retry(error, *attempt, *pause));
                }
            }
            Event::Warning { location, message } => self.printer.warning(location, message),
            Event::Failed(error) => self.printer.failure(error),
            // The list of events is open; what this version does not know it does not print.
            _ => {}
        }
    }

    /// Prints an object that `--quiet` leaves out.
    fn object<'a>(&self, object: impl FnOnce() -> json::Event<'a>) {
        if self.printer.is_json() && !self.printer.is_quiet() {
            self.printer.object(&object());
        }
    }
}

/// `path` as seen from `base`, in which it lies.
fn below(base: &RelPath, path: &RelPath) -> RelPath {
    if base.is_root() || !path.starts_with(base) {
        return path.clone();
    }
    let rest = path.as_bytes().get(base.as_bytes().len() + 1..).unwrap_or_default();
    // The end of a valid path from a component on is a valid path.
    RelPath::parse(rest).unwrap_or_else(|_| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_seen_from_the_destination() {
        let path = |text: &str| RelPath::parse(text).unwrap();
        assert_eq!(below(&path("a/b"), &path("a/b/c/d")), path("c/d"));
        assert_eq!(below(&path("a"), &path("a")), RelPath::root());
        assert_eq!(below(&RelPath::root(), &path("x")), path("x"));
        assert_eq!(below(&path("a"), &path("ab")), path("ab"));
    }
}
