//! Progress on the standard error: a bar on a terminal, with the files in flight below it if they are wanted; now and
//! then a line elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use haul_engine::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::files::{self, FileLine};
use super::{Printer, line};

/// How often a line is printed where no bar can be drawn.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// How often a count on a terminal changes.
const BAR_INTERVAL: Duration = Duration::from_millis(100);

/// Columns and lines of a terminal that tells none, and the fewest columns that are drawn for.
const USUAL_SIZE: (usize, usize) = (80, 24);
const LEAST_WIDTH: usize = 20;

/// Columns and lines of the terminal that is the standard error.
fn size() -> (usize, usize) {
    let Ok(size) = rustix::termios::tcgetwinsize(std::io::stderr()) else { return USUAL_SIZE };
    let or = |size: u16, usual| if size > 0 { usize::from(size) } else { usual };
    (or(size.ws_col, USUAL_SIZE.0), or(size.ws_row, USUAL_SIZE.1))
}

/// Shows [`Progress`].
#[derive(Debug)]
pub(crate) struct ProgressDisplay {
    printer: Printer,
    kind: Kind,
    /// The files in flight, by the number of the host.
    files: BTreeMap<usize, Vec<FileLine>>,
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
        Self { printer: printer.clone(), kind, files: BTreeMap::new() }
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

    /// Shows these files below the next progress, until others take their place.
    pub(crate) fn current(&mut self, host: usize, files: Vec<FileLine>) {
        if files.is_empty() {
            self.files.remove(&host);
        } else {
            self.files.insert(host, files);
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
                let (columns, height) = size();
                let width = columns.saturating_sub(1).max(LEAST_WIDTH);
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
