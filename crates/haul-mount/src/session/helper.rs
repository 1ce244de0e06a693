//! `fusermount3`, which mounts and unmounts for users other than root.

use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use haul_storage::{Error, ErrorKind, Result};
use rustix::cmsg_space;
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::mounts::as_argument;

/// The program, in its current and its old version.
const PROGRAMS: [&str; 2] = ["fusermount3", "fusermount"];

/// Mounts at `point` with these options. Returns the open `/dev/fuse`.
pub(super) fn mount(point: &Path, options: &str) -> Result<OwnedFd> {
    let failed = |error| Error::from_io("mount", error).at(point.display());
    let (own, passed) = UnixStream::pair().map_err(failed)?;
    // As its standard input: no other process that is started meanwhile inherits it. With the other end open elsewhere,
    // the end of the helper would not be noticed.
    let prepare = |command: &mut Command| -> io::Result<()> {
        command.args(["-o", options, "--"]).arg(as_argument(point));
        command.stdin(OwnedFd::from(passed.try_clone()?)).env("_FUSE_COMMFD", "0");
        Ok(())
    };
    let mut child = spawn(prepare).map_err(|error| missing(point, error))?;
    drop(passed);
    let received = receive(&own);
    let mut message = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // Without its message, the error is less specific.
        drop(errors.read_to_string(&mut message));
    }
    let status = child.wait().map_err(failed)?;
    match received {
        Ok(Some(fd)) if status.success() => Ok(fd),
        Err(error) if status.success() => Err(failed(error)),
        _ => Err(refused(point, message.trim())),
    }
}

/// Unmounts; with `lazy` even if processes use it.
pub(super) fn unmount(point: &Path, lazy: bool) -> io::Result<bool> {
    let prepare = |command: &mut Command| -> io::Result<()> {
        command.args(if lazy { &["-u", "-z", "-q", "--"][..] } else { &["-u", "-q", "--"][..] });
        command.arg(as_argument(point));
        Ok(())
    };
    Ok(spawn(prepare)?.wait()?.success())
}

fn spawn(prepare: impl Fn(&mut Command) -> io::Result<()>) -> io::Result<std::process::Child> {
    let mut missing = io::Error::from(io::ErrorKind::NotFound);
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        prepare(&mut command)?;
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
            outcome => return outcome,
        }
    }
    Err(missing)
}

/// Receives the descriptor that the helper passes; `None` if it ended without.
fn receive(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut pieces = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(socket, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let found = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(found)
}

fn missing(point: &Path, error: io::Error) -> Error {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let error = Error::from_io("mount", error).at(point.display());
    if !is_missing {
        return error;
    }
    error
        .because("fusermount3 is not installed; users other than root need it to mount")
        .hinting("install it: the package is fuse3 in most distributions")
}

fn refused(point: &Path, message: &str) -> Error {
    let error = Error::new(ErrorKind::PermissionDenied, "mount").at(point.display());
    let cause = match message {
        "" => "fusermount3 refuses it",
        message => message.strip_prefix("fusermount3: ").unwrap_or(message),
    };
    let error = error.because(cause);
    if message.contains("user_allow_other") {
        return error.hinting("write user_allow_other into /etc/fuse.conf, or omit --allow-other");
    }
    error
}
