//! The storage. Most methods send one request; those that the protocol lacks fail or do nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Buf, Bytes};
use futures_util::{StreamExt, stream};
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryStream, Error,
    ErrorKind, LinkKind, LinkStatus, Location, Lock, Medium, Metadata, Range, ReadAt, RelPath,
    Result, SmallFile, Space, Storage, StorageExt, Whole, WriteAt, Writes,
};

use crate::client::Client;
use crate::file::{Download, Upload};
use crate::wire::{self, MAX_FILE, Op, Request};

/// A directory tree on the server.
#[derive(Debug)]
pub struct TcpStorage {
    client: Arc<Client>,
    capabilities: Capabilities,
}

impl TcpStorage {
    /// Connects with the first request.
    pub fn new(address: SocketAddr) -> Self {
        let capabilities = Capabilities::least(Medium::Link).with(|can| {
            can.ranged_reads = true;
            can.writes = Writes::AnyOrder;
            can.rename = true;
            can.times = true;
            can.max_lanes = Some(1);
            can.max_file_size = Some(MAX_FILE);
            can.whole_limit = 1 << 20;
        });
        Self { client: Arc::new(Client::new(address)), capabilities }
    }
}

#[async_trait]
impl Storage for TcpStorage {
    fn location(&self) -> &Location {
        self.client.location()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn set_lanes(&self, _lanes: usize) {}

    fn link(&self) -> LinkStatus {
        self.client.status()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        Ok(self.client.look(Op::Stat, path).await?.0)
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        let entries = self.client.ask(Request::new(Op::List, path), wire::get_entries).await?;
        let items = entries.into_iter().map(|(name, entry)| match path.join(&name) {
            Ok(path) => Ok(vec![entry.at(path)]),
            Err(error) => Err(Error::new(ErrorKind::Protocol, "list")
                .at(self.location().display(path))
                .because(format!("the name {} {error}", String::from_utf8_lossy(&name)))),
        });
        Ok(stream::iter(items.collect::<Vec<_>>()).boxed())
    }

    async fn create_dir_as(&self, path: &RelPath, _mode: Option<u32>) -> Result<()> {
        self.client.tell(Request::new(Op::MakeDir, path)).await
    }

    async fn create_link(&self, path: &RelPath, _link: &LinkKind, _replace: bool) -> Result<()> {
        Err(self.unsupported("create link", path))
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        self.client.tell(Request::new(Op::Remove, path)).await
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        self.client.tell(Request::new(Op::Rename, from).field(to.as_bytes())).await
    }

    async fn copy(&self, from: &RelPath, _to: &RelPath) -> Result<()> {
        Err(self.unsupported("copy", from))
    }

    async fn digest(&self, _path: &RelPath, _kind: DigestKind) -> Result<Option<Digest>> {
        Ok(None)
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        Ok(self.client.look(Op::Stat, path).await?.0.metadata())
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        self.client.tell(Request::new(Op::SetTime, path).time(metadata.modified)).await
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let (entry, content) = self.client.look(Op::Open, path).await?;
        Ok(Arc::new(Download::new(&self.client, entry, content)))
    }

    async fn open_reading(&self, path: &RelPath, _: Range) -> Result<Arc<dyn ReadAt>> {
        self.open(path).await
    }

    fn prefetch(&self, _path: &RelPath) {}

    async fn create(&self, path: &RelPath, _options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        let content = self.client.ask(Request::new(Op::Create, path), Buf::try_get_u64).await?;
        Ok(Arc::new(Upload::new(&self.client, path, content)))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let request = Request::new(Op::Get, path).number(limit);
        let decode = |fields: &mut Bytes| Ok((wire::get_entry(path, fields)?.0, fields.clone()));
        let (entry, bytes) = self.client.ask(request, decode).await?;
        Ok(Whole::new(bytes, entry.identity(), entry.metadata()))
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        self.client.tell(Request::new(Op::Put, path).commit(options).payload(bytes)).await
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
        Err(self.unsupported("lock", path))
    }
}
