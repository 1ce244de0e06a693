//! A directory of a server as a [`Storage`].
//!
//! Reading is the same for web servers and WebDAV; listing and writing are in modules of their own. A
//! WebDAV storage leaves ETags out of identities that have a modification time, see [`super::dav::entry`];
//! they are still compared while a file is read.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryKind, EntryStream,
    Error, ErrorKind, LinkKind, LinkStatus, Location, Lock, Metadata, Range, ReadAt, RelPath,
    Result, SmallFile, Space, Storage, StorageExt, Uploads, Whole, WriteAt,
};

use super::error;
use super::facts::Facts;
use super::file::{Codings, HttpFile, Opened};
use super::host::HttpHost;
use super::inner::{Files, Inner, Learnt, ServerKind};
use super::list::index;
use super::quirks::{Quirks, of_web};
use super::remote::whole;
use super::space;
use super::upload;
use crate::parse::Url;

/// Levels of directories that are searched for a file that shows whether the server supports ranges.
const PROBED: usize = 4;

/// Maximum bytes requested along with an open. They are in flight without a permit of the engine.
const MOST_FIRST: u64 = 1 << 20;

/// A directory of a server.
#[derive(Debug)]
pub struct HttpStorage {
    pub(super) inner: Arc<Inner>,
}

impl HttpStorage {
    /// The directory at `root` of a server with index pages. `ranged`: ranges of its files can be
    /// requested.
    pub fn open_web(host: Arc<HttpHost>, location: Location, root: Url, ranged: bool) -> Arc<Self> {
        let quirks = Quirks::unknown();
        Self::with(host, location, root, ServerKind::Web, quirks, of_web(ranged), None)
    }

    /// As [`HttpStorage::open_web`] if support for ranges is unknown: the first file that is not empty shows it.
    pub async fn open_web_directory(
        host: Arc<HttpHost>,
        location: Location,
        root: Url,
    ) -> Arc<Self> {
        let storage = Self::open_web(Arc::clone(&host), location.clone(), root.clone(), true);
        match storage.has_ranges().await {
            Some(false) => Self::open_web(host, location, root, false),
            _ => storage,
        }
    }

    /// Whether ranges of its files can be requested. `None`: there is no file near its root, or a request
    /// failed; listing it or opening the file will report that.
    async fn has_ranges(&self) -> Option<bool> {
        let mut directory = RelPath::root();
        for _ in 0..PROBED {
            let first = index::first(&self.inner, &directory).await.ok()??;
            if first.is_dir() {
                directory = first.path;
                continue;
            }
            let url = self.inner.url(&first.path);
            return match HttpFile::open(self.inner.exchange(), &url, true).await {
                // A small file may be sent whole although the server supports ranges.
                Ok(Opened::File(file)) => {
                    Some(file.is_ranged() || file.facts().ranged == Some(true))
                }
                _ => None,
            };
        }
        None
    }

    /// The directory at `root` of a WebDAV server, whose features are requested. `journals` is a directory
    /// of this machine for the journals of unfinished uploads.
    ///
    /// # Errors
    /// The server cannot be reached, sign-in fails, or the server reports a transient failure.
    pub async fn open_dav(
        host: Arc<HttpHost>,
        location: Location,
        root: Url,
        journals: Option<PathBuf>,
    ) -> Result<Arc<Self>> {
        let quirks = Quirks::of(&host.options_headers(&root).await?, &root);
        let capabilities = quirks.capabilities();
        Ok(Self::with(host, location, root, ServerKind::Dav, quirks, capabilities, journals))
    }

    fn with(
        host: Arc<HttpHost>,
        location: Location,
        root: Url,
        server_kind: ServerKind,
        quirks: Quirks,
        capabilities: Capabilities,
        journals: Option<PathBuf>,
    ) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::new(Inner {
                host,
                location,
                root,
                server_kind,
                quirks,
                capabilities,
                uploads: Uploads::new(journals),
                learnt: Learnt::default(),
                files: Files::default(),
            }),
        })
    }

    /// Adds a file that is open already; `given` is its URL if that does not follow from its path.
    pub fn put(&self, path: RelPath, file: HttpFile, given: Option<Url>) {
        if let Some(url) = given {
            self.inner.given().insert(path.clone(), url);
        }
        self.inner.named().insert(path.clone());
        self.inner.opened().insert(path, self.inner.as_listed(file));
    }

    /// Sets the URL of a path as the user wrote it: percent-encoding the path may give another one.
    pub fn set_url(&self, path: RelPath, url: &Url) {
        let url = url.with_path(url.path().trim_end_matches('/'));
        // The root may be what the user's URL was redirected to.
        let is_below = url.path().starts_with(self.inner.root.path());
        if is_below && self.inner.url(&path) != url {
            self.inner.given().insert(path, url);
        }
    }
}

impl Inner {
    /// Finds out why a file cannot be read: rclone returns 405 for directories.
    async fn why_unreadable(&self, error: Error, path: &RelPath) -> Error {
        let unclear = matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied);
        if self.server_kind == ServerKind::Dav
            && unclear
            && let Ok(Some(entry)) = self.look_by_properties(path, error.operation()).await
            && entry.is_dir()
        {
            let error = Error::new(ErrorKind::IsADirectory, error.operation());
            return error.at(self.location.display(path));
        }
        error
    }

    /// Opens a file, and requests its first `first` bytes, at least 64 KiB.
    async fn open_file(&self, path: &RelPath, first: u64) -> Result<HttpFile> {
        let url = self.url(path);
        let mut codings = Codings::ByName;
        loop {
            let found = HttpFile::open_reading(self.exchange(), &url, true, codings, first).await;
            match found {
                Err(error) => return Err(self.why_unreadable(error, path).await),
                Ok(Opened::File(file)) => return Ok(self.as_listed(file)),
                Ok(Opened::Encoded { sent_bytes }) => {
                    codings = Codings::by_length(self.listed_size(path).await, sent_bytes);
                }
                Ok(Opened::Page(response)) => {
                    drop(response);
                    let error = Error::new(ErrorKind::IsADirectory, "open");
                    return Err(error.at(self.location.display(path)));
                }
            }
        }
    }

    /// Reads a small file that is sent encoded.
    async fn read_encoded(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let file = self.open_file(path, 0).await?;
        if file.identity().size > limit {
            return Err(self.longer(path, limit));
        }
        file.whole().await
    }

    fn longer(&self, path: &RelPath, limit: u64) -> Error {
        Error::new(ErrorKind::Changed, "read")
            .at(self.location.display(path))
            .because(format!("it has grown beyond {limit} bytes"))
    }

    fn whole(&self, facts: &Facts, bytes: Vec<u8>) -> Whole {
        let mut identity = facts.identity();
        if self.server_kind == ServerKind::Dav && identity.modified.is_some() {
            identity.tag = None;
        }
        let metadata = Metadata { modified: identity.modified, ..Metadata::default() };
        Whole::new(bytes.into(), identity, metadata)
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
        self.inner.host.set_target(lanes);
    }

    fn link(&self) -> LinkStatus {
        self.inner.host.link()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        if let Some(file) = self.inner.opened().get(path) {
            return Ok(file.entry(path));
        }
        if path.is_root() {
            return Ok(Entry::new(path.clone(), EntryKind::Directory, 0));
        }
        if self.inner.server_kind == ServerKind::Web && self.inner.named().contains(path) {
            return self.inner.look_by_head(path).await;
        }
        self.inner.look(path).await
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        Arc::clone(&self.inner).list(path).await
    }

    async fn create_dir_as(&self, path: &RelPath, _mode: Option<u32>) -> Result<()> {
        self.inner.make_dir(path).await
    }

    async fn create_link(&self, path: &RelPath, _link: &LinkKind, _replace: bool) -> Result<()> {
        Err(self.inner.unsupported("create link", path))
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        self.inner.remove(path).await
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        self.inner.rename(from, to).await
    }

    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        self.inner.copy(from, to).await
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        self.inner.digest(path, kind).await
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        Ok(self.stat(path).await?.metadata())
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        self.inner.set_metadata(path, metadata).await
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        self.open_reading(path, Range::new(0, 0)).await
    }

    async fn open_reading(&self, path: &RelPath, first: Range) -> Result<Arc<dyn ReadAt>> {
        let opened = self.inner.opened().remove(path);
        if let Some(file) = opened {
            return Ok(Arc::new(file));
        }
        // The first request also shows what the file is, so it begins at offset 0.
        let first = if first.start() == 0 { first.len().min(MOST_FIRST) } else { 0 };
        Ok(Arc::new(self.inner.open_file(path, first).await?))
    }

    fn prefetch(&self, _path: &RelPath) {}

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        self.inner.uploads.part_name(&self.inner.upload_key(path), path.name())
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        upload::create(&self.inner, path, options).await
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        // A file that was open before the storage has its beginning here already, and often that is all of it.
        let opened = self.inner.opened().remove(path);
        if let Some(file) = opened.filter(|file| file.identity().size <= limit) {
            return file.whole().await;
        }
        let request = whole(&self.inner.url(path));
        let at = || self.inner.location.display(path);
        let mut response = self.inner.exchange().small(&request, limit).await?;
        if !response.status.is_success() {
            let error = error::of_status(response.status, "read", &response.url);
            drop(response);
            return Err(self.inner.why_unreadable(error, path).await);
        }
        if response.url.path().ends_with('/') {
            return Err(Error::new(ErrorKind::IsADirectory, "read").at(at()));
        }
        let mut facts = Facts::of(&response, "read")?;
        if !facts.is_as_stored([&request.url, &response.url]) {
            drop(response);
            return self.inner.read_encoded(path, limit).await;
        }
        let longer = || self.inner.longer(path, limit);
        if facts.size.is_some_and(|size| size > limit) {
            return Err(longer());
        }
        let mut bytes = Vec::new();
        while let Some(next) = response.next("read").await? {
            if (bytes.len() + next.len()) as u64 > limit {
                return Err(longer());
            }
            bytes.extend_from_slice(&next);
        }
        let size = *facts.size.get_or_insert(bytes.len() as u64);
        if size != bytes.len() as u64 {
            return Err(Error::new(ErrorKind::Unreachable, "read")
                .at(at())
                .because(format!("the response ended after {} of {size} bytes", bytes.len())));
        }
        Ok(self.inner.whole(&facts, bytes))
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        upload::write_whole(&self.inner, path, bytes, options).await
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        self.read_each(paths, limit).await
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        self.write_each(files).await
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        space::at(&self.inner, path).await
    }

    async fn allocated(&self, _path: &RelPath) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        Err(self.inner.unsupported("lock", path))
    }
}
