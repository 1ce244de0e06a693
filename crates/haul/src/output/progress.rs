//! Progress on the standard error: a bar on a terminal, now and then a line elsewhere.

use std::time::Duration;

use haul_engine::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Printer, line};

/// How often a line is printed where no bar can be drawn.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// How often a count on a terminal changes.
const BAR_INTERVAL: Duration = Duration::from_millis(100);

/// Columns of a terminal that tells none, and the fewest that are drawn for.
const USUAL_WIDTH: usize = 80;
const LEAST_WIDTH: usize = 20;

/// Columns of the terminal that is the standard error.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0).unwrap_or(USUAL_WIDTH)
}

/// Shows [`Progress`].
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    printer: Printer,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Bar { bar: ProgressBar, next: Duration },
    Lines { next: Duration },
    Nothing,
}

impl ProgressDisplay {
    /// A display of the kind that the arguments and the standard error ask for.
    pub(crate) fn new(printer: &Printer) -> Self {
        Self::with_template(printer, "{msg}")
    }

    /// A display of something whose end is not known.
    pub(crate) fn counting(printer: &Printer) -> Self {
        Self::with_template(printer, "{wide_msg}")
    }

    fn with_template(printer: &Printer, template: &str) -> Self {
        let kind = if !printer.shows_progress() {
            Kind::Nothing
        } else if printer.can_draw() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            // The templates are ours and have no unknown keys; without one a bar is merely plainer.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            Kind::Bar { bar, next: Duration::ZERO }
        } else if printer.is_json() {
            // The JSON has it all; a standard error that is no terminal is a log.
            Kind::Nothing
        } else {
            Kind::Lines { next: LINE_INTERVAL }
        };
        Self { printer: printer.clone(), kind }
    }

    /// Shows how far something is whose end is not known; `line` is made only when it is shown.
    pub(crate) fn count(&mut self, elapsed: Duration, line: impl FnOnce() -> String) {
        match &mut self.kind {
            Kind::Bar { bar, next } if elapsed >= *next => {
                *next = elapsed + BAR_INTERVAL;
                self.printer.set_bar(Some(bar.clone()));
                bar.set_message(line());
            }
            Kind::Lines { next } if elapsed >= *next => {
                *next = elapsed + LINE_INTERVAL;
                self.printer.note(line());
            }
            _ => {}
        }
    }

    /// Shows where a transfer stands.
    pub(crate) fn update(&mut self, progress: &Progress) {
        if progress.phase == Phase::Ended {
            return self.end();
        }
        match &mut self.kind {
            Kind::Bar { bar, .. } => {
                self.printer.set_bar(Some(bar.clone()));
                let width = width().saturating_sub(1).max(LEAST_WIDTH);
                bar.set_message(line::progress(progress, self.printer.is_verbose(), true, width));
            }
            Kind::Lines { next } if progress.elapsed >= *next => {
                *next = progress.elapsed + LINE_INTERVAL;
                let verbose = self.printer.is_verbose();
                self.printer.note(line::progress(progress, verbose, false, usize::MAX));
            }
            Kind::Lines { .. } | Kind::Nothing => {}
        }
    }

    /// Takes the bar away.
    pub(crate) fn end(&mut self) {
        if let Kind::Bar { bar, .. } = std::mem::replace(&mut self.kind, Kind::Nothing) {
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
