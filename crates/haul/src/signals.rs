//! Ctrl-C and SIGTERM: the first signal stops the work cleanly; one that arrives while the work is being stopped ends
//! the program at once.
//!
//! A thread of its own handles them, even while all other threads wait for a disk or for a blocked output.

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

/// How long cancellation is delayed at most while the message cannot be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// The signals received so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    cancel: Cancel,
    /// The exit status of the first signal; 0 before it.
    status: Arc<AtomicU8>,
}

impl Signals {
    /// Handles signals from the return of this function on; `message` is printed at the first one. If the
    /// handlers cannot be installed, the first signal ends the program at once.
    pub(crate) fn listen(printer: &Printer, message: &'static str) -> Self {
        let signals = Self::default();
        let (handler, printer) = (signals.clone(), printer.clone());
        let (listening, is_listening) = channel();
        let thread = thread::Builder::new().name("signals".to_owned());
        drop(thread.spawn(move || handler.handle(&printer, message, &listening)));
        // An error means that signals cannot be handled.
        let _ = is_listening.recv();
        signals
    }

    /// The token that the first signal cancels.
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The exit status of the program, if a signal was received.
    pub(crate) fn exit(&self) -> Option<Exit> {
        let status = self.status.load(Ordering::Acquire);
        [Exit::Interrupted, Exit::Terminated].into_iter().find(|exit| exit.status() == status)
    }

    fn handle(&self, printer: &Printer, message: &'static str, listening: &Sender<()>) {
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
            // From here on signals are handled, so `listen` may return.
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
                print(printer.clone(), message);
                self.cancel.cancel();
            }
        });
    }
}

/// Prints the message before the work is cancelled, since the program ends with the work. A blocked output delays
/// cancellation and the next signal by at most [`PATIENCE`].
fn print(printer: Printer, message: &'static str) {
    let (printed, is_printed) = channel();
    let thread = thread::Builder::new().name("message".to_owned());
    let thread = thread.spawn(move || {
        printer.error(message);
        let _ = printed.send(());
    });
    // If there is no thread, or on a timeout, there is nothing to wait for.
    drop(thread.map(|_| is_printed.recv_timeout(PATIENCE)));
}
