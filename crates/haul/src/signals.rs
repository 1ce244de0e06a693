//! Ctrl-C and SIGTERM: the first stops the work in order, the second at once.
//!
//! They are heard by a thread of their own, so that they are heard even while everything else waits
//! for a disk or for whoever reads the output.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use haul_engine::Cancel;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::output::Printer;

/// How long the work goes on while the message cannot be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// What was heard so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    cancel: Cancel,
    /// The exit status of the first signal; 0 before it.
    status: Arc<AtomicU8>,
}

impl Signals {
    /// Listens from its return on; `message` is printed at the first signal. Where that is impossible
    /// a signal just ends the program, which loses nothing but the message.
    pub(crate) fn listen(printer: &Printer, message: &'static str) -> Self {
        let signals = Self::default();
        let (heard, printer) = (signals.clone(), printer.clone());
        let (listening, is_listening) = channel();
        let thread = thread::Builder::new().name("signals".to_owned());
        drop(thread.spawn(move || heard.hear(&printer, message, &listening)));
        // An error says that nobody listens, and nobody ever will.
        let _ = is_listening.recv();
        signals
    }

    /// What is cancelled by the first signal.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// How the program ends if a signal was heard.
    pub(crate) fn exit(&self) -> Option<Exit> {
        let status = self.status.load(Ordering::Acquire);
        [Exit::Interrupted, Exit::Terminated].into_iter().find(|exit| exit.status() == status)
    }

    fn hear(&self, printer: &Printer, message: &'static str, listening: &Sender<()>) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else {
            return;
        };
        runtime.block_on(async {
            let interrupt = signal(SignalKind::interrupt());
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (interrupt, signal(SignalKind::terminate()))
            else {
                return;
            };
            // Whoever is told that the program is at work may send a signal from then on.
            let _ = listening.send(());
            loop {
                let exit = tokio::select! {
                    Some(()) = interrupt.recv() => Exit::Interrupted,
                    Some(()) = terminate.recv() => Exit::Terminated,
                    else => return,
                };
                if self.cancel.is_cancelled() {
                    process::exit(i32::from(exit.status()));
                }
                self.status.store(exit.status(), Ordering::Release);
                say(printer.clone(), message);
                self.cancel.cancel();
            }
        });
    }
}

/// Says it before the work stops, for the program ends with the work. An output that nobody reads
/// keeps neither the work going nor the next signal waiting.
fn say(printer: Printer, message: &'static str) {
    let (said, is_said) = channel();
    let thread = thread::Builder::new().name("message".to_owned());
    let thread = thread.spawn(move || {
        printer.error(message);
        let _ = said.send(());
    });
    // An error of either kind: there is nothing to wait for.
    drop(thread.map(|_| is_said.recv_timeout(PATIENCE)));
}
