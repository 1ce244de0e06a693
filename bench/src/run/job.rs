//! One run of one command: whole-process time, processor time, memory, bytes on the wire.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::progress;
use super::sampler::{Sampler, Samples};
use super::stage::Stage;
use crate::processes::{peak_rss, processes, tree};
use crate::sys::{self, Used};

/// A command that has been started.
#[derive(Debug)]
pub(super) struct Job {
    start: Instant,
    pid: Pid,
    ended: Receiver<io::Result<(Used, Instant)>>,
    server_ticks: Option<u64>,
    sampler: Sampler,
    pub(super) output: Option<std::process::ChildStdout>,
}

/// What a command did.
#[derive(Debug)]
pub(super) struct Measured {
    /// Exit status, as shells count.
    pub(super) status: i32,
    /// It was stopped because it took too long.
    pub(super) too_long: bool,
    pub(super) time: Duration,
    pub(super) client_cpu: Duration,
    pub(super) server_cpu: Option<Duration>,
    pub(super) peak_rss: u64,
    pub(super) samples: Samples,
}

/// A command and what it finds.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub(super) shell: &'a str,
    pub(super) tool: &'a Path,
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// A directory for its home, its output and its temporary files.
    pub(super) home: &'a Path,
    /// Standard output goes to the caller, not to a file.
    pub(super) piped: bool,
}

impl Job {
    /// Starts it. Output and errors go to the files `stdout` and `stderr` of its home.
    pub(super) fn start(order: Order<'_>, stage: &Stage) -> io::Result<Self> {
        let mut command = match stage.wiring.client() {
            Some(namespace) => namespace.command("sh"),
            None => {
                let mut command = Command::new("sh");
                sys::prepare(&mut command, None);
                command
            }
        };
        let stdout = if order.piped {
            Stdio::piped()
        } else {
            File::create(order.home.join("stdout"))?.into()
        };
        // Nobody's configuration takes part.
        command
            .args(["-c", order.shell])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .env("HOME", order.home)
            .env("TMP", order.home)
            .env("TMPDIR", order.home)
            .env("LC_ALL", "C.UTF-8")
            .env("TOOL", order.tool)
            .envs(order.variables)
            .current_dir(order.home)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(File::create(order.home.join("stderr"))?)
            .process_group(0);
        let server_ticks = server_ticks(stage)?;
        let before = stage.wiring.passed();
        stage.wiring.restart();
        let start = Instant::now();
        let mut child = command.spawn()?;
        let output = child.stdout.take();
        let pid = Pid::from_child(&child);
        let (sender, ended) = channel();
        thread::spawn(move || {
            let used = sys::wait(pid);
            // The receiver has given up only when the worker is ending.
            let _ = sender.send(used.map(|used| (used, Instant::now())));
        });
        Ok(Self {
            start,
            pid,
            ended,
            server_ticks,
            sampler: Sampler::new(child.id(), before),
            output,
        })
    }

    /// When it was started.
    pub(super) fn started(&self) -> Instant {
        self.start
    }

    /// Whether it has ended, waiting for that until `deadline` and taking samples meanwhile.
    fn ended_by(
        &mut self,
        stage: &Stage,
        deadline: Instant,
    ) -> io::Result<Option<(Used, Instant)>> {
        loop {
            let now = Instant::now();
            let pause = deadline.saturating_duration_since(now).min(self.sampler.pause(self.start));
            match self.ended.recv_timeout(pause) {
                Ok(ended) => return ended.map(Some),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => return Ok(None),
                Err(RecvTimeoutError::Timeout) => self.sampler.sample(self.start, &stage.wiring),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that waits for the command is gone"));
                }
            }
        }
    }

    /// Its process id, which is its process group's too.
    pub(super) fn id(&self) -> Pid {
        self.pid
    }

    /// Whether it runs still, looked at without waiting. One that has ended cannot be finished.
    pub(super) fn is_running(&self) -> bool {
        matches!(
            rustix::process::test_kill_process(self.pid),
            Ok(()) | Err(rustix::io::Errno::PERM)
        )
    }

    /// Stops it and its process group.
    pub(super) fn stop(&self, signal: Signal) {
        stop_group(self.pid, signal);
    }

    /// Waits for its end; stops it when it takes longer than `limit` since its start.
    pub(super) fn finish(mut self, stage: &Stage, limit: Duration) -> io::Result<Measured> {
        let mut too_long = false;
        let (used, end) = match self.ended_by(stage, self.start + limit)? {
            Some(ended) => ended,
            None => {
                too_long = true;
                self.stop(Signal::KILL);
                self.ended.recv().map_err(io::Error::other)??
            }
        };
        // What it left in the background must not take the next one's processor.
        self.stop(Signal::KILL);
        let samples = self.sampler.end(end - self.start, &stage.wiring);
        let ticks = server_ticks(stage)?.zip(self.server_ticks);
        let second = rustix::param::clock_ticks_per_second() as f64;
        Ok(Measured {
            status: used.status,
            too_long,
            time: end - self.start,
            client_cpu: used.cpu,
            server_cpu: ticks.map(|(now, then)| {
                Duration::from_secs_f64(now.saturating_sub(then) as f64 / second)
            }),
            peak_rss: peak(used.peak_rss, samples.peak_rss),
            samples,
        })
    }
}

/// Stops a process group.
pub(super) fn stop_group(group: Pid, signal: Signal) {
    // It may have ended by itself.
    let _ = kill_process_group(group, signal);
}

/// The kernel's figure counts what this process had at the fork; where it says no more than that, what
/// was seen in samples is closer.
fn peak(counted: u64, seen: u64) -> u64 {
    let floor = peak_rss(std::process::id()).unwrap_or(0);
    if counted > floor || seen == 0 { counted } else { seen }
}

/// Processor time of the server and its children so far.
fn server_ticks(stage: &Stage) -> io::Result<Option<u64>> {
    let Some(server) = &stage.server else { return Ok(None) };
    Ok(Some(tree(&processes()?, server.id()).iter().map(|process| process.ticks).sum()))
}

/// The last words on standard error, one line. What prints events on standard output may say there
/// what went wrong.
pub(super) fn last_words(home: &Path) -> String {
    let mut text = Vec::new();
    let read =
        File::open(home.join("stderr")).and_then(|file| file.take(1 << 20).read_to_end(&mut text));
    if let Err(error) = read {
        return format!("its messages cannot be read: {error}");
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut words = lines[lines.len().saturating_sub(3)..].join("; ");
    if words.is_empty() {
        // Where its output went to the benchmark there is no such file.
        let output = File::open(home.join("stdout")).ok();
        words = output.and_then(progress::complaint).unwrap_or_default();
    }
    words.chars().take(400).collect()
}

/// Empties a run's home: what one leaves there is not for the next.
pub(super) fn fresh_home(home: &Path) -> io::Result<()> {
    match fs::remove_dir_all(home) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(home)
}
