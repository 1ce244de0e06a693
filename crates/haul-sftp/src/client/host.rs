//! An SFTP server: its lanes, its quirks, and the mapping of paths in locations to paths on the server.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, LinkStatus, Result, Retry};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::attributes::{Attributes, Warn};
use super::error;
use super::lanes::Lanes;
use super::prefetch;
use super::quirks::Quirks;
use super::server::Server;
use super::session::{Room, Session};
use crate::codec::{Extended, FileKind, Request, Response, Status, name};
use crate::transport::Dial;

/// Pauses before the retries of an idempotent operation whose lane was lost, or whose server was busy: 15.75 s in
/// total, about as long as a server takes to restart.
const PAUSES_MS: [u64; 7] = [0, 250, 500, 1000, 2000, 4000, 8000];

/// A server with its lanes, shared by any number of storages.
#[derive(Debug)]
pub struct SftpHost {
    pub(super) lanes: Arc<Lanes>,
    pub(super) quirks: Quirks,
    pub(super) attributes: Attributes,
}

/// A path of a location, resolved on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The absolute path on the server, with links resolved as far as the path exists. If the server refuses
    /// REALPATH, the path as requested; for a relative path that exists, `resolve` fails then.
    pub path: Bytes,
    /// The type of the entry at the path, after following links; `None` if there is none.
    pub kind: Option<FileKind>,
}

/// The nearest existing directory of a path, and the rest of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    /// The absolute path of the directory on the server, without links. An absolute path stays as requested
    /// if the server refuses REALPATH.
    pub directory: Bytes,
    /// The remaining names below it; empty if the path itself is that directory.
    pub rest: Vec<Bytes>,
    /// The type of the entry at the path, after following links; `None` if there is none.
    pub kind: Option<FileKind>,
    /// Whether the path exists, if only as a dangling link.
    pub exists: bool,
}

impl SftpHost {
    /// A server that is reached by `dial`; no connection is opened yet. The lanes run on `runtime`, which
    /// should have its own threads, because encryption takes CPU time.
    pub fn new(dial: Arc<dyn Dial>, runtime: Handle) -> Arc<Self> {
        let (quirks, attributes) = (Quirks::default(), Attributes::default());
        Arc::new(Self { lanes: Lanes::new(dial, runtime), quirks, attributes })
    }

    /// Announces a large transfer: if the path is long, `lanes` lanes (at most 8) are opened concurrently as
    /// soon as the RTT is known.
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

    /// Number of RTTs that opening the first lane took.
    pub fn rtts(&self) -> u32 {
        self.lanes.rtts()
    }

    /// Resolves a path of a location on the server, and looks up the entry there, in one RTT. A path without
    /// a leading slash, or after `~/`, is relative to the home directory.
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
            let requested = Bytes::copy_from_slice(path_on_server(path));
            self.lanes.prefetch_source(&requested);
        }
        let session = self.lanes.lead().await?;
        let requested = self.requested(&session, path).await?;
        let absolute = session.request_or_prefetched(&Request::Realpath(requested.clone()));
        let found = session.request_or_prefetched(&Request::Stat(requested.clone()));
        let absolute = absolute.response().await?;
        let kind = self.kind("open", found.response().await?, &requested)?;
        let path = match absolute {
            // Some servers refuse REALPATH for a path that does not exist.
            Response::Status { .. } if kind.is_none() => requested.clone(),
            other => self.absolute(other, &requested)?,
        };
        self.lanes.resolved(requested, path.clone());
        Ok(Resolved { path, kind })
    }

    /// Finds the nearest existing directory of a path that will be written. The requests for all its
    /// ancestors are sent at once. If `path` is a directory, a file `name` will probably be written in it, so its
    /// lookup is prefetched too.
    ///
    /// # Errors
    /// `NotADirectory` if an ancestor is not a directory; `NotFound` if the server shows no directory of the path, or
    /// if `..` follows one that does not exist. Also if the server refuses, or cannot be reached.
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
            let requested = trimmed(&Bytes::copy_from_slice(path_on_server(path)));
            self.lanes.prefetch(prefetch::of_destination(&requested, &prefixes(&requested), name));
        }
        let session = self.lanes.lead().await?;
        let requested = trimmed(&self.requested(&session, path).await?);
        let prefixes = prefixes(&requested);
        let requests: Vec<_> = prefixes
            .iter()
            .map(|(prefix, _)| {
                let absolute = session.request_or_prefetched(&Request::Realpath(prefix.clone()));
                (absolute, session.request_or_prefetched(&Request::Stat(prefix.clone())))
            })
            .collect();
        let itself = session.request_or_prefetched(&Request::Lstat(requested.clone()));
        let mut nearest = None;
        let mut kind = None;
        for ((prefix, after), (absolute, found)) in prefixes.iter().zip(requests) {
            let absolute = absolute.response().await?;
            let found = found.response().await?;
            let hidden = Status::PermissionDenied;
            if *after < requested.len()
                && matches!(found, Response::Status { status, .. } if status == hidden)
            {
                // The server may deny access to ancestors; the last directory that is accessible counts.
                continue;
            }
            kind = self.kind("open", found, prefix)?;
            if kind == Some(FileKind::Directory) {
                nearest = Some((self.absolute(absolute, prefix)?, *after));
            } else if kind.is_some() && !names(&requested[*after..]).is_empty() {
                let error = Error::new(ErrorKind::NotADirectory, "open");
                return Err(self.at(error, prefix));
            }
        }
        let exists = matches!(itself.response().await?, Response::Attrs(_));
        let Some((directory, after)) = nearest else {
            return Err(self.at(Error::new(ErrorKind::NotFound, "open"), &requested));
        };
        let rest = names(&requested[after..]);
        if rest.iter().any(|name| &name[..] == b"..") {
            // `..` has no meaning below a directory that does not exist.
            return Err(self.at(Error::new(ErrorKind::NotFound, "open"), &requested));
        }
        if rest.is_empty() {
            self.lanes.resolved(requested, directory.clone());
        }
        Ok(Nearest { directory, rest, kind, exists })
    }

    /// The path to send for a path of a location.
    async fn requested(&self, session: &Session, path: &[u8]) -> Result<Bytes> {
        let requested = Bytes::copy_from_slice(path_on_server(path));
        let other_home = path.starts_with(b"~") && requested.starts_with(b"~");
        if other_home { self.expand(session, &requested).await } else { Ok(requested) }
    }

    fn kind(
        &self,
        operation: &'static str,
        response: Response,
        path: &[u8],
    ) -> Result<Option<FileKind>> {
        match response {
            Response::Status { status: Status::NoSuchFile, .. } => Ok(None),
            other => {
                let attrs = error::attrs(operation, other).map_err(|e| self.at(e, path))?;
                Ok(Some(attrs.kind().unwrap_or(FileKind::File)))
            }
        }
    }

    fn absolute(&self, response: Response, requested: &[u8]) -> Result<Bytes> {
        if let Response::Status { .. } = response
            && requested.starts_with(b"/")
        {
            // Some servers do not support REALPATH; an absolute path does not need it.
            return Ok(Bytes::copy_from_slice(requested));
        }
        let name = error::one_name("resolve", response).map_err(|e| self.at(e, requested))?.name;
        if !name.starts_with(b"/") {
            let error = Error::new(ErrorKind::Protocol, "resolve")
                .because("the server gave a path without a leading slash");
            return Err(self.at(error, requested));
        }
        Ok(name)
    }

    /// Resolves `~user`, if the server supports that.
    async fn expand(&self, session: &Session, path: &Bytes) -> Result<Bytes> {
        if !session.server().await?.extensions.has(name::EXPAND_PATH) {
            return Err(Error::new(ErrorKind::Unsupported, "resolve")
                .at(self.lanes.host())
                .because("the server knows no other user's home (expand-path@openssh.com)"));
        }
        let request = Request::Extended(Extended::ExpandPath(path.clone()));
        let response = session.request(&request).response().await?;
        Ok(error::one_name("resolve", response).map_err(|e| self.at(e, path))?.name)
    }

    /// The least loaded lane.
    pub(super) async fn session(&self) -> Result<Arc<Session>> {
        Ok(Arc::clone(&*self.choose(0).await?))
    }

    /// The least loaded lane, with `bytes` bytes reserved on it.
    pub(super) async fn choose(&self, bytes: u64) -> Result<Room> {
        self.lanes.choose(bytes).await
    }

    /// The capabilities of the server; connects if they are not known yet.
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

    /// Sends an idempotent request, and retries if the lane is lost or the server is busy ([`Tries`]).
    pub(super) async fn request_with_retries(&self, request: &Request) -> Result<Response> {
        let mut tries = self.tries();
        loop {
            match self.request_once(request).await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    /// The prefetched response to `request`, if there is one that is still valid. It is returned only once.
    pub(super) async fn prefetched(&self, request: &Request) -> Option<Response> {
        self.lanes.ahead(request)?.prefetched(request)?.response().await.ok()
    }

    /// Sends a request without retrying.
    pub(super) async fn request_once(&self, request: &Request) -> Result<Response> {
        self.session().await?.request(request).response().await
    }

    /// A retry counter for an idempotent operation.
    pub(super) fn tries(&self) -> Tries {
        Tries {
            lanes: Arc::clone(&self.lanes),
            failed: 0,
            since: Instant::now(),
            silence: self.lanes.silence(),
        }
    }

    fn at(&self, error: Error, path: &[u8]) -> Error {
        error.at(format!("{}:{}", self.lanes.host(), String::from_utf8_lossy(path)))
    }
}

/// Decides about the retries of an idempotent operation.
#[derive(Debug)]
pub(super) struct Tries {
    lanes: Arc<Lanes>,
    /// Retries so far.
    failed: usize,
    /// When the current try began.
    since: Instant,
    /// How long a lane of the host may be silent.
    silence: Duration,
}

impl Tries {
    /// Decides whether to retry after `error`, and waits for the pause before the retry.
    ///
    /// Retries a limited number of times if the lane was lost or the server is busy, but not after a retry that took
    /// at least as long as a lane may be silent. Before the first lane has been opened, only a busy server is retried.
    pub(super) async fn again(&mut self, error: &Error) -> bool {
        let is_transient = match error.kind() {
            ErrorKind::Busy => error.retry() == Retry::Later,
            ErrorKind::Unreachable => error.retry() == Retry::Later && self.lanes.have_been_open(),
            _ => false,
        };
        let Some(pause) = PAUSES_MS.get(self.failed).filter(|_| is_transient) else { return false };
        if self.since.elapsed() >= self.silence && self.failed > 0 {
            // Probably the lane of the retry was silent: the server is to blame, not the lane.
            return false;
        }
        self.failed += 1;
        sleep(Duration::from_millis(*pause)).await;
        self.since = Instant::now();
        true
    }

    /// The operation has made progress, so its next failure counts as the first.
    pub(super) fn progressed(&mut self) {
        (self.failed, self.since) = (0, Instant::now());
    }

    /// Whether this is the first try.
    pub(super) const fn is_first(&self) -> bool {
        self.failed == 0
    }
}

/// Converts a path of a location to the path to send. A path below the home directory becomes relative.
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

/// A path without trailing slashes.
fn trimmed(path: &Bytes) -> Bytes {
    let last = path.iter().rposition(|byte| *byte != b'/');
    path.slice(..last.map_or(path.len().min(1), |last| last + 1))
}

/// All ancestors of a path and the path itself, from the top down, each with the offset of the rest of the
/// path.
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
    /// Remembers across runs, in a file of its own in `directory`, which attributes the server refuses to
    /// set. Call it before opening anything.
    pub fn remember_in(&self, directory: &Path) {
        // The file name does not reveal the name of the host.
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
    fn a_path_is_split_into_all_its_ancestors() {
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
    fn a_path_below_the_home_directory_is_sent_as_relative() {
        for (written, sent) in [
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
            assert_eq!(path_on_server(written.as_bytes()), sent.as_bytes(), "{written}");
        }
    }
}
