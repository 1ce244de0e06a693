//! Helpers of the tests of local storage: opening one, moving whole files, temporary file systems.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::allow_attributes,
    reason = "every test file uses another part of it, and a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use haul_local::{LocalOptions, LocalStorage};
use haul_storage::{
    Block, CommitOptions, Identity, Metadata, Range, RangeSet, ReadAt, RelPath, Result,
    SourceVersion, Storage, Timestamp,
};

pub fn path(text: impl AsRef<[u8]>) -> RelPath {
    RelPath::parse(text).unwrap()
}

pub fn open(root: &Path) -> Arc<LocalStorage> {
    LocalStorage::open(root, LocalOptions::default()).unwrap()
}

/// A storage with the calls of this system, and one with the portable calls.
pub fn both(root: &Path) -> [Arc<LocalStorage>; 2] {
    let portable = LocalOptions { portable: true, ..LocalOptions::default() };
    [open(root), LocalStorage::open(root, portable).unwrap()]
}

pub fn block(bytes: &[u8]) -> Block {
    Bytes::copy_from_slice(bytes).into()
}

pub fn fresh() -> CommitOptions {
    CommitOptions { metadata: Metadata::default(), replace: false, sync: false, expected: None }
}

pub fn replacing() -> CommitOptions {
    CommitOptions { replace: true, ..fresh() }
}

pub async fn put(storage: &dyn Storage, name: impl AsRef<[u8]>, bytes: &[u8]) -> Result<()> {
    storage.write_whole(&path(name), Bytes::copy_from_slice(bytes), &replacing()).await
}

pub async fn content(storage: &dyn Storage, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
    let reader = storage.open(&path(name)).await?;
    read(&*reader, Range::new(0, u64::MAX)).await
}

pub async fn read(reader: &dyn ReadAt, range: Range) -> Result<Vec<u8>> {
    let mut blocks = reader.read_at(range);
    let mut bytes = Vec::new();
    while let Some(block) = blocks.next().await {
        for piece in block?.pieces() {
            bytes.extend_from_slice(piece);
        }
    }
    Ok(bytes)
}

/// Pseudo-random bytes, so that data at a wrong offset is noticed.
pub fn pattern(length: usize) -> Vec<u8> {
    haul_storage::memory::Pattern::new(1).bytes(Range::new(0, length as u64)).to_vec()
}

/// Names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A temporary file system, unmounted on drop.
pub struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    /// A tmpfs of `size`. `None` if it cannot be mounted; without root, the reason is printed.
    pub fn tmpfs(size: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounting a file system needs root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(directory.path());
        run(&mut mount).then(|| Self { directory })
    }

    /// A file system in an image file. If that fails: prints that the test is skipped, and returns `None`.
    pub fn image(kind: &str, megabytes: u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounting a file system needs root");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().with_extension("image");
        std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        let made = run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image))
            && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(directory.path()));
        // The mounted loop device still holds the image open.
        std::fs::remove_file(&image).unwrap();
        if !made {
            println!("skipped: cannot make and mount a {kind} file system");
        }
        made.then(|| Self { directory })
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().to_path_buf()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg("-l").arg(self.directory.path()));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// A source of `size` bytes.
pub fn source(size: u64) -> SourceVersion {
    let modified = Some(Timestamp { seconds: 7, nanos: 9 });
    let identity = Identity { size, modified, ..Identity::default() };
    SourceVersion { name: "source".to_owned(), identity }
}

/// A set of one range.
pub fn ranges(start: u64, end: u64) -> RangeSet {
    let mut ranges = RangeSet::new();
    ranges.insert(Range::between(start, end));
    ranges
}
