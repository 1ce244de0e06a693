//! The backend: everything that haul needs beyond the client library of the toy service. Most methods send one
//! request; those that the protocol lacks fail or do nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::{Buf, Bytes, TryGetError};
use futures_util::{StreamExt, stream};
use haul_storage::{
    Block, BlockStream, Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry,
    EntryKind, EntryStream, Error, ErrorKind, Held, Identity, LinkKind, LinkStatus, Location, Lock,
    Medium, Metadata, Range, RangeSet, ReadAt, RelPath, Result, SmallFile, Space, Storage,
    StorageExt, Timestamp, Whole, WriteAt, Writes, part_name,
};

use crate::toy::client::{Client, Failure};
use crate::toy::wire::{self, Facts, MAX_FILE, Op, Refusal, Request, get_facts};

/// Maximum bytes per request to read or write.
const STEP: u64 = 1 << 20;

/// The connection to the server, shared by a storage and its open files.
#[derive(Debug)]
struct Server {
    client: Client,
    location: Location,
}

impl Server {
    /// Sends a request about `path` and decodes the fields of its response. Errors get kind, operation and location.
    async fn request<T>(
        &self,
        (op, path): (Op, &RelPath),
        fields: impl FnOnce(Request) -> Request,
        decode: impl FnOnce(&mut Bytes) -> Result<T, TryGetError>,
    ) -> Result<T> {
        let request = fields(Request::new(op, path.as_bytes()));
        let response = self.client.request(&request).await;
        response.and_then(|mut fields| Ok(decode(&mut fields)?)).map_err(|failure| {
            let kind = match failure {
                // Retried over a new connection.
                Failure::Connection(_) => ErrorKind::Unreachable,
                Failure::Malformed | Failure::Refused(Refusal::Malformed) => ErrorKind::Protocol,
                Failure::Refused(Refusal::NotFound) => ErrorKind::NotFound,
                Failure::Refused(Refusal::Exists) => ErrorKind::AlreadyExists,
                Failure::Refused(Refusal::IsDirectory) => ErrorKind::IsADirectory,
                Failure::Refused(Refusal::NotDirectory) => ErrorKind::NotADirectory,
                Failure::Refused(Refusal::NotEmpty) => ErrorKind::NotEmpty,
                Failure::Refused(Refusal::NoSpace) => ErrorKind::NoSpace,
                Failure::Refused(Refusal::Gone) => ErrorKind::Changed,
                Failure::TooLong | Failure::Refused(Refusal::Invalid) => ErrorKind::InvalidInput,
            };
            let error = Error::new(kind, op.verb()).at(self.location.display(path));
            match failure {
                // The kind is the whole cause.
                Failure::Refused(_) => error,
                Failure::Connection(cause) => error.with_source(cause),
                failure => error.with_source(failure),
            }
        })
    }

    /// Sends a request whose response has no fields.
    async fn command(
        &self,
        of: (Op, &RelPath),
        fields: impl FnOnce(Request) -> Request,
    ) -> Result<()> {
        self.request(of, fields, |_| Ok(())).await
    }

    /// An entry and the id of its content.
    async fn look(&self, op: Op, path: &RelPath) -> Result<(Entry, u64)> {
        let facts = self.request((op, path), |request| request, get_facts).await?;
        Ok((entry(path.clone(), facts), facts.content))
    }
}

fn entry(path: RelPath, facts: Facts) -> Entry {
    let kind = if facts.content == 0 { EntryKind::Directory } else { EntryKind::File };
    let mut entry = Entry::new(path, kind, facts.size);
    entry.modified = Some(Timestamp { seconds: facts.modified.0, nanos: facts.modified.1 });
    // Content with a name never changes, it is only replaced.
    entry.tag = (facts.content != 0).then(|| facts.content.to_string());
    entry
}

fn time(metadata: &Metadata) -> Option<wire::Time> {
    metadata.modified.map(|time| (time.seconds, time.nanos))
}

/// Adds the commit options that the protocol supports.
fn appearance(request: Request, how: &CommitOptions) -> Request {
    request.appearance(how.replace, time(&how.metadata))
}

/// A directory tree on the server.
#[derive(Debug)]
pub struct TcpStorage {
    server: Arc<Server>,
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
        // A backend of haul itself would have its own `Scheme`.
        let location = Location::Named { name: address.to_string(), path: Vec::new() };
        let client = Client::new(address);
        Self { server: Arc::new(Server { client, location }), capabilities }
    }
}

#[async_trait]
impl Storage for TcpStorage {
    fn location(&self) -> &Location {
        &self.server.location
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn set_lanes(&self, _lanes: usize) {}

    fn link(&self) -> LinkStatus {
        let seen = self.server.client.measured();
        let (open, refused) = (seen.is_open.into(), seen.lost);
        LinkStatus { open, refused, rtt: seen.rtt, connect: seen.connect, ..LinkStatus::default() }
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        Ok(self.server.look(Op::Stat, path).await?.0)
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        let entries =
            self.server.request((Op::List, path), |request| request, wire::get_entries).await?;
        let items = entries.into_iter().map(|(name, facts)| match path.join(&name) {
            Ok(path) => Ok(vec![entry(path, facts)]),
            Err(error) => Err(Error::new(ErrorKind::Protocol, "list")
                .at(self.location().display(path))
                .because(format!("the name {} {error}", String::from_utf8_lossy(&name)))),
        });
        Ok(stream::iter(items.collect::<Vec<_>>()).boxed())
    }

    async fn create_dir_as(&self, path: &RelPath, _mode: Option<u32>) -> Result<()> {
        self.server.command((Op::MakeDir, path), |request| request).await
    }

    async fn create_link(&self, path: &RelPath, _link: &LinkKind, _replace: bool) -> Result<()> {
        Err(self.unsupported("create link", path))
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        self.server.command((Op::Remove, path), |request| request).await
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        self.server.command((Op::Rename, from), |request| request.field(to.as_bytes())).await
    }

    async fn copy(&self, from: &RelPath, _to: &RelPath) -> Result<()> {
        Err(self.unsupported("copy", from))
    }

    async fn digest(&self, _path: &RelPath, _kind: DigestKind) -> Result<Option<Digest>> {
        Ok(None)
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        Ok(self.stat(path).await?.metadata())
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        self.server.command((Op::SetTime, path), |request| request.time(time(metadata))).await
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let (entry, content) = self.server.look(Op::Open, path).await?;
        Ok(Arc::new(Download::new(Arc::clone(&self.server), entry, content)))
    }

    async fn open_reading(&self, path: &RelPath, _: Range) -> Result<Arc<dyn ReadAt>> {
        self.open(path).await
    }

    fn prefetch(&self, _path: &RelPath) {}

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        part_name(path.name())
    }

    async fn create(&self, path: &RelPath, _options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        let content =
            self.server.request((Op::Create, path), |request| request, Buf::try_get_u64).await?;
        let (server, path, end) = (Arc::clone(&self.server), path.clone(), AtomicU64::new(0));
        Ok(Arc::new(Upload { server, path, content, end }))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let decode = |fields: &mut Bytes| Ok((get_facts(fields)?, fields.clone()));
        let response =
            self.server.request((Op::Get, path), |request| request.number(limit), decode);
        let (facts, bytes) = response.await?;
        let file = entry(path.clone(), facts);
        Ok(Whole::new(bytes, file.identity(), file.metadata()))
    }

    async fn write_whole(&self, path: &RelPath, bytes: Bytes, how: &CommitOptions) -> Result<()> {
        self.server
            .command((Op::Put, path), |request| appearance(request, how).payload(bytes))
            .await
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

/// A file being read, with the content that it had when it was opened.
#[derive(Debug, Clone)]
struct Download {
    server: Arc<Server>,
    entry: Entry,
    identity: Identity,
    content: u64,
}

impl Download {
    fn new(server: Arc<Server>, entry: Entry, content: u64) -> Self {
        Self { server, identity: entry.identity(), entry, content }
    }
}

#[async_trait]
impl ReadAt for Download {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        true
    }

    async fn metadata(&self) -> Result<Metadata> {
        Ok(self.entry.metadata())
    }

    async fn recheck(&self) -> Result<Identity> {
        Ok(self.server.look(Op::Stat, &self.entry.path).await?.0.identity())
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // Content with a name never grows: a longer file under this name is another one.
        Ok(None)
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let range = range.intersection(Range::new(0, self.entry.size));
        let steps = stream::try_unfold((self.clone(), range), |(file, left)| async move {
            let (now, later) = left.split_at(STEP);
            if now.is_empty() {
                return Ok(None);
            }
            let fields = |request: Request| {
                request.number(file.content).number(now.start()).number(now.len())
            };
            let decode = |fields: &mut Bytes| wire::get_exactly(fields, now.len());
            let bytes = file.server.request((Op::Read, &file.entry.path), fields, decode).await?;
            Ok(Some((Block::from(bytes), (file, later))))
        });
        steps.boxed()
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        Ok((from < self.entry.size).then(|| Range::between(from, self.entry.size)))
    }
}

/// A file being written. The server discards it when the connection ends, unless it is committed.
#[derive(Debug)]
struct Upload {
    server: Arc<Server>,
    path: RelPath,
    content: u64,
    /// End of the furthest byte written.
    end: AtomicU64,
}

impl Upload {
    async fn command(&self, op: Op, fields: impl FnOnce(Request) -> Request) -> Result<()> {
        self.server.command((op, &self.path), |request| fields(request.number(self.content))).await
    }
}

#[async_trait]
impl WriteAt for Upload {
    fn held(&self) -> &Held {
        &Held::Unrecorded
    }

    async fn record(&self, _: RangeSet) -> Result<()> {
        Ok(())
    }

    async fn write_at(&self, mut offset: u64, mut block: Block) -> Result<()> {
        while !block.is_empty() {
            let later = block.split_off(STEP as usize);
            let bytes = block.into_bytes();
            let end = offset + bytes.len() as u64;
            self.command(Op::Write, |request| request.number(offset).payload(bytes)).await?;
            self.end.fetch_max(end, Ordering::Relaxed);
            (offset, block) = (end, later);
        }
        Ok(())
    }

    async fn copy_from(&self, _source: &dyn ReadAt, _range: Range) -> Result<bool> {
        Ok(false)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    async fn reopen(&self, _uncached: bool) -> Result<Arc<dyn ReadAt>> {
        let end = self.end.load(Ordering::Relaxed);
        let entry = Entry::new(self.path.clone(), EntryKind::File, end);
        Ok(Arc::new(Download::new(Arc::clone(&self.server), entry, self.content)))
    }

    async fn commit(&self, size: u64, how: &CommitOptions) -> Result<()> {
        self.command(Op::Commit, |request| appearance(request.number(size), how)).await
    }

    async fn abort(&self, _keep: bool) -> Result<()> {
        self.command(Op::Discard, |request| request).await
    }
}
