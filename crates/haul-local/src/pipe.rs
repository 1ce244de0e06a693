//! Standard input and output as storages of one file each; the output takes several in succession.
//!
//! The file has no known length, is read or written once from the first byte to the last, and
//! cannot be renamed: bytes that were written cannot be taken back. So a file of which bytes were
//! written cannot start over, and a transfer that would have to restart it fails.

use std::fs::File;
use std::io::{ErrorKind as Io, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;
use haul_storage::{
    Block, BlockStream, Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry,
    EntryKind, EntryStream, Error, ErrorKind, Held, Identity, LinkKind, LinkStatus, Location, Lock,
    Medium, Metadata, Range, RangeSet, ReadAt, RelPath, Result, Retry, SmallFile, Space, Storage,
    StorageExt as _, UNKNOWN_SIZE, Whole, WorkPool, WriteAt, part_name,
};
use tokio::sync::mpsc;

/// Most bytes in a block.
const BLOCK: usize = 512 << 10;
/// How many blocks may wait for the consumer.
const AHEAD: usize = 4;

/// Standard input or output, or another pipe or device.
#[derive(Debug)]
pub struct PipeStorage {
    location: Location,
    capabilities: Capabilities,
    end: End,
}

#[derive(Debug)]
enum End {
    Input(Mutex<Option<File>>),
    Output(Arc<Output>),
}

struct Output {
    file: Mutex<File>,
    pool: WorkPool,
    written: AtomicU64,
    begun: AtomicBool,
    /// Called when the reader has closed its end.
    reader_is_gone: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("written", &self.written).finish_non_exhaustive()
    }
}

impl PipeStorage {
    /// Reads `file` to its end.
    pub fn input(file: File) -> Arc<Self> {
        Self::with(End::Input(Mutex::new(Some(file))), "standard input")
    }

    /// Like `input`, for a pipe or device with a name.
    pub fn input_named(file: File, location: &Location) -> Arc<Self> {
        Self::with(End::Input(Mutex::new(Some(file))), &location.to_string())
    }

    /// Writes to `file`. `reader_is_gone` is called when the reader has closed its end, so that the
    /// transfer has nothing left to do.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn output(
        file: File,
        reader_is_gone: impl Fn() + Send + Sync + 'static,
    ) -> Result<Arc<Self>> {
        let pool =
            WorkPool::new("output", 1).map_err(|error| Error::from_io("start a thread", error))?;
        let output = Output {
            file: Mutex::new(file),
            pool,
            written: AtomicU64::new(0),
            begun: AtomicBool::new(false),
            reader_is_gone: Box::new(reader_is_gone),
        };
        Ok(Self::with(End::Output(Arc::new(output)), "standard output"))
    }

    fn with(end: End, name: &str) -> Arc<Self> {
        let capabilities = Capabilities::least(Medium::Disk);
        Arc::new(Self { location: Location::Local(name.into()), capabilities, end })
    }

    fn unsupported<T>(&self, operation: &'static str) -> Result<T> {
        Err(Error::new(ErrorKind::Unsupported, operation)
            .at(&self.location)
            .because("it is a stream, not a directory"))
    }

    fn output_of(&self, operation: &'static str) -> Result<&Arc<Output>> {
        match &self.end {
            End::Output(output) => Ok(output),
            End::Input(_) => self.unsupported(operation),
        }
    }
}

#[async_trait]
impl Storage for PipeStorage {
    fn location(&self) -> &Location {
        &self.location
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn set_lanes(&self, _: usize) {}

    fn link(&self) -> LinkStatus {
        LinkStatus::default()
    }

    async fn stat(&self, path: &RelPath) -> Result<Entry> {
        match self.end {
            End::Input(_) => Ok(Entry::new(path.clone(), EntryKind::File, UNKNOWN_SIZE)),
            End::Output(_) => Err(Error::new(ErrorKind::NotFound, "access").at(&self.location)),
        }
    }

    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        self.stat_each(paths).await
    }

    async fn list(&self, _: &RelPath) -> Result<EntryStream> {
        self.unsupported("list")
    }

    async fn create_dir_as(&self, _: &RelPath, _: Option<u32>) -> Result<()> {
        self.unsupported("create directory")
    }

    async fn create_link(&self, _: &RelPath, _: &LinkKind, _: bool) -> Result<()> {
        self.unsupported("create link")
    }

    async fn remove(&self, _: &RelPath) -> Result<()> {
        self.unsupported("remove")
    }

    async fn rename(&self, _: &RelPath, _: &RelPath) -> Result<()> {
        self.unsupported("rename")
    }

    async fn copy(&self, _: &RelPath, _: &RelPath) -> Result<()> {
        self.unsupported("copy")
    }

    async fn digest(&self, _path: &RelPath, _kind: DigestKind) -> Result<Option<Digest>> {
        Ok(None)
    }

    async fn metadata(&self, _: &RelPath) -> Result<Metadata> {
        Ok(Metadata::default())
    }

    async fn set_metadata(&self, _: &RelPath, _: &Metadata) -> Result<()> {
        Ok(())
    }

    async fn open(&self, _: &RelPath) -> Result<Arc<dyn ReadAt>> {
        let End::Input(file) = &self.end else { return self.unsupported("open") };
        let file = file.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(file) = file else {
            return Err(Error::new(ErrorKind::Changed, "open")
                .at(&self.location)
                .because("it was read already, and cannot be read again")
                .with_retry(Retry::Never));
        };
        let (blocks, receiver) = mpsc::channel(AHEAD);
        let location = self.location.clone();
        thread::Builder::new()
            .name("input".to_owned())
            .spawn(move || read(file, &location, &blocks))
            .map_err(|error| Error::from_io("start a thread", error))?;
        let identity = Identity { size: UNKNOWN_SIZE, ..Identity::default() };
        let (location, blocks) = (self.location.clone(), Mutex::new(Some(receiver)));
        Ok(Arc::new(Input { identity, location, blocks }))
    }

    async fn open_reading(&self, path: &RelPath, _: Range) -> Result<Arc<dyn ReadAt>> {
        self.open(path).await
    }

    fn prefetch(&self, _path: &RelPath) {}

    fn part_name(&self, path: &RelPath) -> Vec<u8> {
        part_name(path.name())
    }

    async fn create(&self, _: &RelPath, _: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
        let output = self.output_of("create")?;
        if output.begun.swap(true, Ordering::AcqRel) && output.written.load(Ordering::Acquire) > 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "write").at(&self.location).because(
                "the transfer would have to start over, and the data written cannot be taken back",
            ));
        }
        Ok(Arc::new(Writer { output: Arc::clone(output), location: self.location.clone() }))
    }

    async fn read_whole(&self, _: &RelPath, _: u64) -> Result<Whole> {
        Err(Error::new(ErrorKind::Changed, "read").at(&self.location))
    }

    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()> {
        let size = bytes.len() as u64;
        let writer = self.create(path, &CreateOptions::default()).await?;
        writer.write_at(0, Block::from(bytes)).await?;
        writer.commit(size, options).await
    }

    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        self.read_each(paths, limit).await
    }

    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        let mut outcomes = Vec::with_capacity(files.len());
        for file in files {
            outcomes.push(self.write_whole(&file.path, file.bytes, &file.options).await);
        }
        outcomes
    }

    async fn space(&self, _path: &RelPath) -> Result<Option<Space>> {
        Ok(None)
    }

    async fn allocated(&self, _path: &RelPath) -> Result<Option<u64>> {
        Ok(None)
    }

    async fn lock(&self, _: &RelPath) -> Result<Lock> {
        self.unsupported("lock")
    }
}

/// Reads to the end of the file, or until the receiver is dropped.
fn read(mut file: File, location: &Location, blocks: &mpsc::Sender<Result<Block>>) {
    loop {
        let mut buffer = vec![0; BLOCK];
        let mut filled = 0;
        let outcome = loop {
            match file.read(&mut buffer[filled..]) {
                Ok(0) => break Ok(true),
                Ok(length) => {
                    filled += length;
                    // Data of a slow writer is passed on at once.
                    if filled == BLOCK || length < BLOCK / 8 {
                        break Ok(false);
                    }
                }
                Err(error) if error.kind() == Io::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        buffer.truncate(filled);
        if filled > 0 && blocks.blocking_send(Ok(Block::from(Bytes::from(buffer)))).is_err() {
            return;
        }
        match outcome {
            Ok(false) => {}
            Ok(true) => return,
            Err(error) => {
                let error = Error::from_io("read", error).at(location);
                // The receiver may be gone.
                drop(blocks.blocking_send(Err(error.with_retry(Retry::Never))));
                return;
            }
        }
    }
}

#[derive(Debug)]
struct Input {
    identity: Identity,
    location: Location,
    blocks: Mutex<Option<mpsc::Receiver<Result<Block>>>>,
}

#[async_trait]
impl ReadAt for Input {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        false
    }

    async fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata::default())
    }

    async fn recheck(&self) -> Result<Identity> {
        Ok(self.identity.clone())
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // It is read to its end in any case.
        Ok(None)
    }

    fn read_at(&self, _: Range) -> BlockStream {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner).take();
        match blocks {
            Some(blocks) => stream::unfold(blocks, |mut blocks| async move {
                blocks.recv().await.map(|block| (block, blocks))
            })
            .boxed(),
            None => {
                let error = Error::new(ErrorKind::Changed, "read")
                    .at(&self.location)
                    .because("it was read already, and cannot be read again")
                    .with_retry(Retry::Never);
                stream::iter([Err(error)]).boxed()
            }
        }
    }

    fn read_until(&self, range: Range, _: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        Ok(Some(Range::between(from, UNKNOWN_SIZE)))
    }
}

#[derive(Debug)]
struct Writer {
    output: Arc<Output>,
    location: Location,
}

#[async_trait]
impl WriteAt for Writer {
    fn held(&self) -> &Held {
        &Held::Unrecorded
    }

    async fn record(&self, _: RangeSet) -> Result<()> {
        Ok(())
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        let output = Arc::clone(&self.output);
        let at = output.written.load(Ordering::Acquire);
        if offset != at {
            return Err(Error::new(ErrorKind::InvalidInput, "write")
                .at(&self.location)
                .because(format!("a write at offset {offset} instead of {at}")));
        }
        let written = self.output.pool.run(move || output.write(&block)).await;
        written.map_err(|error| {
            if error.kind() == Io::BrokenPipe {
                (self.output.reader_is_gone)();
                return Error::new(ErrorKind::Interrupted, "write").at(&self.location);
            }
            Error::from_io("write", error).at(&self.location).with_retry(Retry::Never)
        })
    }

    async fn copy_from(&self, _: &dyn ReadAt, _: Range) -> Result<bool> {
        Ok(false)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    async fn reopen(&self, _: bool) -> Result<Arc<dyn ReadAt>> {
        Err(Error::new(ErrorKind::Unsupported, "read back").at(&self.location))
    }

    async fn commit(&self, size: u64, _: &CommitOptions) -> Result<()> {
        let written = self.output.written.load(Ordering::Acquire);
        if written != size {
            return Err(Error::new(ErrorKind::InvalidInput, "write")
                .at(&self.location)
                .because(format!("{written} of {size} bytes were written")));
        }
        // The next file starts at 0 again.
        self.output.written.store(0, Ordering::Release);
        Ok(())
    }

    async fn abort(&self, _: bool) -> Result<()> {
        Ok(())
    }
}

impl Output {
    fn write(&self, block: &Block) -> std::io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in block.pieces() {
            file.write_all(piece)?;
            self.written.fetch_add(piece.len() as u64, Ordering::AcqRel);
        }
        file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn path() -> RelPath {
        RelPath::parse("x").unwrap()
    }

    #[tokio::test]
    async fn an_input_is_read_once_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("in");
        let bytes: Vec<u8> = (0..3 * BLOCK + 5).map(|at| at as u8).collect();
        fs::write(&name, &bytes).unwrap();
        let storage = PipeStorage::input(File::open(&name).unwrap());
        let reader = storage.open(&path()).await.unwrap();
        let mut seen = Vec::new();
        let mut blocks = reader.read_at(Range::between(0, UNKNOWN_SIZE));
        while let Some(block) = blocks.next().await {
            seen.extend_from_slice(&block.unwrap().into_bytes());
        }
        assert!(seen == bytes);
        assert_eq!(storage.open(&path()).await.unwrap_err().retry(), Retry::Never);
    }

    /// Once, errors of every pipe named the standard input.
    #[tokio::test]
    async fn an_error_names_the_pipe_that_was_read() {
        let directory = tempfile::tempdir().unwrap();
        // A directory can be opened, and not read.
        let location = Location::Local(directory.path().to_owned());
        let storage = PipeStorage::input_named(File::open(directory.path()).unwrap(), &location);
        let reader = storage.open(&path()).await.unwrap();
        for _ in 0..2 {
            let mut blocks = reader.read_at(Range::between(0, UNKNOWN_SIZE));
            let error = blocks.next().await.unwrap().unwrap_err().to_string();
            assert!(error.starts_with(&location.to_string()), "{error}");
        }
        let storage = PipeStorage::input(File::open(directory.path()).unwrap());
        let reader = storage.open(&path()).await.unwrap();
        let mut blocks = reader.read_at(Range::between(0, UNKNOWN_SIZE));
        let error = blocks.next().await.unwrap().unwrap_err().to_string();
        assert!(error.starts_with("standard input: "), "{error}");
    }

    #[tokio::test]
    async fn an_output_with_bytes_cannot_restart() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().join("out");
        let storage = PipeStorage::output(File::create(&name).unwrap(), || {}).unwrap();
        let options = CreateOptions::default();
        let writer = storage.create(&path(), &options).await.unwrap();
        writer.write_at(0, Block::from(Bytes::from_static(b"abc"))).await.unwrap();
        assert!(writer.write_at(7, Block::from(Bytes::from_static(b"x"))).await.is_err());
        assert_eq!(storage.create(&path(), &options).await.unwrap_err().retry(), Retry::Never);
        let commit = CommitOptions {
            metadata: Metadata::default(),
            replace: true,
            sync: false,
            expected: None,
        };
        writer.commit(3, &commit).await.unwrap();
        // The next file follows the one before.
        storage.write_whole(&path(), Bytes::from_static(b"de"), &commit).await.unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"abcde");
    }
}
