//! An I/O error at every single operation in turn: only complete files have their final names, the
//! failure is reported, and a rerun completes the copy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{job, run};
use bytes::Bytes;
use haul_engine::Settings;
use haul_storage::memory::MemoryStorage;
use haul_storage::{DigestKind, ErrorKind, RelPath, is_part_name};

/// A little of everything: small, large with a journal, empty, links, holes, directories.
fn source() -> Arc<MemoryStorage> {
    let source = MemoryStorage::new();
    source.add_pattern_file("a/large", (9 << 20) + 3, 1);
    source.add_pattern_file("a/middle", 1 << 20, 2);
    source.add_pattern_file("a/b/small", 100, 3);
    source.add_file("a/b/empty", "");
    source.add_sparse_file("holes", 4 << 20, &[(1 << 20, b"data")]);
    source.add_symlink("link", "a/large");
    source
}

fn destination(server_copy: bool) -> Arc<MemoryStorage> {
    MemoryStorage::builder()
        .with_capabilities(|can| can.server_copy = server_copy)
        .with_records()
        .build()
}

/// The files under final names.
fn finished(storage: &MemoryStorage) -> BTreeMap<RelPath, Bytes> {
    let mut files = storage.files();
    files.retain(|path, _| !is_part_name(path.name()));
    files
}

#[track_caller]
fn assert_only_whole_files(source: &MemoryStorage, destination: &MemoryStorage, when: &str) {
    let expected = source.files();
    for (path, content) in finished(destination) {
        assert!(
            expected.get(&path) == Some(&content),
            "{when}: {path} has its final name, but is incomplete"
        );
    }
}

async fn at_every_operation(of_source: bool, server_copy: bool, settings: Settings) {
    let mut nth = 0;
    loop {
        nth += 1;
        let when = format!("operation {nth}, of source {of_source}, server copy {server_copy}");
        let (source, destination) = (source(), destination(server_copy));
        let faulty = if of_source { &source } else { &destination };
        faulty.faults().on_any().nth(nth).fail(ErrorKind::Io);
        let broken = run(job(&source, &destination), settings.clone()).await;
        assert_only_whole_files(&source, &destination, &when);
        let struck = faulty.faults().count_all() >= nth;
        if !struck {
            broken.assert_clean();
            assert!(nth > 10, "only {nth} operations were tried");
            return;
        }
        let complete = finished(&destination) == source.files();
        assert!(complete || broken.summary.failed > 0, "{when}: silently incomplete");
        faulty.faults().clear();
        let again = run(job(&source, &destination), settings.clone()).await;
        again.assert_clean();
        assert_eq!(finished(&destination), source.files(), "{when}: after a rerun");
        assert_eq!(destination.paths(), source.paths(), "{when}: after a rerun");
    }
}

fn settings() -> Settings {
    Settings { retry_pause: Duration::from_millis(1), retries: 0, ..Settings::default() }
}

#[tokio::test]
async fn an_error_at_any_operation_of_the_source_leaves_only_whole_files() {
    at_every_operation(true, false, settings()).await;
}

#[tokio::test]
async fn an_error_at_any_operation_of_the_destination_leaves_only_whole_files() {
    at_every_operation(false, false, settings()).await;
}

#[tokio::test]
async fn an_error_at_any_operation_of_a_direct_copy_leaves_only_whole_files() {
    at_every_operation(false, true, settings()).await;
}

#[tokio::test]
async fn an_error_at_any_operation_with_digest_and_verify_leaves_only_whole_files() {
    for kind in [DigestKind::Sha256, DigestKind::Blake3] {
        let settings = Settings { digest: Some(kind), verify: true, sync: true, ..settings() };
        at_every_operation(false, false, settings).await;
    }
}

#[tokio::test]
async fn a_corrupt_byte_at_the_destination_is_found_by_verify() {
    use haul_storage::memory::Operation;
    let (source, destination) = (source(), destination(false));
    destination.faults().on(Operation::Read).path("a/large").nth(2).corrupt(17);
    let settings = Settings { digest: Some(DigestKind::Blake3), verify: true, ..settings() };
    let outcome = run(job(&source, &destination), settings).await;
    let failures = outcome.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].kind(), ErrorKind::Corrupt);
    assert!(!destination.exists("a/large"));
}
