//! The sockets through which mounts report their state: one for each mount, in a directory of its user.
//!
//! A mount writes its report to each client that connects, and closes the connection. The directory is for this user
//! only. A socket appears under its name when it listens; one that refuses connections belongs to a process that has
//! ended, and is removed by the next `--status`.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::geteuid;

use crate::directories;

/// Maximum time without progress while a report arrives, or while a client reads it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Longest report in bytes.
const MOST: u64 = 16 << 20;

/// The directory for sockets of root, which lasts until the machine is restarted.
const RUN: &str = "/run/haul";

/// The socket of a mount; removed on drop.
#[derive(Debug)]
pub(super) struct Control {
    path: PathBuf,
}

impl Control {
    /// Sends `report` on each connection, from a thread of its own, until `report` returns `None`.
    ///
    /// # Errors
    /// If no directory can hold the socket, or the thread cannot be started.
    pub(super) fn listen(
        report: impl Fn() -> Option<Vec<u8>> + Send + 'static,
    ) -> io::Result<Self> {
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for directory in candidates() {
            match bind(&directory) {
                Ok((listener, path)) => {
                    let control = Self { path };
                    let thread = thread::Builder::new().name("status".to_owned());
                    thread.spawn(move || serve(&listener, &report))?;
                    return Ok(control);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // It may be gone already, with the user's session.
        drop(fs::remove_file(&self.path));
    }
}

/// The reports of all mounts of this user, and errors of those that do not respond.
pub(super) fn reports() -> Vec<(PathBuf, io::Result<Vec<u8>>)> {
    let sockets: Vec<_> = candidates().iter().flat_map(|directory| sockets(directory)).collect();
    thread::scope(|scope| {
        let queries: Vec<_> = sockets
            .iter()
            .map(|socket| scope.spawn(move || (socket.clone(), query(socket).transpose())))
            .collect();
        let reports = queries.into_iter().filter_map(|query| query.join().ok());
        reports.filter_map(|(socket, report)| Some((socket, report?))).collect()
    })
}

/// The directories that may have sockets, in the order in which they are tried. Root prefers `/run/haul` to that of a
/// login (`XDG_RUNTIME_DIR`), which is removed at logout.
fn candidates() -> Vec<PathBuf> {
    let run = geteuid().is_root().then(|| PathBuf::from(RUN));
    let login = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let login = login.filter(|path| path.is_absolute()).map(|path| path.join("haul"));
    let all = [run, login, directories::state()];
    all.into_iter().flatten().map(|path| path.join("mounts")).collect()
}

fn bind(directory: &Path) -> io::Result<(UnixListener, PathBuf)> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = fs::metadata(directory)?;
    if found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    // Processes of two containers may have the same ID.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = format!("{}-{:x}", process::id(), now.as_nanos());
    let (new, path) = (directory.join(format!(".{name}")), directory.join(name));
    let listener = UnixListener::bind(&new)?;
    match fs::rename(&new, &path) {
        Ok(()) => Ok((listener, path)),
        Err(error) => {
            drop(fs::remove_file(&new));
            Err(error)
        }
    }
}

fn serve(listener: &UnixListener, report: &impl Fn() -> Option<Vec<u8>>) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // Too many open files, for example.
            thread::sleep(Duration::from_secs(1));
            continue;
        };
        let Some(report) = report() else { return };
        // A client that reads nothing for `TIMEOUT` loses the rest.
        drop(stream.set_write_timeout(Some(TIMEOUT)).and_then(|()| stream.write_all(&report)));
    }
}

/// The sockets in a directory.
fn sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_shown = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| !name.starts_with('.'))
    };
    entries.map(|entry| entry.path()).filter(is_shown).collect()
}

/// The report of a mount; `None` if the mount has ended.
fn query(socket: &Path) -> io::Result<Option<Vec<u8>>> {
    let stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            // Another `--status` may have removed it.
            drop(fs::remove_file(socket));
            return Ok(None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    received(stream)
}

/// Reads the report; `None` if the mount ends meanwhile.
fn received(stream: UnixStream) -> io::Result<Option<Vec<u8>>> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut report = Vec::new();
    match stream.take(MOST).read_to_end(&mut report) {
        Ok(_) => Ok((!report.is_empty()).then_some(report)),
        // The mount closed its socket before it accepted the connection.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn each_connection_receives_the_report() {
        let directory = TempDir::new().unwrap();
        let mounts = directory.path().join("haul/mounts");
        let (listener, path) = bind(&mounts).unwrap();
        assert_eq!(sockets(&mounts), std::slice::from_ref(&path));
        let thread = thread::spawn(move || serve(&listener, &|| Some(b"report".to_vec())));
        for _ in 0..2 {
            assert_eq!(query(&path).unwrap().unwrap(), b"report");
        }
        assert!(!thread.is_finished());
        assert_eq!(fs::metadata(&mounts).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn the_socket_of_a_process_that_has_ended_is_removed() {
        let directory = TempDir::new().unwrap();
        let mounts = directory.path().join("mounts");
        let (listener, path) = bind(&mounts).unwrap();
        drop(listener);
        assert!(query(&path).unwrap().is_none());
        assert!(sockets(&mounts).is_empty());
        assert!(query(&path).unwrap().is_none());
    }

    /// Formerly, `--status` then failed, even if it was for another mount.
    #[test]
    fn a_mount_that_ends_while_its_report_is_awaited_has_none() {
        let directory = TempDir::new().unwrap();
        let (listener, path) = bind(&directory.path().join("mounts")).unwrap();
        let stream = UnixStream::connect(path).unwrap();
        drop(listener);
        assert!(received(stream).unwrap().is_none());
    }

    #[test]
    fn a_directory_that_other_users_can_read_is_rejected() {
        use std::os::unix::fs::PermissionsExt as _;

        let directory = TempDir::new().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let error = bind(directory.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
