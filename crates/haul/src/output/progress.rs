//! Progress on the standard error: a bar on a terminal, now and then a line elsewhere.

use std::time::Duration;

use haul_engine::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Printer, human};

/// How often a line is printed where no bar can be drawn.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows [`Progress`].
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    printer: Printer,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Bar(ProgressBar),
    Lines { next: Duration },
    Nothing,
}

impl ProgressDisplay {
    /// A display of the kind that the arguments and the standard error ask for.
    pub(crate) fn new(printer: &Printer) -> Self {
        let kind = if !printer.shows_progress() {
            Kind::Nothing
        } else if printer.can_draw() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            // The template is ours and has no unknown keys; without it the bar is merely plainer.
            if let Ok(style) = ProgressStyle::with_template("[{bar:24}] {percent:>3}%  {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            printer.set_bar(Some(bar.clone()));
            Kind::Bar(bar)
        } else if printer.is_json() {
            // The JSON has it all; a standard error that is no terminal is a log.
            Kind::Nothing
        } else {
            Kind::Lines { next: LINE_INTERVAL }
        };
        Self { printer: printer.clone(), kind }
    }

    /// Shows where a transfer stands.
    pub(crate) fn update(&mut self, progress: &Progress) {
        if progress.phase == Phase::Ended {
            return self.end();
        }
        match &mut self.kind {
            Kind::Bar(bar) => {
                bar.set_length(progress.total_bytes.max(1));
                bar.set_position(progress.bytes);
                bar.set_message(human::progress(progress, self.printer.is_verbose()));
            }
            Kind::Lines { next } if progress.elapsed >= *next => {
                *next = progress.elapsed + LINE_INTERVAL;
                self.printer.note(human::progress(progress, self.printer.is_verbose()));
            }
            Kind::Lines { .. } | Kind::Nothing => {}
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&mut self) {
        if let Kind::Bar(bar) = std::mem::replace(&mut self.kind, Kind::Nothing) {
            self.printer.set_bar(None);
            bar.finish_and_clear();
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.end();
    }
}
