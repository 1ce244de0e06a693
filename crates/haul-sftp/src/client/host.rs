//! One server, as everything that asks it sees it: lanes, and what is known of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, LinkStatus, Result, Retry, part_name};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::attributes::{Attributes, Warn};
use super::error;
use super::lanes::Lanes;
use super::patience::SILENCE;
use super::prefetch;
use super::quirks::Quirks;
use super::server::Server;
use super::session::{Room, Session};
use crate::codec::{Extended, FileKind, Request, Response, Status, name};
use crate::transport::Dial;

/// The pauses before what can be done twice is tried again when its lane is lost: at once, and then
/// for as long as a server takes to be restarted.
const PAUSES_MS: [u64; 7] = [0, 250, 500, 1000, 2000, 4000, 8000];

/// One server with its lanes. Several storages can be on it.
#[derive(Debug)]
pub struct SftpHost {
    pub(super) lanes: Arc<Lanes>,
    pub(super) quirks: Quirks,
    pub(super) attributes: Attributes,
}

/// What a path of a location is on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The path from the server's root, links resolved as far as it exists.
    pub path: Bytes,
    /// What is there, links followed.
    pub kind: Option<FileKind>,
}

/// The directory nearest to a path, and what of the path is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The directory, from the server's root and without links.
    pub directory: Bytes,
    /// The names below it, none if the path itself is that directory.
    pub rest: Vec<Bytes>,
    /// What is at the path; a link is followed.
    pub kind: Option<FileKind>,
    /// Whether anything is there, even if it is a link that leads nowhere.
    pub exists: bool,
}

impl SftpHost {
    /// A server that is reached by `dial`; nothing is opened yet. Its lanes live on `runtime`, which
    /// should have threads of its own: encryption is work.
    pub fn new(dial: Arc<dyn Dial>, runtime: Handle) -> Arc<Self> {
        let (quirks, attributes) = (Quirks::default(), Attributes::default());
        Arc::new(Self { lanes: Lanes::new(dial, runtime), quirks, attributes })
    }

    /// Says that much is going to be moved: where the path is long, `lanes` lanes (8 at most) are
    /// opened side by side from the beginning.
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

    /// Round trips that opening the first lane took.
    pub fn round_trips(&self) -> u32 {
        self.lanes.round_trips()
    }

    /// What a path as users write it is on the server, and what is there: without a leading slash
    /// it is below the home, as is what follows `~/`. Both requests share an RTT.
    ///
    /// # Errors
    /// If the server refuses, or cannot be reached.
    pub async fn resolve(&self, path: &[u8]) -> Result<Resolved> {
        let mut tries = self.tries();
        loop {
            match self.try_resolve(path).await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    async fn try_resolve(&self, path: &[u8]) -> Result<Resolved> {
        if !path_on_server(path).starts_with(b"~") {
            let asked = Bytes::copy_from_slice(path_on_server(path));
            self.lanes.prefetch_source(&asked);
        }
        let session = self.lanes.lead().await?;
        let asked = self.asked(&session, path).await?;
        let absolute = session.request_or_prefetched(&Request::Realpath(asked.clone()));
        let there = session.request_or_prefetched(&Request::Stat(asked.clone()));
        let absolute = absolute.answer().await?;
        let kind = self.kind("open", there.answer().await?, &asked)?;
        let path = match absolute {
            // Some servers have no realpath for what does not exist.
            Response::Status { .. } if kind.is_none() => asked.clone(),
            other => self.absolute(other, &asked)?,
        };
        self.lanes.resolved(asked, path.clone());
        Ok(Resolved { path, kind })
    }

    /// Where something is to be written: the directory nearest to `path` that is there. All
    /// directories on the way are asked for at once. If `path` is a directory, a file `name` in it is
    /// likely to be written, and what that needs to know is requested with it.
    ///
    /// # Errors
    /// If the server refuses, or cannot be reached.
    pub async fn nearest(&self, path: &[u8], name: Option<&[u8]>) -> Result<Nearest> {
        let mut tries = self.tries();
        loop {
            match self.try_nearest(path, name).await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    async fn try_nearest(&self, path: &[u8], name: Option<&[u8]>) -> Result<Nearest> {
        if !path_on_server(path).starts_with(b"~") {
            let asked = trimmed(&Bytes::copy_from_slice(path_on_server(path)));
            let names = name.map(|name| [part_name(name), name.to_vec()]);
            let names = names.as_ref().map_or(&[][..], |names| names);
            self.lanes.prefetch(prefetch::of_destination(&asked, &prefixes(&asked), names));
        }
        let session = self.lanes.lead().await?;
        let asked = trimmed(&self.asked(&session, path).await?);
        let prefixes = prefixes(&asked);
        let questions: Vec<_> = prefixes
            .iter()
            .map(|(prefix, _)| {
                let absolute = session.request_or_prefetched(&Request::Realpath(prefix.clone()));
                (absolute, session.request_or_prefetched(&Request::Stat(prefix.clone())))
            })
            .collect();
        let itself = session.request_or_prefetched(&Request::Lstat(asked.clone()));
        let mut nearest = None;
        let mut kind = None;
        for ((prefix, after), (absolute, there)) in prefixes.iter().zip(questions) {
            let absolute = absolute.answer().await?;
            let there = there.answer().await?;
            let hidden = Status::PermissionDenied;
            if *after < asked.len()
                && matches!(there, Response::Status { status, .. } if status == hidden)
            {
                // What is above may be nobody's business; what is below decides.
                continue;
            }
            kind = self.kind("open", there, prefix)?;
            if kind == Some(FileKind::Directory) {
                nearest = Some((self.absolute(absolute, prefix)?, *after));
            } else if kind.is_some() && !names(&asked[*after..]).is_empty() {
                let error = Error::new(ErrorKind::NotADirectory, "open");
                return Err(self.at(error, prefix));
            }
        }
        let exists = matches!(itself.answer().await?, Response::Attrs(_));
        let Some((directory, after)) = nearest else {
            return Err(self.at(Error::new(ErrorKind::NotFound, "open"), &asked));
        };
        let rest = names(&asked[after..]);
        if rest.iter().any(|name| &name[..] == b"..") {
            // What `..` means below something that does not exist, nobody can say.
            return Err(self.at(Error::new(ErrorKind::NotFound, "open"), &asked));
        }
        if rest.is_empty() {
            self.lanes.resolved(asked, directory.clone());
        }
        Ok(Nearest { directory, rest, kind, exists })
    }

    /// A path in the server's terms.
    async fn asked(&self, session: &Session, path: &[u8]) -> Result<Bytes> {
        let asked = Bytes::copy_from_slice(path_on_server(path));
        let other_home = path.starts_with(b"~") && asked.starts_with(b"~");
        if other_home { self.expand(session, &asked).await } else { Ok(asked) }
    }

    fn kind(
        &self,
        operation: &'static str,
        answer: Response,
        path: &[u8],
    ) -> Result<Option<FileKind>> {
        match answer {
            Response::Status { status: Status::NoSuchFile, .. } => Ok(None),
            other => {
                let attrs = error::attrs(operation, other).map_err(|e| self.at(e, path))?;
                Ok(Some(attrs.kind().unwrap_or(FileKind::File)))
            }
        }
    }

    fn absolute(&self, answer: Response, asked: &[u8]) -> Result<Bytes> {
        if let Response::Status { .. } = answer
            && asked.starts_with(b"/")
        {
            // Some servers have no realpath; such a path needs none.
            return Ok(Bytes::copy_from_slice(asked));
        }
        let name = error::one_name("resolve", answer).map_err(|e| self.at(e, asked))?.name;
        if !name.starts_with(b"/") {
            let error = Error::new(ErrorKind::Protocol, "resolve")
                .because("the server gave a path without a leading slash");
            return Err(self.at(error, asked));
        }
        Ok(name)
    }

    /// `~user` needs a server that knows how.
    async fn expand(&self, session: &Session, path: &Bytes) -> Result<Bytes> {
        if !session.server().await?.extensions.has(name::EXPAND_PATH) {
            return Err(Error::new(ErrorKind::Unsupported, "resolve")
                .at(self.lanes.host())
                .because("the server knows no other user's home (expand-path@openssh.com)"));
        }
        let request = Request::Extended(Extended::ExpandPath(path.clone()));
        let answer = session.request(&request).answer().await?;
        Ok(error::one_name("resolve", answer).map_err(|e| self.at(e, path))?.name)
    }

    /// The lane with the least to do.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        Ok(Arc::clone(&*self.choose(0).await?))
    }

    /// The lane with the least to do, for `bytes` that are going to be moved on it.
    pub(super) async fn choose(&self, bytes: u64) -> Result<Room> {
        self.lanes.choose(bytes).await
    }

    /// What the server can do.
    pub(super) async fn server(&self) -> Result<Arc<Server>> {
        let mut tries = self.tries();
        loop {
            match self.try_server().await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    async fn try_server(&self) -> Result<Arc<Server>> {
        let session = self.session().await?;
        self.quirks.learn_name(&session.identification);
        session.server().await
    }

    /// Asks for what can be done twice; again if the lane is lost meanwhile.
    pub(super) async fn ask(&self, request: &Request) -> Result<Response> {
        let mut tries = self.tries();
        loop {
            match self.tell(request).await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// What was found at a path when it was resolved a moment ago, once.
    pub(super) async fn prefetched(&self, request: &Request) -> Option<Response> {
        self.lanes.ahead(request)?.prefetched(request)?.answer().await.ok()
    }

    /// Asks for something to be done, once.
    pub(super) async fn tell(&self, request: &Request) -> Result<Response> {
        self.session().await?.request(request).answer().await
    }

    /// Counts the tries of something that can be done twice.
    pub(super) fn tries(&self) -> Tries {
        Tries { lanes: Arc::clone(&self.lanes), failed: 0, since: Instant::now() }
    }

    fn at(&self, error: Error, path: &[u8]) -> Error {
        error.at(format!("{}:{}", self.lanes.host(), String::from_utf8_lossy(path)))
    }
}

/// Counts how often something is tried that can be done twice.
#[derive(Debug)]
pub(super) struct Tries {
    lanes: Arc<Lanes>,
    failed: usize,
    /// When the present try began.
    since: Instant,
}

impl Tries {
    /// Whether to try again, after the pause that this takes: if the lane was lost or the server had
    /// too much to do, and not for ever. A host to which there never was a lane is not waited for.
    pub(super) async fn again(&mut self, error: &Error) -> bool {
        let passes = match error.kind() {
            ErrorKind::Busy => error.retry() == Retry::Later,
            ErrorKind::Unreachable => error.retry() == Retry::Later && self.lanes.have_been_open(),
            _ => false,
        };
        let Some(pause) = PAUSES_MS.get(self.failed).filter(|_| passes) else { return false };
        if self.since.elapsed() >= SILENCE && self.failed > 0 {
            // Silence on a second lane: the server, not the lane.
            return false;
        }
        self.failed += 1;
        sleep(Duration::from_millis(*pause)).await;
        self.since = Instant::now();
        true
    }

    /// Whether anything has been tried before.
    pub(super) const fn is_first(&self) -> bool {
        self.failed == 0
    }
}

/// A path as users write it in the server's terms: what is below the home is relative there.
fn path_on_server(path: &[u8]) -> &[u8] {
    // `sftp://host/~/x` is `/~/x`, scp's `host:~/x` is `~/x`.
    let below_home = path.strip_prefix(b"/~/").or_else(|| path.strip_prefix(b"~/"));
    match below_home {
        Some(b"") => b".",
        Some(rest) => rest,
        None if matches!(path, b"" | b"~" | b"/~") => b".",
        None => path,
    }
}

/// A path without slashes at its end.
fn trimmed(path: &Bytes) -> Bytes {
    let last = path.iter().rposition(|byte| *byte != b'/');
    path.slice(..last.map_or(path.len().min(1), |last| last + 1))
}

/// A path and all above it, from the top, each with where what follows it begins.
fn prefixes(path: &Bytes) -> Vec<(Bytes, usize)> {
    let mut prefixes = Vec::new();
    if path.starts_with(b"/") {
        prefixes.push((path.slice(..1), 1));
    } else {
        prefixes.push((Bytes::from_static(b"."), 0));
    }
    for (at, byte) in path.iter().enumerate() {
        if *byte == b'/' && at > 0 && path[at - 1] != b'/' {
            prefixes.push((path.slice(..at), at));
        }
    }
    if !path.ends_with(b"/") && !path.is_empty() && &path[..] != b"." {
        prefixes.push((path.clone(), path.len()));
    }
    prefixes
}

/// The names in a path.
fn names(path: &[u8]) -> Vec<Bytes> {
    let names = path.split(|byte| *byte == b'/');
    let names = names.filter(|name| !name.is_empty() && *name != b".");
    names.map(Bytes::copy_from_slice).collect()
}

impl SftpHost {
    /// Remembers from one run to the next, in a file of its own in `directory`, which attributes the server
    /// refuses to set. To be called before anything is opened.
    pub fn remember_in(&self, directory: &Path) {
        // The name of the file does not tell the host's.
        let name = blake3::hash(self.name().as_bytes()).to_hex();
        self.attributes.remember_in(directory.join(&name[..32]));
    }

    /// Passes warnings about the server to `warn`, each once.
    pub fn warn_through(&self, warn: Warn) {
        self.attributes.warn_through(warn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_directories_on_the_way_are_asked_for() {
        let of = |path: &'static str| {
            let found = prefixes(&Bytes::from_static(path.as_bytes()));
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let pairs = found
                .iter()
                .map(|(prefix, after)| (text(prefix), text(&path.as_bytes()[*after..])));
            pairs.collect::<Vec<_>>()
        };
        let pairs = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(of("/"), pairs(&[("/", "")]));
        assert_eq!(of("."), pairs(&[(".", ".")]));
        assert_eq!(of("/a/b"), pairs(&[("/", "a/b"), ("/a", "/b"), ("/a/b", "")]));
        assert_eq!(of("a//b"), pairs(&[(".", "a//b"), ("a", "//b"), ("a//b", "")]));
        assert_eq!(names(b"//b/./c"), ["b", "c"]);
    }

    #[test]
    fn the_home_is_where_the_server_starts() {
        for (written, asked) in [
            ("", "."),
            ("~", "."),
            ("~/", "."),
            ("/~", "."),
            ("/~/a/b", "a/b"),
            ("~/a", "a"),
            ("a", "a"),
            ("/a", "/a"),
            ("~ada/x", "~ada/x"),
        ] {
            assert_eq!(path_on_server(written.as_bytes()), asked.as_bytes(), "{written}");
        }
    }
}
