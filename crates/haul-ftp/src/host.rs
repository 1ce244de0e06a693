//! One server: its lanes, and where paths of users are on it.
//!
//! A path of a location begins at the server's root, which is what the server shows as such. What
//! follows `/~/` is below the directory where one is after logging in.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::wire::{Command, Reply};

/// The pauses before what can be done twice is tried again when its lane is lost: at once, and then
/// for as long as a server takes to be restarted.
const PAUSES_MS: [u64; 7] = [0, 250, 500, 1000, 2000, 4000, 8000];

/// So many of these pauses, 7.75 s altogether, are made before there is a first lane.
const AT_FIRST: usize = 6;

/// So long a file may still be written by somebody who was told to stop.
const LETTING_GO: Duration = Duration::from_secs(10);

/// One server with its lanes. Several storages can be on it.
#[derive(Debug)]
pub struct FtpHost {
    pub(crate) lanes: Arc<Lanes>,
    written: Mutex<HashSet<Vec<u8>>>,
    let_go: Notify,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link of which nobody knows where it leads, a device, a socket.
    Other,
}

/// What a path of a location is on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The path from the server's root, without `.`, `..` and slashes at its end.
    pub path: Bytes,
    /// What is there, if anything is.
    pub kind: Option<Kind>,
}

/// The directory nearest to a path, and what of the path is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The directory, from the server's root.
    pub directory: Bytes,
    /// The names below it, none if the path itself is that directory.
    pub rest: Vec<Bytes>,
    /// What is at the path, if anything is.
    pub kind: Option<Kind>,
}

impl FtpHost {
    /// A server; nothing is opened yet. `port` is 21 if it is not given, or 990 with implicit TLS.
    /// Its lanes live on `runtime`, which should have threads of its own: encryption is work.
    /// `prompter` is asked for a password that the options do not have.
    pub fn new(
        host: impl Into<String>,
        port: Option<u16>,
        options: FtpOptions,
        prompter: Arc<dyn Prompter>,
        runtime: Handle,
    ) -> Arc<Self> {
        let login = Login::new(host.into(), port, options, prompter);
        let (written, let_go) = (Mutex::default(), Notify::new());
        Arc::new(Self { lanes: Lanes::new(login, runtime), written, let_go })
    }

    /// Says that much is going to be moved: where the path is long, `lanes` lanes (8 at most) are
    /// opened side by side as soon as that is known.
    pub fn expect(&self, lanes: usize) {
        self.lanes.expect(lanes);
    }

    /// What it is called in errors.
    pub fn name(&self) -> String {
        self.lanes.host()
    }

    /// What the link looks like.
    pub fn link(&self) -> LinkStatus {
        self.lanes.status()
    }

    /// Where a path of a location is on the server, and what is there.
    ///
    /// # Errors
    /// Those of connecting and logging in; `InvalidInput` for a path that cannot be sent.
    pub async fn resolve(&self, path: &[u8]) -> Result<Resolved> {
        let server = self.server().await?;
        let path = absolute(&server.home, path);
        let found = self.look(&path).await.map_err(|error| self.at(error, &path))?;
        Ok(Resolved { kind: found.as_ref().map(kind), path: path.into() })
    }

    /// Where something is to be written: the directory nearest to `path` that is there. All
    /// directories on the way are asked for at once.
    ///
    /// # Errors
    /// Those of [`FtpHost::resolve`]; `NotADirectory` if something on the way is a file; `NotFound` if
    /// not even the server's root is a directory.
    pub async fn nearest(&self, path: &[u8]) -> Result<Nearest> {
        let server = self.server().await?;
        let path = absolute(&server.home, path);
        let ends = ends(&path);
        let mut commands = Vec::new();
        for end in &ends {
            let above = if *end == 0 { b"/" } else { &path[..*end] };
            commands.push(Command::new("CWD", above).map_err(|error| self.at(error, &path))?);
        }
        let replies = self.ask(&commands).await.map_err(|error| self.at(error, &path))?;
        // What is above may be nobody's business; the last one that can be entered decides.
        let last = replies.iter().rposition(Reply::is_done);
        let Some(end) = last.map(|last| ends[last]) else {
            return Err(self.at(Error::new(ErrorKind::NotFound, "open"), &path));
        };
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
        if rest.len() > 1 && found.is_none() {
            let first =
                [directory.strip_suffix(b"/").unwrap_or(directory), b"/", &rest[0]].concat();
            if self.look(&first).await.is_ok_and(|found| found.is_some()) {
                return Err(self.at(Error::new(ErrorKind::NotADirectory, "open"), &first));
            }
        }
        let directory = Bytes::copy_from_slice(directory);
        Ok(Nearest { directory, rest, kind: found.as_ref().map(kind) })
    }

    /// What the server can do.
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

    /// What is at a path of the server; `None` if nothing is.
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

    /// Asks for what can be done twice; again if the lane is lost meanwhile.
    pub(crate) async fn ask(&self, commands: &[Command]) -> Result<Vec<Reply>> {
        let mut tries = self.tries();
        loop {
            match self.tell(commands).await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// Asks for something to be done, once.
    pub(crate) async fn tell(&self, commands: &[Command]) -> Result<Vec<Reply>> {
        let mut lane: Lane = self.lanes.command().await?;
        lane.exchange(commands).await.map_err(|error| error.at(self.name()))
    }

    /// Counts the tries of something that can be done twice.
    pub(crate) fn tries(&self) -> Tries {
        let lessons = self.lanes.learnt().mark();
        Tries { lanes: Arc::clone(&self.lanes), failed: 0, tried: false, lessons }
    }

    /// Keeps others of this process from writing a part file. One that was given up a moment ago is
    /// still being closed, and is waited for.
    pub(crate) async fn begin_writing(self: &Arc<Self>, part: &[u8]) -> Result<Writing> {
        let begun = timeout(LETTING_GO, async {
            loop {
                let let_go = self.let_go.notified();
                if self.written().insert(part.to_vec()) {
                    return;
                }
                let_go.await;
            }
        });
        begun.await.map_err(|_| {
            Error::new(ErrorKind::Busy, "create").because("it is already being written")
        })?;
        Ok(Writing { host: Arc::clone(self), part: part.to_vec() })
    }

    /// The same without waiting; `None` if somebody writes it.
    pub(crate) fn try_begin_writing(self: &Arc<Self>, part: &[u8]) -> Option<Writing> {
        let begun = self.written().insert(part.to_vec());
        begun.then(|| Writing { host: Arc::clone(self), part: part.to_vec() })
    }

    fn written(&self) -> std::sync::MutexGuard<'_, HashSet<Vec<u8>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at(&self, error: Error, path: &[u8]) -> Error {
        error.at(format!("{}:{}", self.name(), String::from_utf8_lossy(path).escape_debug()))
    }
}

/// A part file is being written until this is dropped.
#[derive(Debug)]
pub(crate) struct Writing {
    host: Arc<FtpHost>,
    part: Vec<u8>,
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.host.written().remove(&self.part);
        self.host.let_go.notify_waiters();
    }
}

/// Counts how often something is tried that can be done twice.
#[derive(Debug)]
pub(crate) struct Tries {
    lanes: Arc<Lanes>,
    failed: usize,
    tried: bool,
    lessons: u32,
}

impl Tries {
    /// Whether to try again, after the pause that this takes: if the lane was lost or the server had
    /// too much to do, and not for ever. A host to which there never was a lane is waited for only if it
    /// says that it is busy: the connection of a command that has just ended may count there still. After
    /// a lesson it goes on at once.
    pub(crate) async fn again(&mut self, error: &Error) -> bool {
        self.tried = true;
        let lesson = self.lanes.learnt().since(&mut self.lessons);
        if lesson && (error.retry() == Retry::Later || error.kind() == ErrorKind::Unsupported) {
            return true;
        }
        let passes = match error.kind() {
            ErrorKind::Busy => error.retry() == Retry::Later,
            ErrorKind::Unreachable => error.retry() == Retry::Later && self.lanes.have_been_open(),
            _ => false,
        };
        let most = if self.lanes.have_been_open() { PAUSES_MS.len() } else { AT_FIRST };
        let pauses = &PAUSES_MS[..most];
        let Some(pause) = pauses.get(self.failed).filter(|_| passes) else { return false };
        self.failed += 1;
        sleep(Duration::from_millis(*pause)).await;
        true
    }

    /// Whether nothing has been tried before.
    pub(crate) const fn is_first(&self) -> bool {
        !self.tried
    }
}

const fn kind(found: &Found) -> Kind {
    match found.kind {
        EntryKind::File => Kind::File,
        EntryKind::Directory => Kind::Directory,
        EntryKind::Symlink(_) | EntryKind::Special(_) => Kind::Other,
    }
}

/// A path of a location from the server's root, without `.`, `..` and needless slashes.
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

/// Where a path and all above it end, from the top.
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
    fn a_path_begins_at_the_root_or_with_a_tilde_at_the_home() {
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
    fn all_directories_on_the_way_are_known() {
        assert_eq!(ends(b"/"), [0]);
        assert_eq!(ends(b"/a"), [0, 2]);
        assert_eq!(ends(b"/a/bc"), [0, 2, 5]);
    }
}
