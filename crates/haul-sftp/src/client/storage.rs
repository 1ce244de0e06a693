//! A directory on an SFTP server as a storage.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join;
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryStream, Error,
    ErrorKind, LinkKind, LinkStatus, Location, Lock, Medium, Metadata, Range, ReadAt, RelPath,
    Result, SmallFile, Space, Storage, StorageExt, Uploads, Whole, WriteAt, Writes,
};

use super::attributes;
use super::copying;
use super::digest;
use super::directories::Directories;
use super::entry;
use super::host::SftpHost;
use super::inner::Inner;
use super::list;
use super::read::SftpFile;
use super::space;
use super::whole;
use super::write::SftpUpload;
use crate::codec::{FileKind, Request, name};

/// The mode of a file for which none is given.
const DEFAULT_MODE: u32 = 0o644;

const NOT_ON_SERVER: &str = "the server does not support this";

/// A directory on an SFTP server.
#[derive(Debug)]
pub struct SftpStorage {
    inner: Arc<Inner>,
}

impl SftpStorage {
    /// Opens the directory `root` of a server, an absolute path without links
    /// ([`SftpHost::resolve`] returns one). `journals` is a local directory for the journals of
    /// uploads; without it, interrupted uploads restart.
    ///
    /// # Errors
    /// If the server cannot be reached, or does not speak version 3 of SFTP.
    pub async fn open(
        host: Arc<SftpHost>,
        location: Location,
        root: Bytes,
        journals: Option<PathBuf>,
    ) -> Result<Arc<Self>> {
        let server = host.server().await?;
        let has = |name: &[u8]| server.extensions.has(name);
        let makes_digests =
            has(name::CHECK_FILE_NAME) || has(name::CHECK_FILE) || host.quirks.makes_digests();
        let usual = Capabilities::least(Medium::Link).with(|can| {
            can.ranged_reads = true;
            can.writes = Writes::AnyOrder;
            can.rename = has(name::POSIX_RENAME);
            can.server_copy = has(name::COPY_DATA);
            can.symlinks = true;
            can.hard_links = has(name::HARDLINK);
            can.sync = has(name::FSYNC);
            can.resume = true;
            can.times = true;
            can.stored_times = entry::STORED_TIMES;
            can.mode = true;
            can.owner = true;
            can.digests = if makes_digests { vec![DigestKind::Sha256] } else { Vec::new() };
            can.pipelined_reads = true;
            can.pipelined_writes = true;
            can.complete_lists = true;
            can.whole_limit = u64::from(server.read.min(server.write)) - 1;
        });
        Ok(Arc::new(Self {
            inner: Arc::new(Inner {
                host,
                directories: Directories::default(),
                default_mode: DEFAULT_MODE,
                location,
                root,
                capabilities: by_quirks(&usual),
                extensions: server.extensions.clone(),
                uploads: Uploads::new(journals),
            }),
        }))
    }

    /// The host of this directory.
    pub fn host(&self) -> &Arc<SftpHost> {
        &self.inner.host
    }
}

#[async_trait]
impl Storage for SftpStorage {
    fn location(&self) -> &Location {
        &self.inner.location
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn set_lanes(&self, lanes: usize) {
        self.inner.host.lanes.set_target(lanes);
    }

    fn link(&self) -> LinkStatus {
        self.inner.host.link()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        // In one flight. What was found below a link does not count.
        let (checked, found) = join(self.inner.check_parent(path), self.inner.find(path)).await;
        checked?;
        let entry = found?;
        if entry.is_dir() && !path.is_root() {
            // Its parents have been checked.
            self.inner.directories.learn(path.clone());
        }
        Ok(entry)
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        list::list(&self.inner, path).await
    }

    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        let inner = &self.inner;
        let mut tries = inner.host.tries();
        loop {
            match inner.make_dir(path, mode).await {
                Err(error) if tries.again(&error).await => {}
                // An earlier try may have created it, and its lane was lost before the response: then it is empty. One
                // that existed before is not new: its entries are compared.
                Err(error) if !tries.is_first() && error.kind() == ErrorKind::AlreadyExists => {
                    let found = inner.host_lstat(path).await;
                    let made = found.is_ok_and(|attrs| {
                        // Servers with a umask create it with fewer rights.
                        let is_private = |mode: u32| {
                            attrs.permissions.is_some_and(|bits| bits & 0o777 & !mode == 0)
                        };
                        let is_dir = attrs.kind() == Some(FileKind::Directory);
                        is_dir && mode.is_none_or(is_private)
                    });
                    let is_new = made && self.is_empty(path).await.unwrap_or(false);
                    return if is_new { Ok(()) } else { Err(error) };
                }
                outcome => return outcome,
            }
        }
    }

    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()> {
        let inner = &self.inner;
        if let LinkKind::Hard(file) = link {
            if !inner.capabilities().hard_links {
                return Err(self.unsupported("make a link", path).because(NOT_ON_SERVER));
            }
            inner.check_parent(file).await?;
            let attrs = inner.host_lstat(file).await.map_err(|error| inner.at(error, file))?;
            if attrs.kind() != Some(FileKind::File) {
                let error = Error::new(ErrorKind::InvalidInput, "make a link");
                return Err(inner.at(error.because("only files can have hard links"), file));
            }
        }
        inner.check_parent(path).await?;
        let mut tries = inner.host.tries();
        if !replace {
            let refused = loop {
                match inner.make_link(&inner.on_server(path), link).await {
                    Ok(()) => return Ok(()),
                    Err(error) if tries.again(&error).await => {}
                    Err(error) => break error,
                }
            };
            // It may have been created, and the lane lost before the response.
            if !tries.is_first() && inner.is_link(path, link).await {
                return Ok(());
            }
            return Err(inner.in_the_way(refused, path).await);
        }
        loop {
            match inner.replace_by_link(path, link).await {
                Err(error) if tries.again(&error).await => {}
                outcome => return outcome,
            }
        }
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        let inner = &self.inner;
        let mut tries = inner.host.tries();
        loop {
            match inner.try_remove(path).await {
                Err(error) if tries.again(&error).await => {}
                // It was removed, but the lane was lost before the response.
                Err(error) if !tries.is_first() && error.kind() == ErrorKind::NotFound => {
                    return Ok(());
                }
                outcome => return outcome,
            }
        }
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let inner = &self.inner;
        inner.check_parent(from).await?;
        inner.check_parent(to).await?;
        let attrs = inner.host_lstat(from).await.map_err(|error| inner.at(error, from))?;
        inner.directories.forget(from);
        let from = inner.on_server(from);
        // A directory replaces nothing; where RENAME does not replace, a file would be moved aside for it.
        let replace = inner.capabilities().rename && attrs.kind() != Some(FileKind::Directory);
        inner.take_name(&from, to, replace).await
    }

    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let inner = &self.inner;
        if !inner.capabilities().server_copy {
            return Err(self.unsupported("copy", from).because(NOT_ON_SERVER));
        }
        let source = SftpFile::open(inner, from).await?;
        let existing = copying::refuse_existing(inner, to);
        let (checked, existing) = join(inner.check_parent(to), existing).await;
        checked.and(existing)?;
        copying::copy(inner, &source, to).await
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        digest::of(&self.inner, path, kind).await
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        Ok(self.stat(path).await?.metadata())
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let inner = &self.inner;
        inner.check_parent(path).await?;
        // A known directory is not a link.
        let kind = if inner.directories.unknown(path).is_empty() {
            Some(FileKind::Directory)
        } else {
            inner.host_lstat(path).await.map_err(|error| inner.at(error, path))?.kind()
        };
        let on_server = inner.on_server(path);
        let mut attrs = entry::attrs(metadata);
        let set = if kind == Some(FileKind::Symlink) {
            // A link has no mode of its own, and SETSTAT would follow it.
            attrs.permissions = None;
            attributes::set_of_link(inner, on_server, attrs).await
        } else {
            attributes::set(inner, &on_server, attrs, inner.directories.is_made(path)).await
        };
        set.map_err(|error| inner.at(error, path))
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(SftpFile::open(&self.inner, path).await?))
    }

    async fn open_reading(&self, path: &RelPath, first: Range) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(SftpFile::open_reading(&self.inner, path, first).await?))
    }

    fn prefetch(&self, path: &RelPath) {
        let inner = &self.inner;
        // A name that is too long for a part file is an error when it is created.
        if inner.uploads.has_journal(&inner.upload_key(path))
            && let Ok(part) = path.with_name(self.part_name(path))
        {
            inner.host.lanes.prefetch_now(Request::Lstat(inner.on_server(&part)));
        }
    }

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        self.inner.uploads.part_name(&self.inner.upload_key(path), path.name())
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        Ok(Arc::new(SftpUpload::create(&self.inner, path, options).await?))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        whole::read(&self.inner, path, limit).await
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        whole::write(&self.inner, path, bytes, options).await
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
        Err(self.unsupported("lock", path).because(NOT_ON_SERVER))
    }
}

fn by_quirks(usual: &Capabilities) -> [Capabilities; 6] {
    // Modes remain: small files get theirs when they are created.
    let bare = usual.clone().with(|can| can.times = false);
    // Resuming reads a file while it is written, and copying has two files open.
    let few = |of: &Capabilities| {
        of.clone().with(|can| {
            can.resume = false;
            can.server_copy = false;
        })
    };
    let in_order = |of: &Capabilities| few(of).with(|can| can.writes = Writes::InOrder);
    [usual.clone(), few(usual), in_order(usual), bare.clone(), few(&bare), in_order(&bare)]
}
