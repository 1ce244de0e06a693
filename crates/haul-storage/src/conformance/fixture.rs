//! The fixture of a case: the storage, a directory for the case, and macros that report failures.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;

use crate::memory::Pattern;
use crate::{
    Block, Capabilities, CommitOptions, CreateOptions, Entry, Error, ErrorKind, Metadata, Range,
    ReadAt, RelPath, RelPathError, SourceVersion, Storage, StorageExt, WriteAt, Writes,
    is_part_name,
};

/// The result of a case.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why a backend fails a case, and where that was noticed.
#[derive(Debug, Clone)]
pub struct Failure {
    message: String,
    noticed: &'static Location<'static>,
}

impl Failure {
    #[track_caller]
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), noticed: Location::caller() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (noticed at {}:{})", self.message, self.noticed.file(), self.noticed.line())
    }
}

impl std::error::Error for Failure {}

/// The failure of an operation that should have succeeded.
impl From<Error> for Failure {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::new(format!("{error:?}"))
    }
}

impl From<RelPathError> for Failure {
    #[track_caller]
    fn from(error: RelPathError) -> Self {
        Self::new(format!("a path of the suite {error}"))
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Failure::new(format!($($message)+)));
        }
    };
}

/// Fails the case unless both are equal.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($message:tt)+) => {
        let (left, right) = (&$left, &$right);
        ensure!(left == right, "{}: is {left:?}, should be {right:?}", format!($($message)+));
    };
}

/// Fails the case unless the result is an error of one of the kinds.
macro_rules! ensure_error {
    ($result:expr, $kinds:pat, $($message:tt)+) => {
        match $result {
            Err(error) => ensure!(
                matches!(error.kind(), $kinds),
                "{}: should be {}, is {error:?}", format!($($message)+), stringify!($kinds)
            ),
            Ok(_) => ensure!(
                false,
                "{}: should be {}, but it succeeded", format!($($message)+), stringify!($kinds)
            ),
        }
    };
}

/// Fails the case unless the result is that of a commit whose target is not the expected version.
macro_rules! ensure_refused {
    ($result:expr, $($message:tt)+) => {
        match $result {
            Err(error) => ensure!(
                error.kind() == ErrorKind::Changed && error.retry() == Retry::Never,
                "{}: should be Changed, and final, is {error:?}", format!($($message)+)
            ),
            Ok(()) => ensure!(
                false, "{}: should be Changed, but it succeeded", format!($($message)+)
            ),
        }
    };
}

/// A storage and the directory of one case.
#[derive(Debug, Clone)]
pub(super) struct Fixture {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) dir: RelPath,
}

impl Fixture {
    pub(super) async fn prepare(storage: Arc<dyn Storage>, case: &str) -> Outcome<Self> {
        let dir = RelPath::root().join(case.replace("::", "-"))?;
        let fixture = Self { storage, dir };
        fixture.clean_up().await?;
        fixture.storage.create_dir(&fixture.dir).await?;
        Ok(fixture)
    }

    pub(super) async fn clean_up(&self) -> Outcome {
        match self.storage.remove_all(&self.dir).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(super) fn can(&self) -> &Capabilities {
        self.storage.capabilities()
    }

    /// A path in the case's directory; `name` may have several components.
    pub(super) fn path(&self, name: impl AsRef<[u8]>) -> Outcome<RelPath> {
        Ok(self.dir.join_path(&RelPath::parse(name)?))
    }

    /// Creates a file with this content by `write_whole`.
    pub(super) async fn put(&self, name: impl AsRef<[u8]>, content: &[u8]) -> Outcome<RelPath> {
        let path = self.path(name)?;
        let bytes = Bytes::copy_from_slice(content);
        self.storage.write_whole(&path, bytes, &replacing()).await?;
        Ok(path)
    }

    pub(super) async fn make_dir(&self, name: impl AsRef<[u8]>) -> Outcome<RelPath> {
        let path = self.path(name)?;
        self.storage.create_dir(&path).await?;
        Ok(path)
    }

    pub(super) async fn create(&self, path: &RelPath) -> Outcome<Arc<dyn WriteAt>> {
        Ok(self.storage.create(path, &CreateOptions::default()).await?)
    }

    /// `create` with `resume`, whatever the part file holds; waits until the previous writer has closed it.
    pub(super) async fn resume(&self, path: &RelPath) -> Outcome<Arc<dyn WriteAt>> {
        let options = CreateOptions { resume: true, size: None, sparse: true, ..<_>::default() };
        self.resume_as(path, &options).await
    }

    /// `create` with `resume` for a part file that must hold bytes of `source`.
    pub(super) async fn resume_from(
        &self,
        path: &RelPath,
        source: &SourceVersion,
    ) -> Outcome<Arc<dyn WriteAt>> {
        let size = Some(source.identity.size);
        let source = Some(source.clone());
        self.resume_as(
            path,
            &CreateOptions { resume: true, size, sparse: true, source, ..<_>::default() },
        )
        .await
    }

    async fn resume_as(
        &self,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Outcome<Arc<dyn WriteAt>> {
        for _ in 0..50 {
            match self.storage.create(path, options).await {
                Err(error) if error.kind() == ErrorKind::Busy => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => return Ok(other?),
            }
        }
        Err(Failure::new("the part file is still busy 5 s after its writer was dropped"))
    }

    /// All bytes of a file, by `open` and `read_at`.
    pub(super) async fn content(&self, path: &RelPath) -> Outcome<Vec<u8>> {
        let reader = self.storage.open(path).await?;
        let size = reader.identity().size;
        read(&*reader, Range::new(0, size)).await
    }

    /// Fails unless the file has this content, by `stat` and by reading it.
    #[track_caller]
    pub(super) fn has<'a>(
        &'a self,
        path: &'a RelPath,
        content: &'a [u8],
    ) -> impl Future<Output = Outcome> + Send + 'a {
        let noticed = Location::caller();
        async move {
            let found = async {
                let size = self.storage.stat(path).await?.size;
                ensure_eq!(size, content.len() as u64, "the size of {path}");
                same(&self.content(path).await?, content)
            };
            found.await.map_err(|failure| Failure { noticed, ..failure })
        }
    }

    /// Names in a directory, sorted, without haul's temporary files.
    pub(super) async fn names(&self, path: &RelPath) -> Outcome<Vec<Vec<u8>>> {
        let mut names = self.all_names(path).await?;
        names.retain(|name| !is_part_name(name));
        Ok(names)
    }

    /// Names in a directory, sorted.
    pub(super) async fn all_names(&self, path: &RelPath) -> Outcome<Vec<Vec<u8>>> {
        let entries = self.storage.list_sorted(path).await?;
        Ok(entries.iter().map(|entry| entry.path.name().to_vec()).collect())
    }

    /// Lists a directory; fails with the first error of the stream.
    pub(super) async fn list(&self, path: &RelPath) -> crate::Result<Vec<Entry>> {
        self.storage.list_sorted(path).await
    }

    /// Fails if `path` exists.
    pub(super) async fn is_free(&self, path: &RelPath) -> Outcome {
        let found = self.storage.find(path).await?;
        ensure!(found.is_none(), "{path} should not exist, and is {found:?}");
        Ok(())
    }
}

/// Reads a range, in blocks of any size.
pub(super) async fn read(reader: &dyn ReadAt, range: Range) -> Outcome<Vec<u8>> {
    let mut stream = reader.read_at(range);
    let mut content = Vec::new();
    while let Some(block) = stream.next().await {
        let block = block.map_err(|error| Failure::new(format!("reading {range}: {error:?}")))?;
        for piece in block.pieces() {
            content.extend_from_slice(piece);
        }
        ensure!(
            content.len() as u64 <= range.len(),
            "reading {range} gives {} bytes and more",
            content.len()
        );
    }
    Ok(content)
}

/// Writes `content` in pieces of `step` bytes, in order.
pub(super) async fn write(writer: &dyn WriteAt, content: &[u8], step: usize) -> Outcome {
    for (n, piece) in content.chunks(step).enumerate() {
        writer.write_at((n * step) as u64, block(piece)).await?;
    }
    Ok(())
}

/// Pseudo-random content.
pub(super) fn content(length: u64, seed: u64) -> Vec<u8> {
    Pattern::new(seed).bytes(Range::new(0, length)).to_vec()
}

pub(super) fn block(bytes: &[u8]) -> Block {
    Block::from(Bytes::copy_from_slice(bytes))
}

/// Compares content; a failure prints the offset, not the content.
#[track_caller]
pub(super) fn same(found: &[u8], expected: &[u8]) -> Outcome {
    if found == expected {
        return Ok(());
    }
    let at = found.iter().zip(expected).take_while(|(a, b)| a == b).count();
    Err(Failure::new(format!(
        "the content is wrong from byte {at} on ({} bytes instead of {})",
        found.len(),
        expected.len()
    )))
}

pub(super) fn replacing() -> CommitOptions {
    CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None }
}

pub(super) fn fresh() -> CommitOptions {
    CommitOptions { metadata: Metadata::default(), replace: false, sync: false, expected: None }
}

impl Fixture {
    /// Whether a file can be written in any order.
    pub(super) fn any_order(&self) -> bool {
        self.can().writes == Writes::AnyOrder
    }
}
