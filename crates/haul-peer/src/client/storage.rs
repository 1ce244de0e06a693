//! A peer's share as a storage.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use haul_storage::{
    Block, Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryStream,
    Error, ErrorKind, LinkKind, LinkStatus, Location, Lock, Medium, Metadata, Range, ReadAt,
    RelPath, Result, SmallFile, Space, Storage, StorageExt as _, UNKNOWN_SIZE, Whole, WriteAt,
    part_name,
};

use super::ahead::AHEAD;
use super::read::{PeerFile, Shared};
use super::send::{Forget, send_on};
use super::session::frame;
use super::session::{Responses, unexpected};
use super::write::PeerUpload;
use super::{Lane, Outcome, PeerHost};
use crate::wire::LISTED_AHEAD;
use crate::wire::convert::{self, path_bytes};
use crate::wire::messages::{self, code, to_client, to_server};

/// Longest file in one message, in bytes.
const WHOLE: u64 = 128 << 10;

/// Maximum paths in one message.
const PATHS: usize = 256;

/// A peer's share, or a directory in it.
pub struct PeerStorage {
    host: Arc<PeerHost>,
    location: Location,
    /// The root's path in the share.
    root: RelPath,
    capabilities: Capabilities,
    is_writable: bool,
}

impl fmt::Debug for PeerStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerStorage").field("location", &self.location).finish_non_exhaustive()
    }
}

impl PeerStorage {
    /// Opens the directory `root` of a peer's share, whose location is `location`.
    ///
    /// # Errors
    /// If the peer cannot be reached, or refuses the session.
    pub async fn open(host: Arc<PeerHost>, location: Location, root: RelPath) -> Result<Arc<Self>> {
        let session = Arc::clone(&host.lane().await.map_err(|error| error.at(&location))?.session);
        let remote = session.welcome.capabilities.clone();
        let capabilities = remote.with(|can| {
            can.medium = Medium::Link;
            can.pipelined_reads = true;
            can.pipelined_writes = true;
            can.long_reads = false;
            can.bounded_reads = false;
            can.bounded_writes = true;
            can.lock = false;
            can.max_lanes = None;
            can.whole_limit = WHOLE;
        });
        let is_writable = session.welcome.is_writable;
        Ok(Arc::new(Self { host, location, root, capabilities, is_writable }))
    }

    /// A path in the share.
    fn remote_path(&self, path: &RelPath) -> RelPath {
        self.root.join_path(path)
    }

    fn bytes(&self, path: &RelPath) -> Bytes {
        path_bytes(&self.remote_path(path))
    }

    /// An entry of the share, with its path below the root.
    fn near(&self, entry: Entry) -> Result<Entry> {
        below(&self.root, entry)
    }

    fn at(&self, path: &RelPath) -> String {
        self.location.display(path).to_string()
    }

    async fn request(&self, path: &RelPath, body: to_server::Body) -> Result<to_client::Body> {
        self.host.request(body).await.map_err(|error| error.at(self.at(path)))
    }

    async fn execute(&self, path: &RelPath, body: to_server::Body) -> Result<()> {
        self.host.execute(body).await.map_err(|error| error.at(self.at(path)))
    }

    /// As [`PeerStorage::request`], for a request that reads all of a file on the peer. Its limit depends on the file's
    /// size, which is requested only if the response is late.
    async fn request_of_file(
        &self,
        path: &RelPath,
        body: to_server::Body,
    ) -> Result<to_client::Body> {
        let size = async {
            match self.stat(path).await {
                Ok(entry) if entry.size != UNKNOWN_SIZE => entry.size,
                // The limit remains that for small files.
                _ => 0,
            }
        };
        self.host.reach.patience.extended_by(size, self.request(path, body)).await
    }

    async fn stat_some(&self, paths: &[RelPath]) -> Result<Vec<Outcome<Entry>>> {
        if let [only] = paths
            && let Some(outcome) = self.host.early_stat(&self.remote_path(only)).await
        {
            return Ok(vec![outcome.and_then(|entry| self.near(entry))]);
        }
        let remote = paths.iter().map(|path| self.bytes(path)).collect();
        let request = to_server::Body::Stat(messages::Stat { paths: remote });
        let (lane, mut responses) = self.host.send(request).await?;
        let _forget = Forget(&lane, responses.id);
        let mut found = Vec::new();
        loop {
            let to_client::Body::Entries(entries) = responses.message().await? else {
                return Err(unexpected());
            };
            let last = entries.last;
            let entries = convert::entries(entries).into_iter();
            found.extend(entries);
            if found.len() > paths.len() {
                return Err(unexpected());
            }
            if last {
                break;
            }
        }
        if found.len() != paths.len() {
            return Err(unexpected());
        }
        let near = |(entry, path): (Outcome<Entry>, &RelPath)| {
            let entry = self.near(entry?)?;
            if entry.path == *path { Ok(entry) } else { Err(unexpected()) }
        };
        Ok(found.into_iter().zip(paths).map(near).collect())
    }

    async fn read_some(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let request = messages::ReadWhole { paths: vec![self.bytes(path)], limit };
        let body = self.host.request(to_server::Body::ReadWhole(request)).await?;
        let to_client::Body::Wholes(mut wholes) = body else { return Err(unexpected()) };
        match (wholes.outcomes.pop(), wholes.outcomes.is_empty()) {
            (Some(outcome), true) => convert::whole_result(outcome),
            _ => Err(unexpected()),
        }
    }
}

impl PeerStorage {
    async fn read_in_pieces(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        let changed =
            |cause: String| Error::new(ErrorKind::Changed, "read").at(self.at(path)).because(cause);
        let file = self.open(path).await?;
        let identity = file.identity().clone();
        if identity.size > limit {
            let size = identity.size;
            return Err(changed(format!("it has {size} bytes, more than the expected {limit}")));
        }
        let mut block = Block::new();
        let mut blocks = file.read_at(Range::new(0, identity.size));
        while let Some(next) = blocks.next().await {
            block.append(next?);
        }
        let now = file.recheck().await?;
        if now != identity || block.len() as u64 != identity.size {
            return Err(changed(format!("it changed while being read: {identity} became {now}")));
        }
        Ok(Whole::new(block.into_bytes(), identity, file.metadata().await?))
    }

    async fn write_in_pieces(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        let size = bytes.len() as u64;
        let create = CreateOptions { size: Some(size), ..CreateOptions::default() };
        let writer = self.create(path, &create).await?;
        let written = async {
            writer.write_at(0, bytes.into()).await?;
            writer.commit(size, options).await
        };
        let written = written.await;
        if written.is_err() {
            // The first error is the one to report.
            drop(writer.abort(false).await);
        }
        written
    }
}

/// An entry of the share, with its path below `root`.
fn below(root: &RelPath, entry: Entry) -> Result<Entry> {
    let path = entry.path.relative_to(root).ok_or_else(unexpected)?;
    Ok(entry.at(path))
}

/// A listing that is being received.
struct Listing {
    /// The lane of the request: `More` has to follow on the same one.
    lane: Arc<Lane>,
    responses: Responses,
    root: RelPath,
    /// The listed directory in the share.
    listed: RelPath,
    location: String,
    /// Messages that were received since the last `More`.
    consumed: u32,
    is_over: bool,
}

impl Listing {
    /// Permits the server to send further messages. If the lane has ended, so has the listing.
    fn permit(&self, messages: u32) {
        let id = self.responses.id;
        self.lane.session.permit(id, messages);
        let more = to_server::Body::More(messages::More { id, messages });
        if let Ok(message) = frame(0, more) {
            self.lane.send(message);
        }
    }

    async fn next(&mut self) -> Option<Result<Vec<Entry>>> {
        while !self.is_over {
            let entries = match self.responses.message().await {
                Ok(to_client::Body::Entries(entries)) => entries,
                Ok(_) => {
                    self.is_over = true;
                    return Some(Err(unexpected().at(&self.location)));
                }
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error.at(&self.location)));
                }
            };
            self.is_over = entries.last;
            self.consumed += 1;
            if self.consumed >= LISTED_AHEAD / 2 && !self.is_over {
                let messages = std::mem::take(&mut self.consumed);
                self.permit(messages);
            }
            if entries.outcomes.is_empty() {
                continue;
            }
            return Some(self.batch(entries));
        }
        None
    }

    fn batch(&self, entries: messages::Entries) -> Result<Vec<Entry>> {
        let near = |entry: Entry| {
            let is_in = entry.path.parent().as_ref() == Some(&self.listed);
            let near = if is_in { below(&self.root, entry) } else { Err(unexpected()) };
            near.map_err(|error| error.at(&self.location))
        };
        let entries = convert::entries(entries).into_iter();
        entries
            .map(|entry| entry.map_err(|error| error.at(&self.location)).and_then(near))
            .collect()
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        if self.lane.session.forget(self.responses.id) {
            super::send::cancel(&self.lane, self.responses.id);
        }
    }
}

#[async_trait]
impl Storage for PeerStorage {
    fn location(&self) -> &Location {
        &self.location
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn set_lanes(&self, lanes: usize) {
        self.host.set_target(lanes);
    }

    fn link(&self) -> LinkStatus {
        self.host.link()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        let found = self.stat_some(std::slice::from_ref(path)).await;
        let only = found.and_then(|mut found| found.pop().unwrap_or_else(|| Err(unexpected())));
        only.map_err(|error| error.at(self.at(path)))
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        let found = join_all(paths.chunks(PATHS).map(|some| self.stat_some(some))).await;
        let mut entries = Vec::with_capacity(paths.len());
        for (some, found) in paths.chunks(PATHS).zip(found) {
            match found {
                Ok(found) => entries.extend(
                    found
                        .into_iter()
                        .zip(some)
                        .map(|(entry, path)| entry.map_err(|error| error.at(self.at(path)))),
                ),
                Err(error) => {
                    entries.extend(some.iter().map(|path| Err(error.again().at(self.at(path)))));
                }
            }
        }
        entries
    }

    async fn list(&self, path: &RelPath) -> Result<EntryStream> {
        let location = self.at(path);
        let request = messages::List { path: self.bytes(path) };
        let sent = async {
            if let Some(early) = self.host.early_list(&self.remote_path(path)).await {
                return Ok(early);
            }
            let lane = self.host.lane().await?;
            let responses = send_on(&lane, to_server::Body::List(request))?;
            Ok((lane, responses))
        };
        let (lane, responses) = sent.await.map_err(|error: Error| error.at(&location))?;
        let listing = Listing {
            lane,
            responses,
            root: self.root.clone(),
            listed: self.remote_path(path),
            location,
            consumed: 0,
            is_over: false,
        };
        let mut listing = listing;
        // An error of the directory itself is the error of the call.
        let first = match listing.next().await {
            Some(Err(error)) if listing.is_over => return Err(error),
            first => first,
        };
        let rest = stream::unfold(listing, |mut listing| async move {
            listing.next().await.map(|batch| (batch, listing))
        });
        Ok(Box::pin(futures_util::StreamExt::chain(stream::iter(first), rest)))
    }

    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        if self.is_writable
            && let Some(Ok(entry)) = self.host.early_stat(&self.remote_path(path)).await
            && entry.is_dir()
        {
            // No request is needed: the directory existed just now.
            return Err(
                Error::new(ErrorKind::AlreadyExists, "create the directory").at(self.at(path))
            );
        }
        let request = messages::CreateDir { path: self.bytes(path), mode };
        self.execute(path, to_server::Body::CreateDir(request)).await
    }

    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()> {
        let link = match link {
            LinkKind::Hard(to) => LinkKind::Hard(self.remote_path(to)),
            LinkKind::Symbolic(_) => link.clone(),
        };
        let link = Some((&link).into());
        let request = messages::CreateLink { path: self.bytes(path), link, replace };
        self.execute(path, to_server::Body::CreateLink(request)).await
    }

    async fn remove(&self, path: &RelPath) -> Result<()> {
        let request = messages::PathOf { path: self.bytes(path) };
        self.execute(path, to_server::Body::Remove(request)).await
    }

    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        let request = messages::Rename { from: self.bytes(from), to: self.bytes(to) };
        self.execute(from, to_server::Body::Rename(request)).await
    }

    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        if !self.capabilities.server_copy {
            return Err(self.unsupported("copy", from));
        }
        let request = messages::CopyFile { from: self.bytes(from), to: self.bytes(to) };
        let response = self.request_of_file(from, to_server::Body::Copy(request)).await?;
        super::done(&response).map_err(|error| error.at(self.at(from)))
    }

    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
        let kind = code::DigestKind::from(kind).number();
        let request = messages::DigestOf { path: self.bytes(path), kind };
        match self.request_of_file(path, to_server::Body::Digest(request)).await? {
            to_client::Body::DigestIs(messages::DigestIs { digest: None }) => Ok(None),
            to_client::Body::DigestIs(messages::DigestIs { digest: Some(digest) }) => {
                let bytes = convert::fixed(&digest.bytes, "digest")?;
                Ok(Some(Digest { kind: convert::digest_kind(digest.kind)?, bytes }))
            }
            _ => Err(unexpected().at(self.at(path))),
        }
    }

    async fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        let request = messages::PathOf { path: self.bytes(path) };
        match self.request(path, to_server::Body::Metadata(request)).await? {
            to_client::Body::Metadata(metadata) => Ok(metadata.try_into()?),
            _ => Err(unexpected().at(self.at(path))),
        }
    }

    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let metadata = Some(metadata.into());
        let request = messages::SetMetadata { path: self.bytes(path), metadata };
        self.execute(path, to_server::Body::SetMetadata(request)).await
    }

    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let file =
            PeerFile::open(&self.host, &self.remote_path(path), self.at(path), AHEAD).await?;
        Ok(Arc::new(Shared(file)))
    }

    async fn open_reading(&self, path: &RelPath, first: Range) -> Result<Arc<dyn ReadAt>> {
        // A read from the start usually continues.
        let ahead = if first.start() > 0 || first.is_empty() { 0 } else { AHEAD };
        let file =
            PeerFile::open(&self.host, &self.remote_path(path), self.at(path), ahead).await?;
        Ok(Arc::new(Shared(file)))
    }

    fn prefetch(&self, _: &RelPath) {}

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        part_name(path.name())
    }

    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        let remote = self.remote_path(path);
        Ok(Arc::new(PeerUpload::create(&self.host, &remote, options, self.at(path)).await?))
    }

    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole> {
        match self.read_some(path, limit.min(WHOLE)).await {
            // Too long for one message.
            Err(error) if error.kind() == ErrorKind::Changed && limit > WHOLE => {
                self.read_in_pieces(path, limit).await
            }
            outcome => outcome.map_err(|error| error.at(self.at(path))),
        }
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        if bytes.len() as u64 > WHOLE {
            return self.write_in_pieces(path, bytes, options).await;
        }
        let (path_of, options) = (self.bytes(path), Some(options.into()));
        let request = messages::WriteWhole { path: path_of, data: bytes, options };
        self.execute(path, to_server::Body::WriteWhole(request)).await
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        self.read_each(paths, limit).await
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        self.write_each(files).await
    }

    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        let response = match self.host.early_space(&self.remote_path(path)).await {
            Some(response) => response,
            None => {
                let request = messages::PathOf { path: self.bytes(path) };
                self.request(path, to_server::Body::Space(request)).await?
            }
        };
        match response {
            to_client::Body::SpaceIs(messages::SpaceIs { space }) => {
                let mut space: Option<Space> =
                    space.map(|space| (*space).try_into()).transpose()?;
                if let Some(volume) = space.as_mut().and_then(|space| space.volume.as_mut()) {
                    // Volume numbers are unique only on the peer, or on a host behind it.
                    volume.host = format!("{} {}", self.host.name(), volume.host);
                }
                Ok(space)
            }
            _ => Err(unexpected().at(self.at(path))),
        }
    }

    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        let request = messages::PathOf { path: self.bytes(path) };
        match self.request(path, to_server::Body::Allocated(request)).await? {
            to_client::Body::AllocatedIs(messages::AllocatedIs { bytes }) => Ok(bytes),
            _ => Err(unexpected().at(self.at(path))),
        }
    }

    async fn lock(&self, path: &RelPath) -> Result<Lock> {
        Err(self.unsupported("lock", path))
    }
}
