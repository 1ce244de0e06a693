//! A directory of a server as a [`Storage`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Entry, EntryKind, EntryStream, Error, ErrorKind,
    LinkKind, LinkStatus, Location, Lock, Medium, Metadata, ReadAt, RelPath, Result, SmallFile,
    Storage, StorageExt, Whole, WriteAt, Writes,
};

use super::error;
use super::exchange::Exchange;
use super::facts::Facts;
use super::file::{HttpFile, Opened, whole};
use super::host::HttpHost;
use crate::parse::Url;
use crate::parse::href::encode_path;

/// Files up to this length are fetched and stored by one request.
const WHOLE: u64 = 256 << 10;

/// What is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Files that can be read, and pages that list them.
    Web,
    /// WebDAV (RFC 4918).
    Dav,
}

/// A directory of a server.
#[derive(Debug)]
pub struct HttpStorage {
    pub(super) inner: Arc<Inner>,
}

/// What the storage and its listings share.
#[derive(Debug)]
pub struct Inner {
    pub(super) host: Arc<HttpHost>,
    pub(super) location: Location,
    /// The directory; it ends with a slash.
    pub(super) root: Url,
    pub(super) manner: Manner,
    pub(super) capabilities: Capabilities,
    /// Files that were opened when they were looked at, for who opens them next.
    opened: Mutex<HashMap<RelPath, HttpFile>>,
    /// URLs that are not what the path says: of what was given with a query.
    given: Mutex<HashMap<RelPath, Url>>,
}

impl HttpStorage {
    /// The directory at `root`. `ranged`: parts of its files can be asked for.
    pub fn new(
        host: Arc<HttpHost>,
        location: Location,
        root: Url,
        manner: Manner,
        ranged: bool,
    ) -> Arc<Self> {
        let dav = manner == Manner::Dav;
        let capabilities = Capabilities {
            medium: Medium::Link,
            ranged_reads: ranged,
            writes: Writes::InOrder,
            rename: dav,
            server_copy: dav,
            symlinks: false,
            hard_links: false,
            sync: false,
            resume: false,
            lock: false,
            times: false,
            time_precision_ns: 1_000_000_000,
            mode: false,
            owner: false,
            xattrs: false,
            digests: Vec::new(),
            pipelined: true,
            max_lanes: None,
            max_file_size: None,
            whole_limit: WHOLE,
        };
        Arc::new(Self {
            inner: Arc::new(Inner {
                host,
                location,
                root,
                manner,
                capabilities,
                opened: Mutex::default(),
                given: Mutex::default(),
            }),
        })
    }

    /// A file that was found open already, and where it is, if its path does not say that.
    pub fn put(&self, path: RelPath, file: HttpFile, given: Option<Url>) {
        if let Some(url) = given {
            self.inner.given().insert(path.clone(), url);
        }
        self.inner.opened().insert(path, file);
    }
}

impl Inner {
    pub(super) fn exchange(&self) -> &Arc<Exchange> {
        self.host.exchange()
    }

    /// The URL of a file.
    pub(super) fn url(&self, path: &RelPath) -> Url {
        if let Some(given) = self.given().get(path) {
            return given.clone();
        }
        let target = format!("{}{}", self.root.path(), encode_path(path.as_bytes()));
        self.root.with_path(&target)
    }

    /// The URL of a directory, with the slash that makes it one.
    pub(super) fn directory_url(&self, path: &RelPath) -> Url {
        if path.is_root() {
            return self.root.clone();
        }
        let target = format!("{}{}/", self.root.path(), encode_path(path.as_bytes()));
        self.root.with_path(&target)
    }

    /// An error that names the place as the user knows it.
    pub(super) fn unsupported(&self, operation: &'static str, path: &RelPath) -> Error {
        Error::new(ErrorKind::Unsupported, operation).at(self.location.display(path))
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<RelPath, HttpFile>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn given(&self) -> MutexGuard<'_, HashMap<RelPath, Url>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Storage for HttpStorage {
    fn location(&self) -> &Location {
        &self.inner.location
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    fn set_lanes(&self, lanes: usize) {
        self.inner.host.wish(lanes);
    }

    fn link(&self) -> LinkStatus {
        self.inner.host.link()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        if let Some(file) = self.inner.opened().get(path) {
            return Ok(file.facts().entry(path));
        }
        if path.is_root() {
            return Ok(Entry::new(path.clone(), EntryKind::Directory, 0));
        }
        self.inner.look(path).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        Arc::clone(&self.inner).list(path).await
    }

    async fn create_dir(&self, path: &RelPath) -> Result<()> {
        Err(self.inner.unsupported("create directory", path))
    }

    async fn create_link(&self, path: &RelPath, _link: &LinkKind, _replace: bool) -> Result<()> {
        Err(self.inner.unsupported("create link", path))
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        Err(self.inner.unsupported("remove", path))
    }

    async fn rename(&self, from: &RelPath, _to: &RelPath) -> Result<()> {
        Err(self.inner.unsupported("rename", from))
    }

    async fn copy(&self, from: &RelPath, _to: &RelPath) -> Result<()> {
        Err(self.inner.unsupported("copy", from))
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        Ok(self.stat(path).await?.metadata())
    }

    async fn set_metadata(&self, path: &RelPath, _metadata: &Metadata) -> Result<()> {
        self.stat(path).await.map(drop)
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let opened = self.inner.opened().remove(path);
        if let Some(file) = opened {
            return Ok(Arc::new(file));
        }
        let url = self.inner.url(path);
        match HttpFile::open(self.inner.exchange(), &url, true).await? {
            Opened::File(file) => Ok(Arc::new(file)),
            Opened::Page(answer) => {
                answer.drain().await;
                let error = Error::new(ErrorKind::IsADirectory, "open");
                Err(error.at(self.inner.location.display(path)))
            }
        }
    }

    async fn create(&self, path: &RelPath, _options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        Err(self.inner.unsupported("write", path))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let at = || self.inner.location.display(path);
        let mut answer = self.inner.exchange().patiently(&whole(&self.inner.url(path))).await?;
        if !answer.status.is_success() {
            let error = error::of_status(answer.status, "read", &answer.url);
            answer.drain().await;
            return Err(error);
        }
        let mut facts = Facts::of(&answer, "read")?;
        let longer = || {
            Error::new(ErrorKind::Changed, "read")
                .at(at())
                .because(format!("it has become longer than {limit} bytes"))
        };
        if facts.size.is_some_and(|size| size > limit) {
            return Err(longer());
        }
        let mut bytes = Vec::new();
        while let Some(next) = answer.next("read").await? {
            if (bytes.len() + next.len()) as u64 > limit {
                return Err(longer());
            }
            bytes.extend_from_slice(&next);
        }
        let size = *facts.size.get_or_insert(bytes.len() as u64);
        if size != bytes.len() as u64 {
            return Err(Error::new(ErrorKind::Unreachable, "read")
                .at(at())
                .because(format!("the answer ends after {} of {size} bytes", bytes.len())));
        }
        let identity = facts.identity();
        let metadata = Metadata { modified: identity.modified, ..Metadata::default() };
        Ok(Whole { bytes: bytes.into(), identity, metadata })
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        _bytes: Bytes,
        _options: &CommitOptions,
    ) -> Result<()> {
        Err(self.inner.unsupported("write", path))
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        self.read_each(paths, limit).await
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        self.write_each(files).await
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        Err(self.inner.unsupported("lock", path))
    }
}
