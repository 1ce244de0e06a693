//! A network namespace without a name: it lives as long as somebody holds it.
//!
//! Nothing is mounted below `/run/netns` and so nothing can be left there: when this process ends,
//! however it ends, the kernel takes the namespace with it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::UnshareFlags;

use super::error::LinkError;
use crate::sys;

/// A network stack of its own, `lo` up.
#[derive(Debug)]
pub struct Namespace {
    space: File,
}

impl Namespace {
    /// Makes one. It needs root, or CAP_SYS_ADMIN.
    pub fn new() -> Result<Self, LinkError> {
        let space = on_a_thread(|| {
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

    /// Another hold of the same network stack.
    pub(super) fn try_clone(&self) -> Result<Self, LinkError> {
        let space = self.space.try_clone();
        space
            .map(|space| Self { space })
            .map_err(|error| LinkError::new("cloning a descriptor of a network namespace", &error))
    }

    /// A command that will run in it, and die with the thread that starts it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        sys::prepare(&mut command, Some(self.space.as_fd()));
        command
    }

    /// Runs `work` on a thread that is in it. Sockets made there stay in it.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LinkError> {
        on_a_thread(|| {
            sys::enter(&self.space)
                .map_err(|error| LinkError::new("entering a network namespace", &error))?;
            Ok(work())
        })
    }

    /// A path by which others can enter it (`nsenter --net=PATH`) while this process lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.space.as_raw_fd()).into()
    }

    /// Runs `ip ARGUMENTS` in it.
    pub(super) fn ip(&self, arguments: &[&str]) -> Result<(), LinkError> {
        self.run("ip", arguments)
    }

    /// Runs a tool in it that has to succeed.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Result<(), LinkError> {
        let what = || format!("{program} {}", arguments.join(" "));
        let output = self
            .command(program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| LinkError::new(what(), &error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(LinkError::new(what(), &said.trim()))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.space.as_fd()
    }
}

/// Namespaces belong to threads: the caller's stays what it was.
fn on_a_thread<T: Send>(
    work: impl FnOnce() -> Result<T, LinkError> + Send,
) -> Result<T, LinkError> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
