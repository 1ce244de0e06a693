//! `fusermount3`, which mounts and unmounts for users other than root.

use std::io::{self, IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use haul_storage::{Error, ErrorKind, Result, without_secrets};
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
    // The helper gets its end as standard input, so no other process that is started meanwhile inherits it. If that end
    // were open elsewhere, haul would not notice that the helper has ended.
    let prepare = |command: &mut Command| -> io::Result<()> {
        command.args(["-o", options, "--"]).arg(as_argument(point));
        command.stdin(OwnedFd::from(passed.try_clone()?)).env("_FUSE_COMMFD", "0");
        Ok(())
    };
    let mut child = spawn(prepare).map_err(|error| missing("mount", point, error))?;
    drop(passed);
    let received = receive(&own);
    let ended = end(&mut child).map_err(failed)?;
    match (received, ended) {
        (Ok(Some(fd)), Ok(())) => Ok(fd),
        (Err(error), Ok(())) => Err(failed(error)),
        (Ok(None), Ok(())) => Err(refused(point, "")),
        (_, Err(message)) => Err(refused(point, &message)),
    }
}

/// Unmounts; with `lazy` even if processes use it.
pub(super) fn unmount(point: &Path, lazy: bool) -> Result<()> {
    let prepare = |command: &mut Command| -> io::Result<()> {
        command.args(if lazy { &["-u", "-z", "--"][..] } else { &["-u", "--"][..] });
        command.arg(as_argument(point));
        Ok(())
    };
    let failed = |error| Error::from_io("unmount", error).at(point.display());
    let mut child = spawn(prepare).map_err(|error| missing("unmount", point, error))?;
    end(&mut child).map_err(failed)?.map_err(|message| unmount_failed(point, &message))
}

/// Waits for the end of the program. If it fails, the inner error is its message, which may be empty.
fn end(child: &mut Child) -> io::Result<std::result::Result<(), String>> {
    let mut message = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // Without its message, the error is less specific.
        drop(errors.read_to_string(&mut message));
    }
    let is_done = child.wait()?.success();
    Ok(if is_done { Ok(()) } else { Err(message.trim().to_owned()) })
}

fn spawn(prepare: impl Fn(&mut Command) -> io::Result<()>) -> io::Result<Child> {
    let mut missing = io::Error::from(io::ErrorKind::NotFound);
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        prepare(&mut command)?;
        match without_secrets(&mut command).spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
            outcome => return outcome,
        }
    }
    Err(missing)
}

/// Receives the descriptor that the helper passes; `None` if the helper ended without doing so.
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

fn missing(operation: &'static str, point: &Path, error: io::Error) -> Error {
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    let error = Error::from_io(operation, error).at(point.display());
    if !is_missing {
        return error;
    }
    error
        .because("fusermount3 is not installed; users other than root need it to mount and unmount")
        .hinting("install it: the package is fuse3 in most distributions")
}

fn unmount_failed(point: &Path, message: &str) -> Error {
    let kind = match message.ends_with("resource busy") {
        true => ErrorKind::Busy,
        false => ErrorKind::PermissionDenied,
    };
    let error = Error::new(kind, "unmount").at(point.display()).because(cause(message));
    error.hinting(format!("run: fusermount3 -u -z {}", point.display()))
}

fn refused(point: &Path, message: &str) -> Error {
    let error = Error::new(ErrorKind::PermissionDenied, "mount").at(point.display());
    let error = error.because(cause(message));
    if message.contains("user_allow_other") {
        return error.hinting("write user_allow_other into /etc/fuse.conf, or omit --allow-other");
    }
    error
}

/// The cause in an error, from the program's message.
fn cause(message: &str) -> &str {
    match message {
        "" => "fusermount3 refuses it",
        message => message.strip_prefix("fusermount3: ").unwrap_or(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, the cause of a failed unmount was always "fusermount3 refuses it".
    #[test]
    fn the_message_of_a_failed_unmount_is_the_cause() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'fusermount3: entry for /a not found in /etc/mtab' >&2; exit 1"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let message = end(&mut child).unwrap().unwrap_err();
        let error = unmount_failed(Path::new("/a"), &message);
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert_eq!(error.cause(), "entry for /a not found in /etc/mtab");
        let busy = unmount_failed(Path::new("/a"), "failed to unmount /a: Device or resource busy");
        assert_eq!(busy.kind(), ErrorKind::Busy);
    }
}
