//! Destinations where each write is a request of its own: the number of writes, and blocks that wait to be
//! joined with others.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{job, run};
use haul_engine::{Auto, Settings};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{DigestKind, ErrorKind};

const SIZE: u64 = (9 << 20) + 5;

fn settings() -> Settings {
    Settings {
        chunk: Auto::Fixed(2 << 20),
        retry_pause: Duration::from_millis(1),
        retries: 1,
        ..Settings::default()
    }
}

/// A source that returns blocks of 64 KiB.
fn source() -> Arc<MemoryStorage> {
    let source = MemoryStorage::builder().with_read_block(64 << 10).build();
    source.add_pattern_file("f", SIZE, 1);
    source
}

fn destination(write_bytes: u64) -> Arc<MemoryStorage> {
    MemoryStorage::builder()
        .with_capabilities(|can| {
            can.server_copy = false;
            can.write_bytes = write_bytes;
        })
        .build()
}

#[tokio::test]
async fn blocks_are_joined_until_a_write_is_worth_it() {
    for (worth, writes) in [(0, 145), (100 << 10, 73), (1 << 20, 10), (64 << 20, 5)] {
        for digest in [None, Some(DigestKind::Sha256)] {
            let (source, destination) = (source(), destination(worth));
            let settings = Settings { digest, ..settings() };
            run(job(&source, &destination), settings).await.assert_clean();
            assert!(destination.is_pattern("f", SIZE, 1));
            assert_eq!(destination.faults().count(Operation::Write), writes, "{worth} bytes");
        }
    }
}

#[tokio::test]
async fn blocks_that_arrived_before_a_read_broke_are_written() {
    let (source, destination) = (source(), destination(64 << 20));
    // Each read returns 300 KiB. One retry after each is enough only if these are written.
    source.faults().on(Operation::Read).tear(300 << 10, ErrorKind::Unreachable);
    let outcome = run(job(&source, &destination), settings()).await;
    outcome.assert_clean();
    assert!(destination.is_pattern("f", SIZE, 1));
    assert_eq!(outcome.summary.moved_bytes, SIZE);
}

#[tokio::test]
async fn a_source_that_ends_early_is_an_error() {
    let (source, destination) = (source(), destination(64 << 20));
    source.faults().on(Operation::Read).cut(300 << 10);
    let outcome = run(job(&source, &destination), settings()).await;
    let failures = outcome.failures();
    assert!(failures.iter().any(|error| error.kind() == ErrorKind::Changed), "{failures:?}");
    assert!(!destination.paths().contains(&"f".to_owned()), "the file is incomplete");
}
