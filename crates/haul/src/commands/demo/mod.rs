//! `haul demo`: the main job on real data of this machine, in a minute, with nothing installed.
//!
//! ```text
//! pick a tree → copy, and kill -9 half way → copy again → verify the manifest → compare the trees
//! ```
//!
//! Every step but the last is a child process of this very program, as a user would run it. What it
//! makes lies in one temporary directory that is removed at the end, however that comes.

mod child;
mod compare;
mod tree;
mod workspace;

use std::path::Path;
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind};
use serde::Serialize;

use crate::args::DemoArgs;
use crate::exit::{Exit, Stop};
use crate::output::{Printer, human};
use crate::signals::Signals;
use crate::units::{bytes, duration, per_second, rate};

use child::{Child, Until};
use tree::Tree;
use workspace::Workspace;

/// The ways that data is moved. A further protocol is a further name here, and what has to be
/// started for it.
const WAYS: [&str; 1] = ["local"];

/// A line of the table.
#[derive(Debug, Serialize)]
struct Row<'a> {
    event: &'static str,
    over: &'a str,
    step: &'static str,
    files: u64,
    bytes: u64,
    seconds: f64,
    bytes_per_second: u64,
    note: String,
}

/// Runs it.
pub(crate) fn run(args: &DemoArgs, printer: &Printer) -> Result<Exit, Stop> {
    let signals = Signals::listen(printer, "interrupted");
    let tree = Tree::find(args.source.as_deref(), args.size.0)?;
    let workspace = Workspace::new(args.dir.as_deref(), tree.bytes)?;
    if !printer.is_json() {
        printer.note(format_args!(
            "{}, {} of {}, by way of {}",
            human::plural(tree.files, "file"),
            bytes(tree.bytes),
            tree.root.display(),
            workspace.path().display()
        ));
    }
    let demo = Demo { tree: &tree, workspace: &workspace, printer, signals: &signals };
    demo.head();
    let outcome = WAYS.iter().try_for_each(|way| demo.over(way));
    // Removed before the end is reported: after a signal nobody comes back to it.
    drop(workspace);
    match (signals.exit(), outcome) {
        (Some(exit), _) => Ok(exit),
        (None, outcome) => outcome.map(|()| Exit::Done),
    }
}

struct Demo<'a> {
    tree: &'a Tree,
    workspace: &'a Workspace,
    printer: &'a Printer,
    signals: &'a Signals,
}

impl Demo<'_> {
    fn over(&self, way: &str) -> Result<(), Stop> {
        let copy = self.workspace.path().join(way);
        self.copy(way, &copy)?;
        self.verify(way, &copy)?;
        self.compare(way, &copy)?;
        self.workspace.empty(&copy)
    }

    /// Copies, killed half way, and again to the end.
    fn copy(&self, way: &str, copy: &Path) -> Result<(), Stop> {
        let mut source = self.tree.root.clone().into_os_string();
        source.push("/");
        let line = ["cp", "--json", "--manifest"];
        let half = self.tree.bytes / 2;

        let started = Instant::now();
        let child = Child::start(&line, &[&source, copy.as_os_str()], self.printer)?;
        let killed = child.run(Until::Bytes(half), self.signals)?;
        let note = if killed.completed { "ended before it could be killed" } else { "killed (-9)" };
        self.row(way, "copy", (killed.files, killed.bytes), started.elapsed(), note.to_owned());

        let started = Instant::now();
        let child = Child::start(&line, &[&source, copy.as_os_str()], self.printer)?;
        let outcome = child.run(Until::End, self.signals)?;
        let summary = outcome.succeeded("copy", &self.tree.root)?;
        let count = |name: &str| summary[name].as_u64().unwrap_or_default();
        let there = count("bytes").saturating_sub(count("moved_bytes"));
        let note = format!(
            "{} of it was there: {}, {} resumed",
            bytes(there),
            human::plural(count("unchanged"), "file"),
            bytes(count("resumed_bytes"))
        );
        let moved = (outcome.files, count("moved_bytes"));
        self.row(way, "again", moved, started.elapsed(), note);
        Ok(())
    }

    fn verify(&self, way: &str, copy: &Path) -> Result<(), Stop> {
        let started = Instant::now();
        let child = Child::start(&["verify", "--json"], &[copy.as_os_str()], self.printer)?;
        let outcome = child.run(Until::End, self.signals)?;
        let summary = outcome.succeeded("verify", copy)?;
        let note = format!("{} as listed", summary["matched"]);
        self.row(way, "verify", (outcome.files, outcome.bytes), started.elapsed(), note);
        Ok(())
    }

    fn compare(&self, way: &str, copy: &Path) -> Result<(), Stop> {
        let started = Instant::now();
        let compared = compare::compare(&self.tree.root, copy, self.signals)?;
        let note = "bytes, modes, times and links are equal".to_owned();
        self.row(way, "compare", (compared.files, compared.bytes), started.elapsed(), note);
        Ok(())
    }

    fn head(&self) {
        if !self.printer.is_json() && !self.printer.is_quiet() {
            let names = ["over", "step", "files", "bytes", "time", "rate"];
            let [over, step, files, bytes, time, rate] = names;
            self.printer
                .result(format!("{over:<8} {step:<8} {files:>8} {bytes:>10} {time:>8} {rate:>12}"));
        }
    }

    fn row(
        &self,
        over: &str,
        step: &'static str,
        (files, moved): (u64, u64),
        time: Duration,
        note: String,
    ) {
        let speed = per_second(moved, time);
        if self.printer.is_json() {
            self.printer.object(&Row {
                event: "step",
                over,
                step,
                files,
                bytes: moved,
                seconds: time.as_secs_f64(),
                bytes_per_second: speed,
                note,
            });
        } else if !self.printer.is_quiet() {
            self.printer.result(format!(
                "{over:<8} {step:<8} {:>8} {:>10} {:>8} {:>12}  {note}",
                files,
                bytes(moved),
                duration(time),
                rate(speed)
            ));
        }
        self.printer.flush();
    }
}

/// The error of a step that was stopped by a signal; nobody gets to see it.
fn interrupted() -> Stop {
    Error::new(ErrorKind::Interrupted, "go on").into()
}
