//! An FTP server: its lanes, and the mapping of paths in locations to paths on the server.
//!
//! A path of a location is relative to the root that the server shows. An empty path, one below `/~/` and one without a
//! leading slash are relative to the login directory.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use haul_net::Prompter;
use haul_storage::{EntryKind, Error, ErrorKind, LinkStatus, Result, Retry};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::lanes::{Lane, Lanes};
use crate::login::Login;
use crate::look;
use crate::options::FtpOptions;
use crate::server::Server;
use crate::wire::listing::Found;
use crate::wire::{Command, HashCommand, Reply};

/// Pauses before the retries of an idempotent operation whose lane was lost, or for which the server was busy: 15.75 s
/// in total, about as long as a server takes to restart.
const PAUSES_MS: [u64; 7] = [0, 250, 500, 1000, 2000, 4000, 8000];

/// Number of these pauses (7.75 s in total) that are used before the first lane has been opened.
const PAUSES_BEFORE_FIRST_LANE: usize = 6;

/// How long to wait for an aborted writer to close its part file.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A server with its lanes, shared by any number of storages.
#[derive(Debug)]
pub struct FtpHost {
    pub(crate) lanes: Arc<Lanes>,
    /// Part files that are being written by this process.
    written: Mutex<HashSet<Vec<u8>>>,
    /// Notified when one of them is closed.
    closed: Notify,
    warn: OnceLock<Warn>,
}

/// The receiver of warnings.
struct Warn(Box<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warn")
    }
}

/// The type of the entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link with an unknown target, a device or a socket.
    Other,
}

/// A path of a location, resolved on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The absolute path on the server, without `.`, `..` and trailing slashes.
    pub path: Bytes,
    /// The type of the entry at that path; `None` if there is none.
    pub kind: Option<Kind>,
}

/// The nearest existing directory of a path, and the rest of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The absolute path of the directory on the server.
    pub directory: Bytes,
    /// The remaining names below it; empty if the path itself is that directory.
    pub rest: Vec<Bytes>,
    /// The type of the entry at the path; `None` if there is none.
    pub kind: Option<Kind>,
}

impl FtpHost {
    /// A server; no connection is opened yet. The default `port` is 21, or 990 with implicit TLS. The lanes run on
    /// `runtime`, which should have its own threads, because encryption takes CPU time. `prompter` provides a password
    /// that is missing in `options`.
    pub fn new(
        host: impl Into<String>,
        port: Option<u16>,
        options: FtpOptions,
        prompter: Arc<dyn Prompter>,
        runtime: Handle,
    ) -> Arc<Self> {
        let login = Login::new(host.into(), port, options, prompter);
        let (written, closed) = (Mutex::default(), Notify::new());
        Arc::new(Self { lanes: Lanes::new(login, runtime), written, closed, warn: OnceLock::new() })
    }

    /// Passes warnings about files on the server to `warn`. Only the first call sets the receiver.
    pub fn warn_through(&self, warn: impl Fn(&str) + Send + Sync + 'static) {
        drop(self.warn.set(Warn(Box::new(warn))));
    }

    pub(crate) fn warn(&self, message: &str) {
        if let Some(Warn(warn)) = self.warn.get() {
            warn(message);
        }
    }

    /// Announces a large transfer: if the path is long, `lanes` lanes (at most 8) are opened concurrently as soon as
    /// the RTT is known.
    pub fn expect(&self, lanes: usize) {
        self.lanes.expect(lanes);
    }

    /// The name of the server in errors.
    pub fn name(&self) -> String {
        self.lanes.host()
    }

    /// The state of the link.
    pub fn link(&self) -> LinkStatus {
        self.lanes.status()
    }

    /// Resolves a path of a location on the server.
    ///
    /// # Errors
    /// Those of connecting and logging in; `InvalidInput` for a path that cannot be sent; `PermissionDenied` and others
    /// if the server does not report what is there.
    pub async fn resolve(&self, path: &[u8]) -> Result<Resolved> {
        let server = self.server().await?;
        let path = absolute(&server.home, path);
        let found = self.look(&path).await.map_err(|error| self.at(error, &path))?;
        Ok(Resolved { kind: found.as_ref().map(kind), path: path.into() })
    }

    /// Finds the nearest existing directory of a path that will be written. The requests for all its ancestors are
    /// sent at once.
    ///
    /// # Errors
    /// Those of [`FtpHost::resolve`]; `NotADirectory` if an ancestor is a file; `PermissionDenied` if the path, or an
    /// ancestor below the nearest directory that can be entered, is a directory that cannot; `NotFound` if not even the
    /// root of the server can be entered.
    pub async fn nearest(&self, path: &[u8]) -> Result<Nearest> {
        let server = self.server().await?;
        let path = absolute(&server.home, path);
        let ends = ends(&path);
        let mut commands = Vec::new();
        for end in &ends {
            let above = if *end == 0 { b"/" } else { &path[..*end] };
            commands.push(Command::new("CWD", above).map_err(|error| self.at(error, &path))?);
        }
        let replies =
            self.exchange_retrying(&commands).await.map_err(|error| self.at(error, &path))?;
        // The server may deny access to ancestors; the last directory that can be entered counts.
        let last = replies.iter().rposition(Reply::is_done);
        let Some(last) = last else {
            return Err(self.at(Error::new(ErrorKind::NotFound, "open"), &path));
        };
        let end = ends[last];
        let directory = if end == 0 { b"/" } else { &path[..end] };
        let rest: Vec<Bytes> = path[end..]
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
            .map(Bytes::copy_from_slice)
            .collect();
        let found = match rest.len() {
            0 => Some(Found::of(EntryKind::Directory)),
            _ => self.look(&path).await.map_err(|error| self.at(error, &path))?,
        };
        if let Some(found) = found.as_ref().filter(|found| !rest.is_empty() && is_directory(found))
        {
            return Err(self.at(not_entered(found, replies.last()), &path));
        }
        if rest.len() > 1 && found.is_none() {
            let first =
                [directory.strip_suffix(b"/").unwrap_or(directory), b"/", &rest[0]].concat();
            // Errors are ignored: creating that directory reports them.
            if let Ok(Some(found)) = self.look(&first).await {
                return Err(self.at(not_entered(&found, replies.get(last + 1)), &first));
            }
        }
        let directory = Bytes::copy_from_slice(directory);
        Ok(Nearest { directory, rest, kind: found.as_ref().map(kind) })
    }

    /// The capabilities of the server; connects if they are not known yet.
    pub(crate) async fn server(&self) -> Result<Arc<Server>> {
        if let Some(known) = self.lanes.known_server() {
            return Ok(known);
        }
        let mut tries = self.tries();
        loop {
            match self.lanes.command().await {
                Err(error) if tries.again(&error).await => {}
                Err(error) => return Err(error),
                Ok(lane) => return Ok(Arc::clone(&lane.server)),
            }
        }
    }

    /// Describes the entry at an absolute path of the server; `None` if there is none.
    pub(crate) async fn look(&self, path: &[u8]) -> Result<Option<Found>> {
        let mut tries = self.tries();
        loop {
            match self.try_look(path).await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    async fn try_look(&self, path: &[u8]) -> Result<Option<Found>> {
        let mut lane = self.lanes.command().await?;
        look::look(&mut lane, path).await.map_err(|error| error.at(self.name()))
    }

    /// Sends idempotent commands, with the retries of [`Tries`].
    pub(crate) async fn exchange_retrying(&self, commands: &[Command]) -> Result<Vec<Reply>> {
        let mut tries = self.tries();
        loop {
            match self.exchange(commands).await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// Sends commands without retrying.
    pub(crate) async fn exchange(&self, commands: &[Command]) -> Result<Vec<Reply>> {
        let mut lane: Lane = self.lanes.command().await?;
        lane.exchange(commands).await.map_err(|error| error.at(self.name()))
    }

    /// Requests a digest without retrying: each try makes the server read the whole file, which may take
    /// long.
    pub(crate) async fn hash(&self, how: HashCommand, command: Command) -> Result<Reply> {
        let mut lane: Lane = self.lanes.command().await?;
        lane.hash(how, command).await.map_err(|error| error.at(self.name()))
    }

    /// A retry counter for an idempotent operation.
    pub(crate) fn tries(&self) -> Tries {
        let lessons = self.lanes.learnt().mark();
        Tries { lanes: Arc::clone(&self.lanes), failed: 0, tried: false, lessons }
    }

    /// Reserves a part file for one writer of this process. If an aborted writer still has it open, waits until it is
    /// closed, for at most `CLOSE_TIMEOUT`.
    ///
    /// # Errors
    /// `Busy` if the part file is still being written then.
    pub(crate) async fn begin_writing(self: &Arc<Self>, part: &[u8]) -> Result<Writing> {
        let begun = timeout(CLOSE_TIMEOUT, async {
            loop {
                let closed = self.closed.notified();
                if self.written().insert(part.to_vec()) {
                    return;
                }
                closed.await;
            }
        });
        begun.await.map_err(|_| {
            Error::new(ErrorKind::Busy, "create").because("it is already being written")
        })?;
        Ok(Writing { host: Arc::clone(self), part: part.to_vec() })
    }

    fn written(&self) -> std::sync::MutexGuard<'_, HashSet<Vec<u8>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self, error: Error, path: &[u8]) -> Error {
        error.at(format!("{}:{}", self.name(), String::from_utf8_lossy(path).escape_debug()))
    }
}

/// Reserves a part file for its writer until dropped.
#[derive(Debug)]
pub(crate) struct Writing {
    host: Arc<FtpHost>,
    part: Vec<u8>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.host.written().remove(&self.part);
        self.host.closed.notify_waiters();
    }
}

/// Decides about the retries of an idempotent operation.
#[derive(Debug)]
pub(crate) struct Tries {
    lanes: Arc<Lanes>,
    /// Retries after a pause so far.
    failed: usize,
    tried: bool,
    /// Quirks of the server that were known before the last try.
    lessons: u32,
}

impl Tries {
    /// Decides whether to retry after `error`, and waits for the pause before the retry.
    ///
    /// Retries a limited number of times if the lane was lost or the server is busy. Before the first lane has been
    /// opened, only a busy server is retried: it may still count the connections of an earlier run of haul. If a quirk
    /// of the server was learnt meanwhile, the retry is immediate and does not count.
    pub(crate) async fn again(&mut self, error: &Error) -> bool {
        self.tried = true;
        let lesson = self.lanes.learnt().since(&mut self.lessons);
        if lesson && (error.retry() == Retry::Later || error.kind() == ErrorKind::Unsupported) {
            return true;
        }
        let is_transient = match error.kind() {
            ErrorKind::Busy => error.retry() == Retry::Later,
            ErrorKind::Unreachable => error.retry() == Retry::Later && self.lanes.have_been_open(),
            _ => false,
        };
        let has_been_open = self.lanes.have_been_open();
        let most = if has_been_open { PAUSES_MS.len() } else { PAUSES_BEFORE_FIRST_LANE };
        let pauses = &PAUSES_MS[..most];
        let Some(pause) = pauses.get(self.failed).filter(|_| is_transient) else { return false };
        self.failed += 1;
        sleep(Duration::from_millis(*pause)).await;
        true
    }

    /// Whether this is the first try.
    pub(crate) const fn is_first(&self) -> bool {
        !self.tried
    }
}

const fn is_directory(found: &Found) -> bool {
    matches!(found.kind, EntryKind::Directory)
}

/// The error for an existing entry that cannot be entered; `reply` is the reply to the attempt.
fn not_entered(found: &Found, reply: Option<&Reply>) -> Error {
    if !is_directory(found) {
        return Error::new(ErrorKind::NotADirectory, "open");
    }
    let error = Error::new(ErrorKind::PermissionDenied, "open");
    match reply {
        Some(reply) => error.because(format!("the server replied: {reply}")),
        None => error,
    }
}

const fn kind(found: &Found) -> Kind {
    match found.kind {
        EntryKind::File => Kind::File,
        EntryKind::Directory => Kind::Directory,
        EntryKind::Symlink(_) | EntryKind::Special(_) => Kind::Other,
    }
}

/// The absolute path on the server of a path in a location, without `.`, `..` and superfluous slashes.
fn absolute(home: &[u8], path: &[u8]) -> Vec<u8> {
    let below_home = match path {
        b"~" | b"/~" | b"" => Some(&b""[..]),
        _ => path.strip_prefix(b"/~/").or_else(|| path.strip_prefix(b"~/")),
    };
    let below_home = below_home.or_else(|| (!path.starts_with(b"/")).then_some(path));
    let whole = match below_home {
        Some(rest) => [home, b"/", rest].concat(),
        None => path.to_vec(),
    };
    let mut names: Vec<&[u8]> = Vec::new();
    for name in whole.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    [b"/", &names.join(&b'/')[..]].concat()
}

/// The end offsets of all ancestors of a path and of the path itself, from the root down.
fn ends(path: &[u8]) -> Vec<usize> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let mut ends: Vec<usize> = slashes.map(|(at, _)| at).collect();
    if path.len() > 1 {
        ends.push(path.len());
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_relative_to_the_root_or_with_a_tilde_to_the_login_directory() {
        for (written, on_server) in [
            ("/a/b", "/a/b"),
            ("/", "/"),
            ("", "/home/me"),
            ("/~", "/home/me"),
            ("/~/x/", "/home/me/x"),
            ("x", "/home/me/x"),
            ("/a//b/./c/../d/", "/a/b/d"),
            ("/../../x", "/x"),
            ("/~me/x", "/~me/x"),
        ] {
            let found = absolute(b"/home/me", written.as_bytes());
            assert_eq!(String::from_utf8_lossy(&found), on_server, "{written}");
        }
        assert_eq!(absolute(b"/", b"/~/a"), b"/a");
    }

    #[test]
    fn a_path_is_split_into_all_its_ancestors() {
        assert_eq!(ends(b"/"), [0]);
        assert_eq!(ends(b"/a"), [0, 2]);
        assert_eq!(ends(b"/a/bc"), [0, 2, 5]);
    }
}
