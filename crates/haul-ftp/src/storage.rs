//! [`FtpStorage`]: the [`Storage`] implementation for a directory on an FTP server.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryStream, Error,
    ErrorKind, LinkKind, LinkStatus, Location, Lock, Medium, Metadata, Range, ReadAt, RelPath,
    Result, SmallFile, Space, Storage, StorageExt, Uploads, Whole, WriteAt,
};

use crate::digest;
use crate::error::refused;
use crate::host::FtpHost;
use crate::inner::Inner;
use crate::list;
use crate::read::FtpFile;
use crate::whole;
use crate::wire::{Command, Reply};
use crate::write::FtpUpload;

/// Files up to this length (bytes) are transferred whole: ranged reads would not save RTTs.
const WHOLE: u64 = 1 << 20;

const NOT_IN_FTP: &str = "FTP does not support this";

/// A [`Storage`] rooted at a directory of an FTP server.
#[derive(Debug)]
pub struct FtpStorage {
    inner: Arc<Inner>,
}

impl FtpStorage {
    /// Opens `root`, an absolute path on the server (see [`FtpHost::resolve`]). `journals` is a local
    /// directory for upload journals; without it an interrupted upload starts over.
    ///
    /// # Errors
    /// If connecting or logging in fails.
    pub async fn open(
        host: Arc<FtpHost>,
        location: Location,
        root: Bytes,
        journals: Option<PathBuf>,
    ) -> Result<Arc<Self>> {
        let server = host.server().await?;
        let features = server.features;
        let timed = Capabilities::least(Medium::Link).with(|can| {
            can.ranged_reads = features.rest;
            can.rename = server.rename_replaces();
            can.resume = true;
            can.times = true;
            can.stored_times = crate::wire::STORED_TIMES;
            can.long_reads = features.rest;
            can.digests = features.hash.iter().map(|_| DigestKind::Sha256).collect();
            can.whole_limit = WHOLE;
            // Not `complete_lists`, even with MLSD: servers can be set to hide names, or to end a long listing early
            // without an error.
        });
        let untimed = timed.clone().with(|can| can.times = false);
        let whole = |ranged: &Capabilities| {
            ranged.clone().with(|can| {
                can.ranged_reads = false;
                can.long_reads = false;
                can.resume = false;
            })
        };
        let from_start = [whole(&timed), whole(&untimed)];
        Ok(Arc::new(Self {
            inner: Arc::new(Inner {
                host,
                server,
                location,
                root: root.to_vec(),
                capabilities: [[timed, untimed], from_start],
                uploads: Uploads::new(journals),
                directories: Mutex::new(HashSet::new()),
            }),
        }))
    }

    /// The server that holds the directory.
    pub fn host(&self) -> &Arc<FtpHost> {
        &self.inner.host
    }
}

#[async_trait]
impl Storage for FtpStorage {
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
        Ok(self.inner.look(path).await?.entry(path.clone()))
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        list::list(&self.inner, path).await
    }

    async fn create_dir_as(&self, path: &RelPath, _mode: Option<u32>) -> Result<()> {
        let inner = &self.inner;
        if path.is_root() {
            let error = Error::new(ErrorKind::AlreadyExists, "create directory");
            return Err(inner.at(error.because("it was opened as a directory"), path));
        }
        inner.check_new_name(path)?;
        let make = Command::new("MKD", inner.on_server(path));
        let make = [make.map_err(|error| inner.at(error, path))?];
        let mut tries = inner.host.tries();
        let refusal = loop {
            let replies = match inner.host.exchange(&make).await {
                Err(error) if tries.again(&error).await => continue,
                outcome => outcome.map_err(|error| inner.at(error, path))?,
            };
            match replies.into_iter().find(|reply| !reply.is_done()) {
                None => {
                    inner.learn_directory(path);
                    return Ok(());
                }
                Some(reply) => break reply,
            }
        };
        let error = refused("create directory", &refusal);
        match inner.find(path).await? {
            // An earlier attempt may have created it, and the connection was lost before the reply arrived: then it is
            // empty. One that existed before is not new: its entries are compared.
            Some(found)
                if found.is_dir()
                    && !tries.is_first()
                    && self.is_empty(path).await.unwrap_or(false) =>
            {
                Ok(())
            }
            Some(_) => {
                let exists = Error::new(ErrorKind::AlreadyExists, error.operation());
                Err(inner.at(exists.because(error.cause()), path))
            }
            None => {
                inner.forget(&path.parent().unwrap_or_default());
                Err(inner.explain(error, path).await)
            }
        }
    }

    async fn create_link(&self, path: &RelPath, _link: &LinkKind, _replace: bool) -> Result<()> {
        Err(self.unsupported("make a link", path).because(NOT_IN_FTP))
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        let inner = &self.inner;
        let on_server = inner.on_server(path);
        let commands = [Command::new("DELE", &on_server), Command::new("RMD", &on_server)];
        let [Ok(file), Ok(directory)] = commands else {
            return Err(inner.at(Error::new(ErrorKind::NotFound, "remove"), path));
        };
        inner.forget(path);
        let mut tries = inner.host.tries();
        let replies = loop {
            // DELE removes files only and RMD directories only, so both are sent in one exchange.
            match inner.host.exchange(&[file.clone(), directory.clone()]).await {
                Err(error) if tries.again(&error).await => {}
                outcome => break outcome.map_err(|error| inner.at(error, path))?,
            }
        };
        if replies.iter().any(Reply::is_done) {
            return Ok(());
        }
        match inner.find(path).await? {
            // An earlier attempt removed it, and the connection was lost before the reply arrived.
            None if !tries.is_first() => Ok(()),
            None => Err(inner.at(Error::new(ErrorKind::NotFound, "remove"), path)),
            Some(found) => {
                let reply = replies.into_iter().nth(usize::from(found.is_dir()));
                let error = reply.map_or_else(
                    || Error::new(ErrorKind::Other, "remove"),
                    |reply| refused("remove", &reply),
                );
                let full = found.is_dir() && !self.list_sorted(path).await?.is_empty();
                let kind = match error.kind() {
                    _ if full => ErrorKind::NotEmpty,
                    ErrorKind::Other | ErrorKind::NotFound => ErrorKind::PermissionDenied,
                    kind => kind,
                };
                Err(inner.at(Error::new(kind, "remove").because(error.cause()), path))
            }
        }
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let inner = &self.inner;
        inner.check_new_name(to)?;
        let found = inner.look(from).await?;
        if to.starts_with(from) && to != from && found.is_dir() {
            let error = Error::new(ErrorKind::InvalidInput, "rename");
            return Err(inner.at(error.because("a directory cannot move below itself"), from));
        }
        inner.check_parent(to).await?;
        inner.forget(from);
        // A directory never replaces anything; rename(2) would let it replace an empty directory.
        let replace = inner.capabilities().rename && found.is_file();
        inner.take_name(&inner.on_server(from), to, replace || from == to).await
    }

    async fn copy(&self, from: &RelPath, _to: &RelPath) -> Result<()> {
        Err(self.unsupported("copy", from).because(NOT_IN_FTP))
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        digest::of(&self.inner, path, kind).await
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        Ok(self.stat(path).await?.metadata())
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let inner = &self.inner;
        let found = inner.look(path).await?;
        let on_server = inner.on_server(path);
        let Some(command) = inner.set_time(&on_server, metadata.modified)? else { return Ok(()) };
        let replies = inner
            .host
            .exchange_retrying(&[command])
            .await
            .map_err(|error| inner.at(error, path))?;
        if found.is_dir() {
            // Some servers set times of files only, so a refusal for a directory is ignored.
            return Ok(());
        }
        let set = replies.iter().try_for_each(|reply| inner.time_was_set(reply));
        set.map_err(|error| inner.at(error, path))
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(FtpFile::open(&self.inner, path).await?))
    }

    async fn open_reading(&self, path: &RelPath, _: Range) -> Result<Arc<dyn ReadAt>> {
        self.open(path).await
    }

    fn prefetch(&self, _path: &RelPath) {}

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        self.inner.uploads.part_name(&self.inner.upload_key(path), path.name())
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        Ok(Arc::new(FtpUpload::create(&self.inner, path, options).await?))
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

    async fn space(&self, _path: &RelPath) -> Result<Option<Space>> {
        Ok(None)
    }

    async fn allocated(&self, _path: &RelPath) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        Err(self.unsupported("lock", path).because(NOT_IN_FTP))
    }
}
