//! `haul demo`: copies real data of this machine in several ways, in a minute, with nothing installed.
//!
//! ```text
//! pick a tree → local: copy, and kill -9 half way → copy again → verify the manifest → compare the trees
//!               sftp:  start a server → copy to it → copy from it → compare the trees
//!               dav:   the same
//!               peer:  the same, with a share and a bridge
//!               mount: mount the tree → compare it with itself
//! ```
//!
//! Every copy, the verification and the mount run this program as a child process, as a user would; servers run in
//! this process. All copies are in one temporary directory, which is removed at the end, also after errors and after a
//! first signal.

mod child;
mod compare;
mod far;
mod interrupt;
mod mount;
mod peer;
mod tree;
mod workspace;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::args::DemoArgs;
use crate::exit::{Exit, Stop};
use crate::output::{Printer, human};
use crate::signals::Signals;
use crate::units::{bytes, duration, per_second, rate};

use child::{Child, Outcome, Until};
use compare::Preserved;
use far::Far;
use mount::Mounted;
use tree::Tree;
use workspace::Workspace;

/// Copies that exist at the same time: over a network one on the server and one copied back.
const COPIES: u64 = 2;

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

/// Runs `haul demo`.
pub(crate) async fn run(args: &DemoArgs, printer: &Printer) -> Result<Exit, Stop> {
    let signals = Signals::listen(printer, "interrupted");
    let tree = Tree::find(args.source.as_deref(), args.size.0)?;
    let workspace = Workspace::new(args.dir.as_deref(), tree.bytes * COPIES)?;
    if !printer.is_json() {
        printer.note(format_args!(
            "{}, {} of {}, using {}",
            human::plural(tree.files, "file"),
            bytes(tree.bytes),
            tree.root.display(),
            workspace.path().display()
        ));
    }
    let demo = Demo { tree: &tree, workspace: &workspace, printer, signals: &signals };
    demo.head();
    let outcome = demo.everything().await;
    // The workspace is removed before the exit status or the error is reported.
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
    async fn everything(&self) -> Result<(), Stop> {
        self.local()?;
        self.sftp().await?;
        self.dav().await?;
        self.peer().await?;
        self.mount()
    }

    fn local(&self) -> Result<(), Stop> {
        let way = "local";
        let copy = self.workspace.path().join(way);
        self.copy(way, &copy)?;
        self.verify(way, &copy)?;
        self.compare(way, &copy, Preserved::Everything)?;
        self.workspace.remove(&copy)
    }

    async fn sftp(&self) -> Result<(), Stop> {
        let served = self.workspace.path().join("served");
        let far = Far::sftp(&served, &self.workspace.home()).await?;
        let outcome = self.upload_and_download("sftp", &far, "over SSH", Preserved::BySftp);
        far.stop().await;
        outcome?;
        self.workspace.remove(&served)
    }

    async fn dav(&self) -> Result<(), Stop> {
        let served = self.workspace.path().join("served");
        let far = Far::dav(&served, &self.workspace.home()).await?;
        let outcome = self.upload_and_download("dav", &far, "over WebDAV", Preserved::ByDav);
        far.stop().await;
        outcome?;
        self.workspace.remove(&served)
    }

    async fn peer(&self) -> Result<(), Stop> {
        let served = self.workspace.path().join("served");
        let far = Far::peer(&served, &self.workspace.home()).await?;
        let outcome =
            self.upload_and_download("peer", &far, "through a bridge", Preserved::Everything);
        far.stop().await;
        outcome?;
        self.workspace.remove(&served)
    }

    /// Compares the tree with what a mount shows of it, where this user can mount.
    fn mount(&self) -> Result<(), Stop> {
        let started = Instant::now();
        let (tree, home) = (&self.tree.root, self.workspace.home());
        let point = self.workspace.path().join("mnt");
        let mounted = Mounted::start(tree, &point, &home, self.printer, self.signals)?;
        let Some(mounted) = mounted else { return Ok(()) };
        let compared = compare::compare(tree, &point, Preserved::Everything, self.signals)?;
        drop(mounted);
        let note = "bytes, modes, times and links are equal, read through a mount";
        let counted = (compared.files, compared.bytes);
        self.row("mount", "compare", counted, started.elapsed(), note.to_owned());
        Ok(())
    }

    /// Copies to a server and back, and compares the result.
    fn upload_and_download(
        &self,
        way: &str,
        far: &Far,
        over: &str,
        preserved: Preserved,
    ) -> Result<(), Stop> {
        let back = self.workspace.path().join("back");
        let remote = far.location("copy");
        let source = self.source();
        let note = format!("{over}, to a server in this process");
        self.over_link(way, "up", [&source, remote.as_ref()], note, preserved)?;
        let copied = format!("{remote}/");
        let paths = [copied.as_ref(), back.as_os_str()];
        self.over_link(way, "down", paths, "and back".to_owned(), preserved)?;
        self.compare(way, &back, preserved)?;
        self.workspace.remove(&back)
    }

    fn over_link(
        &self,
        way: &str,
        step: &'static str,
        paths: [&OsStr; 2],
        mut note: String,
        preserved: Preserved,
    ) -> Result<(), Stop> {
        let started = Instant::now();
        // `-F none`: no ssh_config, not even that of the system; the key and the known hosts are in the child's home.
        let mut outcome = self.child(&["cp", "--json", "-F", "none"], &paths, Until::End)?;
        if preserved == Preserved::ByDav {
            let links = outcome.without_links();
            if links > 0 {
                note.push_str(&format!("; without {}", human::plural(links as u64, "link")));
            }
        }
        let summary = outcome.succeeded("copy", &self.tree.root)?;
        let moved = summary["moved_bytes"].as_u64().unwrap_or_default();
        self.row(way, step, (outcome.files, moved), started.elapsed(), note);
        Ok(())
    }

    /// The content of the tree as a source: with a trailing slash.
    fn source(&self) -> OsString {
        let mut source = self.tree.root.clone().into_os_string();
        source.push("/");
        source
    }

    fn child(&self, words: &[&str], paths: &[&OsStr], until: Until) -> Result<Outcome, Stop> {
        let child = Child::start(words, paths, &self.workspace.home(), self.printer)?;
        child.run(until, self.signals)
    }

    /// Copies, kills the child half way, and copies again to the end.
    fn copy(&self, way: &str, copy: &Path) -> Result<(), Stop> {
        let source = self.source();
        let line = ["cp", "--json", "--manifest"];
        let half = self.tree.bytes / 2;

        let started = Instant::now();
        let killed = self.child(&line, &[&source, copy.as_os_str()], Until::Bytes(half))?;
        let note = if killed.completed { "ended before it could be killed" } else { "killed (-9)" };
        self.row(way, "copy", (killed.files, killed.bytes), started.elapsed(), note.to_owned());

        let started = Instant::now();
        let outcome = self.child(&line, &[&source, copy.as_os_str()], Until::End)?;
        let summary = outcome.succeeded("copy", &self.tree.root)?;
        let count = |name: &str| summary[name].as_u64().unwrap_or_default();
        let present = count("bytes").saturating_sub(count("moved_bytes"));
        let note = format!(
            "{} were already copied: {}, {} resumed",
            bytes(present),
            human::plural(count("unchanged"), "file"),
            bytes(count("resumed_bytes"))
        );
        let moved = (outcome.files, count("moved_bytes"));
        self.row(way, "again", moved, started.elapsed(), note);
        Ok(())
    }

    fn verify(&self, way: &str, copy: &Path) -> Result<(), Stop> {
        let started = Instant::now();
        let outcome = self.child(&["verify", "--json"], &[copy.as_os_str()], Until::End)?;
        let summary = outcome.succeeded("verify", copy)?;
        let note = format!("{} as listed", summary["matched"]);
        self.row(way, "verify", (outcome.files, outcome.bytes), started.elapsed(), note);
        Ok(())
    }

    fn compare(&self, way: &str, copy: &Path, preserved: Preserved) -> Result<(), Stop> {
        let started = Instant::now();
        let compared = compare::compare(&self.tree.root, copy, preserved, self.signals)?;
        let note = match preserved {
            Preserved::Everything => "bytes, modes, times and links are equal",
            Preserved::BySftp => "bytes, modes, times (in seconds) and links are equal",
            Preserved::ByDav => "bytes and times (in seconds) are equal",
        };
        let counted = (compared.files, compared.bytes);
        self.row(way, "compare", counted, started.elapsed(), note.to_owned());
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
