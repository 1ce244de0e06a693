//! An anonymous network namespace, which exists as long as a process or a file descriptor refers to it.
//!
//! Nothing is mounted below `/run/netns`, so nothing can be left there: however this process ends, the kernel
//! removes the namespace.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::UnshareFlags;

use super::error::LinkError;
use crate::sys;

/// A network namespace. At first it has only `lo`, which is up.
#[derive(Debug)]
pub struct Namespace {
    space: File,
}

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// Fails without root or CAP_SYS_ADMIN.
    pub fn new() -> Result<Self, LinkError> {
        let space = on_new_thread(|| {
            sys::unshare(UnshareFlags::NEWNET).map_err(|error| {
                LinkError::new("making a network namespace (it needs root)", &error)
            })?;
            File::open("/proc/thread-self/ns/net")
                .map_err(|error| LinkError::new("opening /proc/thread-self/ns/net", &error))
        })?;
        let namespace = Self { space };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Another handle of the same namespace.
    pub(super) fn try_clone(&self) -> Result<Self, LinkError> {
        let space = self.space.try_clone();
        space
            .map(|space| Self { space })
            .map_err(|error| LinkError::new("cloning a descriptor of a network namespace", &error))
    }

    /// A command that runs in the namespace, and is killed when the thread that started it ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        self.prepare(&mut command);
        command
    }

    /// Makes a command run in the namespace, and be killed when the thread that starts it ends. The namespace must
    /// exist until the command runs.
    pub fn prepare(&self, command: &mut Command) {
        sys::prepare(command, Some(self.space.as_fd()));
    }

    /// Runs `work` on a new thread in the namespace. Sockets created there stay in the namespace.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LinkError> {
        on_new_thread(|| {
            sys::enter(&self.space)
                .map_err(|error| LinkError::new("entering a network namespace", &error))?;
            Ok(work())
        })
    }

    /// A path through which other processes can enter the namespace (`nsenter --net=PATH`) while this one runs.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.space.as_raw_fd()).into()
    }

    /// Runs `ip ARGUMENTS` in the namespace; see [`Self::run`].
    pub(super) fn ip(&self, arguments: &[&str]) -> Result<(), LinkError> {
        self.run("ip", arguments)
    }

    /// Runs a program in the namespace. A failure exit status becomes an error with the program's stderr.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Result<(), LinkError> {
        let command_line = || format!("{program} {}", arguments.join(" "));
        let output = self
            .command(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| LinkError::new(command_line(), &error))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(LinkError::new(command_line(), &stderr.trim()))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.space.as_fd()
    }
}

/// Runs `work` on a new thread. A network namespace is per thread, so the caller's does not change.
fn on_new_thread<T: Send>(
    work: impl FnOnce() -> Result<T, LinkError> + Send,
) -> Result<T, LinkError> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
