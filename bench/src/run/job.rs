//! One run of one command: whole-process time, processor time, memory, bytes on the wire.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::progress;
use super::sampler::{Sampler, Samples};
use super::shell::shell;
use super::stage::Stage;
use crate::processes::{peak_rss, processes, tree};
use crate::sys::{self, Usage};

/// A command that has been started.
#[derive(Debug)]
pub(super) struct Job {
    start: Instant,
    pid: Pid,
    ended: Receiver<io::Result<(Usage, Instant)>>,
    far: Option<u32>,
    server_ticks: Option<u64>,
    sampler: Sampler,
    pub(super) output: Option<std::process::ChildStdout>,
}

/// The measurements of a command that has ended.
#[derive(Debug)]
pub(super) struct Measured {
    /// Exit status as in a shell: 128 plus the signal's number if it was killed.
    pub(super) status: i32,
    /// It was killed because it exceeded the time limit.
    pub(super) timed_out: bool,
    pub(super) time: Duration,
    pub(super) client_cpu: Duration,
    pub(super) server_cpu: Option<Duration>,
    pub(super) peak_rss: u64,
    pub(super) samples: Samples,
}

/// A command to run, and its environment.
#[derive(Debug)]
pub(super) struct CommandSpec<'a> {
    pub(super) shell: &'a str,
    pub(super) tool: &'a Path,
    pub(super) variables: Vec<(&'static str, OsString)>,
    /// Its home directory, which also gets its output and its temporary files.
    pub(super) home: &'a Path,
    /// Standard output is a pipe to the caller, not a file.
    pub(super) piped: bool,
    /// The process of its far end, if it has one.
    pub(super) far: Option<u32>,
}

impl Job {
    /// Starts a command. Its output goes to the files `stdout` (unless it is piped) and `stderr` in its home directory.
    pub(super) fn start(spec: &CommandSpec<'_>, stage: &Stage) -> io::Result<Self> {
        let stdout = if spec.piped {
            Stdio::piped()
        } else {
            File::create(spec.home.join("stdout"))?.into()
        };
        let mut command =
            shell(stage.wiring.client(), spec.shell, spec.tool, &spec.variables, spec.home);
        command.stdout(stdout).stderr(File::create(spec.home.join("stderr"))?);
        let server_ticks = server_ticks(stage, spec.far)?;
        let before = stage.wiring.traffic();
        stage.wiring.restart();
        let start = Instant::now();
        let mut child = command.spawn()?;
        let output = child.stdout.take();
        let pid = Pid::from_child(&child);
        let (sender, ended) = channel();
        thread::spawn(move || {
            let usage = sys::wait(pid);
            // The receiver is dropped early only if the worker is ending.
            let _ = sender.send(usage.map(|usage| (usage, Instant::now())));
        });
        Ok(Self {
            start,
            pid,
            ended,
            far: spec.far,
            server_ticks,
            sampler: Sampler::new(child.id(), before),
            output,
        })
    }

    /// When the command was started.
    pub(super) fn started(&self) -> Instant {
        self.start
    }

    /// Waits for the end of the command until `deadline` and takes samples meanwhile; `None` at the deadline.
    fn ended_by(
        &mut self,
        stage: &Stage,
        deadline: Instant,
    ) -> io::Result<Option<(Usage, Instant)>> {
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

    /// The process id of the command, which is also that of its process group.
    pub(super) fn id(&self) -> Pid {
        self.pid
    }

    /// Whether the command is still running. Does not wait.
    pub(super) fn is_running(&self) -> bool {
        matches!(
            rustix::process::test_kill_process(self.pid),
            Ok(()) | Err(rustix::io::Errno::PERM)
        )
    }

    /// Sends a signal to the process group of the command.
    pub(super) fn stop(&self, signal: Signal) {
        stop_group(self.pid, signal);
    }

    /// Waits until the command ends, and kills it if it takes longer than `limit`, counted from its start.
    pub(super) fn finish(mut self, stage: &Stage, limit: Duration) -> io::Result<Measured> {
        let mut timed_out = false;
        let (usage, end) = match self.ended_by(stage, self.start + limit)? {
            Some(ended) => ended,
            None => {
                timed_out = true;
                self.stop(Signal::KILL);
                self.ended.recv().map_err(io::Error::other)??
            }
        };
        // Background processes that the command left must not use the processor during the next run.
        self.stop(Signal::KILL);
        let samples = self.sampler.end(end - self.start, &stage.wiring);
        let ticks = server_ticks(stage, self.far)?.zip(self.server_ticks);
        let second = rustix::param::clock_ticks_per_second() as f64;
        Ok(Measured {
            status: usage.status,
            timed_out,
            time: end - self.start,
            client_cpu: usage.cpu,
            server_cpu: ticks.map(|(now, then)| {
                Duration::from_secs_f64(now.saturating_sub(then) as f64 / second)
            }),
            peak_rss: peak(usage.peak_rss, samples.peak_rss),
            samples,
        })
    }
}

/// Sends a signal to a process group.
pub(super) fn stop_group(group: Pid, signal: Signal) {
    // The group may have ended already.
    let _ = kill_process_group(group, signal);
}

/// The peak resident memory of a command: the kernel's figure, or the largest sample. The kernel's figure includes the
/// memory of this process at the fork; if it is not larger than that, the sample is more accurate.
fn peak(kernel: u64, sampled: u64) -> u64 {
    let floor = peak_rss(std::process::id()).unwrap_or(0);
    if kernel > floor || sampled == 0 { kernel } else { sampled }
}

/// Processor time of the server, its bridge, the tool's far end and their children so far, in clock ticks.
fn server_ticks(stage: &Stage, far: Option<u32>) -> io::Result<Option<u64>> {
    let Some(server) = &stage.server else { return Ok(None) };
    let all = processes()?;
    let ticks = |id| tree(&all, id).iter().map(|process| process.ticks).sum::<u64>();
    Ok(Some(server.ids().chain(far).map(ticks).sum()))
}

/// The last three lines of the first MiB of standard error, joined to one; if there are none, the last error event on
/// standard output. At most 400 characters.
pub(super) fn last_error_lines(home: &Path) -> String {
    let mut text = Vec::new();
    let read =
        File::open(home.join("stderr")).and_then(|file| file.take(1 << 20).read_to_end(&mut text));
    if let Err(error) = read {
        return format!("its messages cannot be read: {error}");
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut message = lines[lines.len().saturating_sub(3)..].join("; ");
    if message.is_empty() {
        // With `piped`, and for a far end, there is no such file.
        let output = File::open(home.join("stdout")).ok();
        message = output.and_then(progress::last_error).unwrap_or_default();
    }
    message.chars().take(400).collect()
}

/// Empties the home directory of a run, so that files of one run do not affect the next.
pub(super) fn fresh_home(home: &Path) -> io::Result<()> {
    match fs::remove_dir_all(home) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(home)
}
