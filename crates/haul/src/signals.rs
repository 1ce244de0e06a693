//! Ctrl-C and SIGTERM: the first stops the work in order, the second at once.
//!
//! They are heard by a thread of their own, so that they are heard even while everything else waits
//! for a disk or for whoever reads the output.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use haul_engine::Cancel;
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::Exit;
use crate::output::Printer;

/// What was heard so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    cancel: Cancel,
    /// The exit status of the first signal; 0 before it.
    status: Arc<AtomicU8>,
}

impl Signals {
    /// Begins to listen; `message` is printed at the first signal. Where that is impossible a
    /// signal just ends the program, which loses nothing but the message.
    pub(crate) fn listen(printer: &Printer, message: &'static str) -> Self {
        let signals = Self::default();
        let (heard, printer) = (signals.clone(), printer.clone());
        let thread = thread::Builder::new().name("signals".to_owned());
        drop(thread.spawn(move || heard.hear(&printer, message)));
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

    fn hear(&self, printer: &Printer, message: &str) {
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
                // Before the work stops: with it the program ends, and this thread too.
                printer.error(message);
                self.cancel.cancel();
            }
        });
    }
}
