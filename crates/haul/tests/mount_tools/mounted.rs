//! A running `haul mount`: its paths, status and log, and ways to end it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::panicking;

use rustix::process::{Pid, Signal, kill_process};

use crate::lab::eventually;
use crate::source::Source;

/// A mount at `mnt`. If it still runs when it is dropped, it is killed and unmounted.
pub(crate) struct Mounted<'a> {
    source: &'a Source,
    child: Child,
    /// Kept open, so that the mount can write to it.
    _stdout: BufReader<ChildStdout>,
}

impl<'a> Mounted<'a> {
    /// Mounts with further options.
    pub(crate) fn start(source: &'a Source, options: &str) -> Self {
        let line = format!("mount {options} {} mnt", source.arguments());
        let log = source.session.path("mount.log");
        let log = File::options().create(true).append(true).open(log).unwrap();
        let mut command = source.session.command(&line);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut printed = String::new();
        stdout.read_line(&mut printed).unwrap();
        let mounted = Self { source, child, _stdout: stdout };
        assert!(printed.starts_with("mounted "), "$ haul {line}\n{printed}");
        mounted
    }

    /// A path in the mount.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.source.session.path("mnt").join(path)
    }

    /// The errors and warnings that all mounts of this session have printed so far.
    pub(crate) fn log(&self) -> String {
        self.source.session.read("mount.log")
    }

    /// Its status, as `--status --json` prints it.
    pub(crate) fn status(&self) -> serde_json::Value {
        self.source.session.haul("mount --status mnt --json").status(0).objects().remove(0)
    }

    /// Waits until everything that was closed is uploaded.
    #[track_caller]
    pub(crate) fn uploaded(&self) {
        let session = &self.source.session;
        eventually("uploads are still pending", || {
            session.haul("mount --pending --json").status(0).out().is_empty()
        });
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether its process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Ends it by SIGTERM, on which it uploads the rest.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.signal(Signal::TERM);
        eventually("the mount does not end", || self.has_ended());
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.log());
    }

    /// `kill -9`. The next mount removes the dead mount that this leaves.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("--- log of the mount ---\n{}", self.log());
        } else if self.has_ended() {
            return;
        }
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        let mut unmount = Command::new("umount");
        let unmount = unmount.arg("-l").arg(self.source.session.path("mnt"));
        drop(unmount.stderr(Stdio::null()).status());
    }
}
