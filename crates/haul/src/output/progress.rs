//! Progress on standard error. A terminal shows a bar, and below it the files in flight if requested; otherwise a line
//! is printed every 10 s.

use std::collections::BTreeMap;
use std::time::Duration;

use haul_engine::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::files::{self, FileLine};
use super::{Printer, line};

/// Time between two lines, where no bar can be drawn.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Time between two updates of a count on a terminal.
const BAR_INTERVAL: Duration = Duration::from_millis(100);

/// Columns and lines of a terminal that does not report its size.
const DEFAULT_SIZE: (usize, usize) = (80, 24);
/// Fewest columns that are drawn for, even on a narrower terminal.
const MIN_WIDTH: usize = 20;

/// Columns and lines of the terminal on standard error.
fn terminal_size() -> (usize, usize) {
    let Ok(size) = rustix::termios::tcgetwinsize(std::io::stderr()) else { return DEFAULT_SIZE };
    let or = |size: u16, default| if size > 0 { usize::from(size) } else { default };
    (or(size.ws_col, DEFAULT_SIZE.0), or(size.ws_row, DEFAULT_SIZE.1))
}

/// Columns and lines to draw in.
pub(super) fn drawn_size() -> (usize, usize) {
    let (columns, height) = terminal_size();
    (columns.saturating_sub(1).max(MIN_WIDTH), height)
}

/// A bar on standard error.
pub(super) fn bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    // All templates are valid; if one were not, the bar would only look plainer.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// Shows [`Progress`].
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    printer: Printer,
    kind: Kind,
    /// The files in flight, by host index.
    files: BTreeMap<usize, Vec<FileLine>>,
}

#[derive(Debug)]
enum Kind {
    Bar { bar: ProgressBar, next: Duration },
    Lines { next: Duration },
    Nothing,
}

impl ProgressDisplay {
    /// A display for a transfer: a bar, lines or nothing, depending on the arguments and on standard error.
    pub(crate) fn new(printer: &Printer) -> Self {
        Self::with_template(printer, "{msg}")
    }

    /// A display for an operation of unknown length.
    pub(crate) fn counting(printer: &Printer) -> Self {
        Self::with_template(printer, "{wide_msg}")
    }

    fn with_template(printer: &Printer, template: &str) -> Self {
        let kind = if !printer.shows_progress() {
            Kind::Nothing
        } else if printer.can_draw() {
            Kind::Bar { bar: bar(template), next: Duration::ZERO }
        } else if printer.is_json() {
            // JSON events report progress already, and standard error is probably a log file.
            Kind::Nothing
        } else {
            Kind::Lines { next: LINE_INTERVAL }
        };
        Self { printer: printer.clone(), kind, files: BTreeMap::new() }
    }

    /// Shows the progress of an operation of unknown length. `line` is called only if an update is due.
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

    /// Sets the files in flight of a host, which later updates show below the bar.
    pub(crate) fn current(&mut self, host: usize, files: Vec<FileLine>) {
        if files.is_empty() {
            self.files.remove(&host);
        } else {
            self.files.insert(host, files);
        }
    }

    /// Shows the progress of a transfer.
    pub(crate) fn update(&mut self, progress: &Progress) {
        if progress.phase == Phase::Ended {
            return self.end();
        }
        match &mut self.kind {
            Kind::Bar { bar, .. } => {
                self.printer.set_bar(Some(bar.clone()));
                let (width, height) = drawn_size();
                let style = line::Style { bar: true, color: self.printer.has_color() };
                let line = line::progress(progress, self.printer.is_verbose(), style, width);
                let in_flight: Vec<_> = self.files.values().flatten().collect();
                let lines = files::lines(in_flight.into_iter(), width, height);
                bar.set_message([vec![line], lines].concat().join("\n"));
            }
            Kind::Lines { next } if progress.elapsed >= *next => {
                *next = progress.elapsed + LINE_INTERVAL;
                let verbose = self.printer.is_verbose();
                let style = line::Style::default();
                self.printer.note(line::progress(progress, verbose, style, usize::MAX));
            }
            Kind::Lines { .. } | Kind::Nothing => {}
        }
    }

    /// Removes the bar; later updates show nothing.
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
