//! Receives the events of a transfer: prints them, and collects digests for the manifest.
//!
//! The engine must not wait for a terminal, so events pass through a bounded queue to a thread of
//! their own. If the queue is full (because the reader of the output does not read), the engine waits:
//! memory is bounded, and nothing but progress is ever dropped.

mod hosts;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use haul_engine::fan::{FanEvent, FanSink, HostEnd, HostOutcome};
use haul_engine::{Action, CurrentFile, Event, EventSink};
use haul_storage::{Error, RelPath};

pub(crate) use hosts::HostReports;

use self::hosts::Target;
use crate::manifest::Manifest;
use crate::output::{FileLine, Printer, ProgressDisplay, human, json};
use crate::settings::Show;

/// Capacity of the queue of events.
const QUEUE: usize = 4096;

/// How long messages are left to accumulate while many arrive.
const GATHER: Duration = Duration::from_millis(2);

/// The thread that receives the events.
#[derive(Debug)]
pub(crate) struct Report {
    sender: SyncSender<Message>,
    thread: JoinHandle<Option<Manifest>>,
    /// Whether events of single files are needed.
    files: bool,
}

#[derive(Debug)]
enum Message {
    Event(Event),
    Fan(FanEvent),
    End,
}

impl Report {
    /// Starts the thread. Paths are printed relative to `base`; the manifest gets every finished entry.
    pub(crate) fn start(
        printer: &Printer,
        base: RelPath,
        manifest: Option<Manifest>,
        show: Show,
    ) -> io::Result<Self> {
        let has_manifests = manifest.is_some();
        let target = Target { base, manifest };
        let hosts = Arc::new(HostReports::new(Vec::new()));
        Self::listen(printer, target, hosts, has_manifests, show)
    }

    /// Starts the thread for many hosts; `has_manifests`: their manifests are in `hosts`.
    pub(crate) fn start_many(
        printer: &Printer,
        hosts: Arc<HostReports>,
        has_manifests: bool,
        show: Show,
    ) -> io::Result<Self> {
        Self::listen(printer, Target::default(), hosts, has_manifests, show)
    }

    fn listen(
        printer: &Printer,
        target: Target,
        hosts: Arc<HostReports>,
        has_manifests: bool,
        show: Show,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(QUEUE);
        let display = ProgressDisplay::new(printer);
        let shows_files = show.files || printer.is_verbose();
        let files = shows_files || printer.is_json() || printer.has_log() || has_manifests;
        let mut listener =
            Listener { printer: printer.clone(), display, target, hosts, shows_files };
        let thread = thread::Builder::new().name("report".to_owned()).spawn(move || {
            listener.listen(&receiver);
            listener.target.manifest
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
            // Progress is dropped if the queue is full. Otherwise sending fails only if the listener has
            // panicked; `finish` propagates that.
            if matches!(event, Event::Progress(_) | Event::Current(_)) {
                drop(sender.try_send(Message::Event(event)));
            } else {
                drop(sender.send(Message::Event(event)));
            }
        })
    }

    /// Where the engine sends the events of many hosts.
    pub(crate) fn fan_sink(&self) -> FanSink {
        let sender = self.sender.clone();
        let files = self.files;
        FanSink::new(move |event| {
            if matches!(
                &event,
                FanEvent::Of { event: Event::File(file), .. } if !files && !file.dry_run
            ) {
                return;
            }
            // As above.
            if matches!(
                event,
                FanEvent::Progress(_) | FanEvent::Of { event: Event::Current(_), .. }
            ) {
                drop(sender.try_send(Message::Fan(event)));
            } else {
                drop(sender.send(Message::Fan(event)));
            }
        })
    }

    /// Waits until everything that was sent is printed, and returns the manifest.
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
    target: Target,
    hosts: Arc<HostReports>,
    /// Whether to print every file.
    shows_files: bool,
}

impl Listener {
    fn listen(&mut self, receiver: &Receiver<Message>) {
        let mut woken = Instant::now();
        loop {
            let message = match receiver.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => {
                    // A reader that follows the output gets it now; a busy stream is flushed in large pieces.
                    self.printer.flush();
                    let Ok(message) = receiver.recv() else { break };
                    // Each wake-up costs the engine a system call. When they are frequent, more
                    // messages are left to accumulate before the next one.
                    if woken.elapsed() < GATHER && !matches!(message, Message::End) {
                        thread::sleep(GATHER);
                    }
                    woken = Instant::now();
                    message
                }
                Err(TryRecvError::Disconnected) => break,
            };
            match message {
                Message::Event(event) => self.on_event(None, &event),
                Message::Fan(event) => self.on_fan_event(&event),
                Message::End => break,
            }
        }
        self.display.end();
        // The last line goes to standard error, after all results.
        self.printer.flush();
    }

    fn on_event(&mut self, host: Option<usize>, event: &Event) {
        let hosts = Arc::clone(&self.hosts);
        let name = host.map(|host| hosts.names[host].as_str());
        match event {
            Event::Planned { files, bytes } => {
                self.object(name, || json::Event::Plan { files: *files, bytes: *bytes });
            }
            Event::Current(files) => {
                let named = |base: &RelPath| named(files, name, base);
                let files = match host {
                    None => named(&self.target.base),
                    Some(host) => named(&hosts.lock()[host].target.base),
                };
                self.display.current(host.unwrap_or(0), files);
            }
            Event::Progress(progress) => {
                self.display.update(progress);
                self.object(name, || progress.into());
            }
            Event::File(file) => {
                let path = match host {
                    None => self.target.note(file),
                    Some(host) => hosts.lock()[host].target.note(file),
                };
                self.object(name, || json::Event::file(file, &path));
                if self.printer.has_log() && file.action != Action::Unchanged {
                    let line = human::file(file, &path);
                    self.printer.log(&format!("{}{line}", human::prefix(name)));
                }
                let wanted = self.shows_files
                    || (file.dry_run
                        && file.action != Action::Unchanged
                        && !self.printer.is_quiet());
                if wanted && !self.printer.is_json() {
                    let line = human::file(file, &path);
                    self.printer.result(format!("{}{line}", human::prefix(name)));
                }
            }
            Event::Retry { error, attempt, pause } => self.retry(name, error, *attempt, *pause),
            Event::Warning { location, message } => {
                self.printer.warning_of(name, location, message);
            }
            Event::Failed(error) => {
                if let Some(host) = host {
                    hosts.lock()[host].note(error);
                }
                self.printer.failure_of(name, error);
            }
            // `Event` is non-exhaustive; events unknown to this version are not printed.
            _ => {}
        }
    }

    fn on_fan_event(&mut self, event: &FanEvent) {
        match event {
            FanEvent::Of { host, event } => self.on_event(Some(*host), event),
            FanEvent::Opening { host, error, attempt, pause } => {
                let hosts = Arc::clone(&self.hosts);
                self.retry(Some(&hosts.names[*host]), error, *attempt, *pause);
            }
            FanEvent::Progress(progress) => {
                self.display.update(progress);
                self.object(None, || progress.into());
            }
            FanEvent::Ended(end) => self.ended(end),
            // As above.
            _ => {}
        }
    }

    fn retry(&self, name: Option<&str>, error: &Error, attempt: u32, pause: Duration) {
        if self.printer.is_json() {
            self.object(name, || json::Event::retry(error, attempt, pause));
        } else {
            self.printer.note(human::retry(name, error, attempt, pause));
        }
    }

    /// Prints the outcome of a host.
    fn ended(&mut self, end: &HostEnd) {
        self.display.current(end.host, Vec::new());
        let name = &self.hosts.names[end.host];
        let mut hosts = self.hosts.lock();
        let report = &mut hosts[end.host];
        if let HostOutcome::Unopened(error) = &end.outcome {
            report.note(error);
            self.printer.failure_of(Some(name), error);
        }
        let failure = report.first_failure.as_deref();
        if self.printer.is_json() {
            self.object(Some(name), || json::Event::host(end, report.failed, failure));
        } else if !self.printer.is_quiet() {
            self.printer.result(human::host(name, end, report.failed, failure));
        }
    }

    /// Prints an object, unless `--quiet` is given.
    fn object<'a>(&self, host: Option<&'a str>, object: impl FnOnce() -> json::Event<'a>) {
        if self.printer.is_json() && !self.printer.is_quiet() {
            self.printer.object(&json::OfHost::new(host, object()));
        }
    }
}

/// The files in flight, as they are shown.
fn named(files: &[CurrentFile], host: Option<&str>, base: &RelPath) -> Vec<FileLine> {
    let line = |file: &CurrentFile| {
        let name = hosts::below(base, &file.path);
        FileLine {
            name: format!("{}{name}", human::prefix(host)),
            size: file.size,
            bytes: file.bytes,
            bytes_per_second: file.bytes_per_second,
        }
    };
    files.iter().map(line).collect()
}
