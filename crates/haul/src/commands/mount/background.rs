//! `--daemon`: the mount in a process of its own.
//!
//! ```text
//! haul mount --daemon ── starts ──► the same command line, --in-background ── mounts, prints, NUL ─┐
//!      ▲    forwards its output, and ends with its status, or once the NUL has arrived             │
//!      └──────────────────── standard output: a pipe ──────────────────────────────────────────────┘
//!                       before the NUL: a session of its own; after it: standard streams to /dev/null
//! ```
//!
//! The program is executed anew instead of forked: a fork copies only one thread. Until the mount can be used, the new
//! process has the terminal and standard error, so it prompts for passwords and reports errors itself.
//!
//! The working directory stays: relative names of keys and certificates are read again when connections are opened.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use haul_storage::Error;
use nix::unistd::{Uid, User};
use rustix::process::setsid;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::exit::{Exit, Stop};
use crate::output::Printer;

/// Ends the output of the new process, which then continues in the background.
const READY: u8 = 0;

/// Starts the process in the background; `command` is the position of the command in the arguments. Returns once
/// the mount can be used, or the process has ended.
pub(crate) fn start(
    arguments: &[OsString],
    command: usize,
    printer: &Printer,
) -> Result<Exit, Stop> {
    let mut child = spawned(arguments, command).map_err(failed)?;
    let is_ready = child.stdout.take().is_some_and(|output| forward(output, printer));
    if is_ready {
        return Ok(Exit::Done);
    }
    let status = child.wait().map_err(failed)?;
    match status.code() {
        Some(0) => Ok(Exit::Done),
        Some(code) => {
            let known = [Exit::Usage, Exit::Interrupted, Exit::Terminated];
            let exit = known.into_iter().find(|exit| i32::from(exit.status()) == code);
            Ok(exit.unwrap_or(Exit::Failed))
        }
        None => Err(failed(io::Error::other("its process was killed")).into()),
    }
}

/// Enters a mount namespace. There must be no other thread.
pub(crate) fn enter(namespace: &Path) -> Result<(), Stop> {
    let enter = || -> io::Result<()> {
        let file = File::open(namespace)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount))?;
        Ok(())
    };
    let failed = |error| Error::from_io("enter namespace", error).at(namespace.display());
    Ok(enter().map_err(failed)?)
}

/// Called in the new process once the mount can be used: lets the command that started it exit.
pub(super) fn detach(printer: &Printer) -> Result<(), Error> {
    let detach = || -> io::Result<()> {
        // `setsid` fails only in the leader of a process group, which a new process is not.
        setsid()?;
        printer.raw(&[READY]);
        printer.flush();
        let null = File::options().read(true).write(true).open("/dev/null")?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
        Ok(())
    };
    detach().map_err(failed)
}

fn failed(error: io::Error) -> Error {
    Error::from_io("start in the background", error).at("haul")
}

fn spawned(arguments: &[OsString], command: usize) -> io::Result<Child> {
    let mut all: Vec<_> = arguments.iter().skip(1).cloned().collect();
    all.insert(command.min(all.len()), "--in-background".into());
    let mut new = Command::new(program());
    new.arg0("haul").args(all).stdout(Stdio::piped());
    // systemd starts mounts without HOME, below which the keys of SSH are.
    if env::var_os("HOME").is_none()
        && let Ok(Some(user)) = User::from_uid(Uid::effective())
    {
        new.env("HOME", user.dir);
    }
    new.spawn()
}

/// The program that runs now, even if it was replaced or is not in this mount namespace.
fn program() -> PathBuf {
    let named = env::current_exe().ok().filter(|path| path.exists());
    named.unwrap_or_else(|| "/proc/self/exe".into())
}

/// Forwards the output of the new process. Returns whether the process continues in the background.
fn forward(mut output: impl Read, printer: &Printer) -> bool {
    let mut buffer = [0; 4096];
    loop {
        let bytes = match output.read(&mut buffer) {
            Ok(0) => return false,
            Ok(length) => &buffer[..length],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return false,
        };
        let end = bytes.iter().position(|byte| *byte == READY);
        printer.raw(&bytes[..end.unwrap_or(bytes.len())]);
        if end.is_some() {
            return true;
        }
    }
}
