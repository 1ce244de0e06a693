//! Runs haul, rsync and other tools. A run of haul may be killed on purpose.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::at;
use crate::model::Runner;
use crate::quoted::quoted;

/// Timeout of a run: even on a slow machine no run takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Timeout of a run of rsync that may wait for ever.
const RSYNC_PATIENCE: Duration = Duration::from_secs(10);

/// A signal sent to a program while it runs.
#[derive(Debug, Clone, Copy)]
pub struct Kill {
    /// The signal.
    pub signal: Signal,
    /// Time after the start.
    pub after: Duration,
}

/// The haul executable under test, and the directory for the programs' files.
#[derive(Debug)]
pub struct Programs {
    /// The haul executable under test.
    pub haul: PathBuf,
    /// Directory for home directories and captured output.
    pub home: PathBuf,
}

/// The result of a run.
#[derive(Debug)]
pub struct Ran {
    /// The command line, quoted for a shell.
    pub line: String,
    /// The program's exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// True if it was killed after `PATIENCE`.
    pub hung: bool,
    /// Its standard output.
    pub output: String,
    /// Its standard error.
    pub errors: String,
    /// Duration of the run.
    pub elapsed: Duration,
}

impl Programs {
    /// Runs haul as `runner`.
    pub fn haul(
        &self,
        runner: Runner,
        arguments: &[OsString],
        kill: Option<Kill>,
    ) -> io::Result<Ran> {
        self.run(runner, self.haul.as_os_str(), arguments, kill)
    }

    /// Runs another program as `runner`.
    pub fn tool(&self, runner: Runner, program: &str, arguments: &[OsString]) -> io::Result<Ran> {
        self.run(runner, program.as_ref(), arguments, None)
    }

    /// Runs rsync as `runner`, and ends it after `RSYNC_PATIENCE` if it may wait for ever.
    pub fn rsync(&self, runner: Runner, arguments: &[OsString], may_hang: bool) -> io::Result<Ran> {
        let kill = Kill { signal: Signal::TERM, after: RSYNC_PATIENCE };
        self.run(runner, "rsync".as_ref(), arguments, may_hang.then_some(kill))
    }

    fn run(
        &self,
        runner: Runner,
        program: &OsStr,
        arguments: &[OsString],
        kill: Option<Kill>,
    ) -> io::Result<Ran> {
        let home = self.home.join(format!("home-{}", runner.user));
        if !home.exists() {
            fs::create_dir_all(&home).map_err(|error| at("making", &home, &error))?;
            if super::target::is_root() {
                std::os::unix::fs::chown(&home, Some(runner.user), Some(runner.group))?;
            }
        }
        let (output, errors) = (self.home.join("output"), self.home.join("errors"));
        let mut words: Vec<OsString> = Vec::new();
        if rustix::process::geteuid().as_raw() != runner.user {
            words.push("setpriv".into());
            words.push(format!("--reuid={}", runner.user).into());
            words.push(format!("--regid={}", runner.group).into());
            words.push("--clear-groups".into());
        }
        words.push(program.to_owned());
        words.extend_from_slice(arguments);
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .current_dir(&home)
            .env("HOME", &home)
            .env("TMPDIR", &home)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(File::create(&output)?)
            .stderr(File::create(&errors)?);
        for name in ["HAUL_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
            command.env_remove(name);
        }
        let started = Instant::now();
        let mut child = command
            .spawn()
            .map_err(|error| io::Error::other(format!("{}: {error}", words[0].display())))?;
        let mut kill = kill;
        let mut hung = false;
        let status: ExitStatus = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            let elapsed = started.elapsed();
            if let Some(due) = kill.filter(|kill| elapsed >= kill.after) {
                if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
                    // The process may have ended just now.
                    let _ = kill_process(pid, due.signal);
                }
                kill = None;
            }
            if elapsed > PATIENCE {
                hung = true;
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let text =
            |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok(Ran {
            line: line(&words),
            status: status.code(),
            hung,
            output: text(&output)?,
            errors: text(&errors)?,
            elapsed: started.elapsed(),
        })
    }
}

impl Ran {
    /// The summary, the last JSON object that haul printed.
    pub fn summary(&self) -> Option<serde_json::Value> {
        let last = serde_json::from_str::<serde_json::Value>(self.output.lines().last()?).ok()?;
        (last["event"] == "summary").then_some(last)
    }

    /// The files that haul reported as changed, each as two JSON strings: `"action" "path"`.
    pub fn changes(&self) -> Vec<String> {
        self.output
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|event| event["event"] == "file" && event["action"] != "unchanged")
            .map(|event| format!("{} {}", event["action"], event["path"]))
            .collect()
    }

    /// The error and retry events that haul printed.
    pub fn error_events(&self) -> Vec<&str> {
        // Before its name, the first event has the version of the schema. Quotes in strings are escaped.
        let is_error = |line: &&str| {
            line.contains("\"event\":\"error\"") || line.contains("\"event\":\"retry\"")
        };
        self.output.lines().filter(is_error).collect()
    }

    /// How the program ended, for messages.
    pub fn ended(&self) -> String {
        match (self.hung, self.status) {
            (true, _) => format!("hung for {} s", PATIENCE.as_secs()),
            (false, Some(status)) => format!("status {status}"),
            (false, None) => "ended by a signal".to_owned(),
        }
    }
}

/// Joins words to a command line, quoted for a shell.
fn line(words: &[OsString]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}
