//! The process that outlives a benchmark and clears up after it.
//!
//! A benchmark starts servers, makes mounts and namespaces, and writes gigabytes. Three processes make
//! sure that nothing of this is left, however the benchmark ends:
//!
//! - the **front** is the process that the user started. It holds one end of a pipe and closes it on a signal.
//! - the **guard** has a session and a mount namespace of its own and the other end of the pipe. When
//!   the front is gone, even by kill -9, or the worker has ended, it kills every remaining process
//!   (all are its descendants: it adopts orphans), unmounts, and removes the directory.
//! - the **worker** does the work. It dies with the guard.
//!
//! If the guard is killed, the front clears up instead. If both are killed, worker and servers die with the
//! guard, and the next benchmark finds the directory unlocked and removes it.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait, waitpid};
use rustix::thread::UnshareFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::mounts::mounts_in;
use crate::processes::processes;
use crate::sys;

const PREFIX: &str = "haul-bench-";
const LOCK: &str = "lock";
/// Time after which processes that survive SIGKILL are reported as an error.
const PATIENCE: Duration = Duration::from_secs(20);

/// The front: runs `worker` under a guard, in a new directory below `parent`. Once everything is cleared up, returns
/// the worker's exit status, or 128 plus the number of the signal that the front received.
pub fn run(parent: &Path, worker: &[OsString]) -> io::Result<ExitCode> {
    fs::create_dir_all(parent).map_err(|error| at("creating", parent, &error))?;
    remove_stale(parent)?;
    let directory = tempfile::Builder::new()
        .prefix(PREFIX)
        .disable_cleanup(true)
        .tempdir_in(parent)
        .map_err(|error| at("creating a directory in", parent, &error))?
        .path()
        .canonicalize()?;
    // For the case that the guard itself is killed.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    let mut guard =
        this_program().arg("guard").arg(&directory).args(worker).stdin(Stdio::piped()).spawn()?;
    let mut pipe = guard.stdin.take();
    let listener = thread::spawn(move || {
        let signal = signals.forever().next();
        // The guard sees the end of the pipe and clears up.
        drop(pipe.take());
        signal
    });
    let status = guard.wait()?;
    handle.close();
    let signal = listener.join().ok().flatten();
    kill_descendants()?;
    if directory.exists() {
        fs::remove_dir_all(&directory).map_err(|error| at("removing", &directory, &error))?;
    }
    let code = match (signal, status.code()) {
        (Some(signal), _) => 128 + signal,
        (None, Some(code)) => code,
        (None, None) => return Err(io::Error::other(format!("the guard ended: {status}"))),
    };
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// The guard's own `main`: its standard input is the pipe. Returns the worker's exit status, or 130 if the worker was
/// stopped.
pub fn guard(directory: &Path, worker: &[OsString]) -> io::Result<ExitCode> {
    rustix::process::setsid()?;
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let lock = File::create(directory.join(LOCK))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    if unshare_mounts()? {
        // Servers make directories and sockets in /run: they get one of their own.
        let settings: Option<&std::ffi::CStr> = None;
        mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), settings)?;
    }
    let worker = start_worker(directory, worker)?;
    let (events, happened) = channel();
    watch_pipe(events.clone());
    watch_signals(events.clone())?;
    watch_worker(worker.id(), events);
    let status = match happened.recv() {
        Ok(Event::Ended(status)) => status,
        Ok(Event::Stop) | Err(_) => 130,
    };
    let left = clear_up(directory);
    drop(lock);
    left?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

/// Moves the calling thread, and what it starts later, into a mount namespace of its own: its mounts disappear with
/// the last process in it. Returns false if the process may not do this; it cannot mount anything either, then.
///
/// # Errors
/// If mounts would still reach other namespaces.
pub fn unshare_mounts() -> io::Result<bool> {
    if sys::unshare(UnshareFlags::NEWNS).is_err() {
        return Ok(false);
    }
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(true)
}

/// Like [`unshare_mounts`], but only at a thread's first call: a second namespace would get copies of the mounts in the
/// first one.
///
/// # Errors
/// Those of [`unshare_mounts`].
pub fn unshare_mounts_once() -> io::Result<bool> {
    thread_local! {
        static DONE: Cell<Option<bool>> = const { Cell::new(None) };
    }
    let done = match DONE.get() {
        Some(done) => done,
        None => unshare_mounts()?,
    };
    DONE.set(Some(done));
    Ok(done)
}

/// Makes the kernel kill the child of `command` when the thread that starts it ends.
pub fn end_with_thread(command: &mut Command) {
    sys::prepare(command, None);
}

enum Event {
    /// The worker's exit status.
    Ended(i32),
    /// The front is gone, or the guard received a signal.
    Stop,
}

/// This program once more, even if its file was replaced meanwhile: building haul may link the
/// benchmark again.
fn this_program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("haul-bench");
    command
}

fn start_worker(directory: &Path, arguments: &[OsString]) -> io::Result<Child> {
    let mut command = this_program();
    command.arg("worker").arg(directory).args(arguments).stdin(Stdio::null());
    end_with_thread(&mut command);
    command.spawn()
}

fn watch_pipe(events: Sender<Event>) {
    thread::spawn(move || {
        // Nothing is ever written to the pipe: reading ends, or fails, when the front closes its end or dies.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        // The receiver is gone only when the guard is ending anyway; same below.
        let _ = events.send(Event::Stop);
    });
}

fn watch_signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            let _ = events.send(Event::Stop);
        }
    });
    Ok(())
}

/// Waits for all children, adopted orphans of the worker included, until the worker itself ends.
fn watch_worker(worker: u32, events: Sender<Event>) {
    thread::spawn(move || {
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == worker => {
                    let code =
                        status.exit_status().or(status.terminating_signal().map(|n| n + 128));
                    let _ = events.send(Event::Ended(code.unwrap_or(1)));
                    return;
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    });
}

/// Kills all descendants, unmounts what is mounted in `directory` and removes it.
fn clear_up(directory: &Path) -> io::Result<()> {
    kill_descendants()?;
    for mount in mounts_in(directory)?.iter().rev() {
        unmount(mount, UnmountFlags::DETACH).map_err(|error| at("unmounting", mount, &error))?;
    }
    fs::remove_dir_all(directory).map_err(|error| at("removing", directory, &error))
}

/// Kills children until there are none: this process, a subreaper, adopts those of a killed child.
fn kill_descendants() -> io::Result<()> {
    let start = Instant::now();
    loop {
        let children = children_of(std::process::id())?;
        if children.is_empty() {
            return Ok(());
        }
        for child in &children {
            if let Some(pid) = Pid::from_raw(child.cast_signed()) {
                // It may have ended meanwhile.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("processes {children:?} do not die")));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Process ids of the children of `parent`, zombies included, from `/proc`.
fn children_of(parent: u32) -> io::Result<Vec<u32>> {
    Ok(processes()?.into_iter().filter(|process| process.parent == parent).map(|p| p.id).collect())
}

/// Removes directories of benchmarks whose guard was killed.
fn remove_stale(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent).map_err(|error| at("listing", parent, &error))? {
        let path = entry?.path();
        let ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        // A directory without a lock file was made a moment ago.
        let Some(lock) = ours.then(|| File::open(path.join(LOCK)).ok()).flatten() else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_dir_all(&path).map_err(|error| at("removing", &path, &error))?;
            let left = writeln!(io::stderr(), "removed {}, left by another run", path.display());
            // It does not matter if the notice cannot be printed.
            drop(left);
        }
    }
    Ok(())
}

fn at(what: &str, path: &Path, error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what} {}: {error}", path.display()))
}
