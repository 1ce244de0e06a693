//! The conformance suite on local storage: in `TMPDIR`, on tmpfs, with the portable calls, with extreme block
//! sizes, and split.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use haul_local::{LocalOptions, LocalStorage, SplitMode, SplitStorage};
use haul_storage::{Storage, conformance};

fn open(root: &Path, options: LocalOptions) -> Arc<dyn Storage> {
    LocalStorage::open(root, options).unwrap()
}

#[tokio::test]
async fn local_storage_conforms_in_the_temporary_directory() {
    let root = tempfile::tempdir().unwrap();
    conformance::run_all(open(root.path(), LocalOptions::default())).await;
}

#[tokio::test]
async fn local_storage_conforms_on_a_tmpfs() {
    let shm = Path::new("/dev/shm");
    if !shm.is_dir() {
        println!("skipped: needs /dev/shm");
        return;
    }
    let root = tempfile::tempdir_in(shm).unwrap();
    conformance::run_all(open(root.path(), LocalOptions::default())).await;
}

#[tokio::test]
async fn local_storage_conforms_with_the_portable_calls() {
    let root = tempfile::tempdir().unwrap();
    let options = LocalOptions { portable: true, ..LocalOptions::default() };
    conformance::run_all(open(root.path(), options)).await;
}

#[tokio::test]
async fn local_storage_conforms_with_the_smallest_blocks() {
    let root = tempfile::tempdir().unwrap();
    let options = LocalOptions { block_size: 1024, ..LocalOptions::default() };
    conformance::run_all(open(root.path(), options)).await;
}

#[tokio::test]
async fn local_storage_conforms_with_the_largest_blocks_and_one_thread() {
    let root = tempfile::tempdir().unwrap();
    let options = LocalOptions { block_size: 1 << 30, threads: 1, ..LocalOptions::default() };
    conformance::run_all(open(root.path(), options)).await;
}

/// Both part lengths are below the suite's largest files. One is a power of two, the other splits blocks at
/// unaligned offsets.
#[tokio::test]
async fn split_storage_conforms() {
    for part in [65_536, 99_991] {
        let root = tempfile::tempdir().unwrap();
        let inner = open(root.path(), LocalOptions::default());
        conformance::run_all(SplitStorage::new(inner, SplitMode::Size(part))).await;
    }
}

#[tokio::test]
async fn split_storage_without_files_to_split_conforms() {
    for mode in [SplitMode::Auto, SplitMode::Never] {
        let root = tempfile::tempdir().unwrap();
        let inner = open(root.path(), LocalOptions::default());
        conformance::run_all(SplitStorage::new(inner, mode)).await;
    }
}
