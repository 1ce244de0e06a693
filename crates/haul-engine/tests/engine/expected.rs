//! Files whose digest is known beforehand.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Outcome, job_at, run};
use haul_engine::digest::Digest;
use haul_engine::{Job, Overwrite, Settings};
use haul_storage::DigestKind;
use haul_storage::memory::{MemoryStorage, Operation};

const SIZES: [u64; 3] = [10, 300 << 10, 9 << 20];
const KINDS: [DigestKind; 2] = [DigestKind::Sha256, DigestKind::Blake3];
const WRONG: [u8; 32] = [9; 32];

fn quick() -> Settings {
    Settings { retry_pause: Duration::from_millis(1), ..Settings::default() }
}

fn plain() -> Arc<MemoryStorage> {
    MemoryStorage::builder().with_capabilities(|can| can.server_copy = false).build()
}

fn source(size: u64) -> Arc<MemoryStorage> {
    let source = MemoryStorage::new();
    source.add_pattern_file("f", size, 3);
    source
}

fn digest(kind: DigestKind, source: &MemoryStorage) -> Digest {
    Digest::of(kind, &source.content("f"))
}

async fn copy(
    from: &Arc<MemoryStorage>,
    to: &Arc<MemoryStorage>,
    expected: Digest,
    settings: Settings,
) -> Outcome {
    run(Job { expected: Some(expected), ..job_at(from, "f", to, "f") }, settings).await
}

#[tokio::test]
async fn a_file_gets_its_name_only_with_the_expected_content() {
    for size in SIZES {
        for kind in KINDS {
            // The transfer's own digest, if any, may be of another kind.
            for own in [None, Some(DigestKind::Blake3)] {
                let (from, to) = (source(size), plain());
                let settings = Settings { digest: own, ..quick() };
                let wrong = Digest { kind, bytes: WRONG };
                let outcome = copy(&from, &to, wrong, settings.clone()).await;
                assert_eq!(outcome.summary.retries, 0, "a retry would return the same content");
                let right = digest(kind, &from);
                let message = format!("its {} is {right}, and should be {wrong}", kind.name());
                assert!(outcome.failures()[0].to_string().contains(&message), "{size}");
                assert!(to.paths().is_empty() && !to.has_part("f"), "{size} {kind:?}");
                copy(&from, &to, right, settings).await.assert_clean();
                assert!(to.is_pattern("f", size, 3));
            }
        }
    }
}

#[tokio::test]
async fn an_existing_file_is_judged_by_its_content_not_by_its_time() {
    for size in SIZES {
        let (from, to) = (source(size), plain());
        let right = digest(DigestKind::Sha256, &from);
        to.add_file("f", from.content("f"));
        to.set_modified("f", 5);
        let outcome = copy(&from, &to, right, quick()).await;
        outcome.assert_clean();
        assert_eq!((outcome.summary.unchanged, outcome.summary.moved_bytes), (1, 0), "{size}");
        // The same size and time, but different content.
        to.overwrite("f", 3, "X");
        to.set_modified("f", 5);
        from.set_modified("f", 5);
        let outcome = copy(&from, &to, right, quick()).await;
        outcome.assert_clean();
        assert_eq!(outcome.summary.moved_bytes, size);
        assert!(to.is_pattern("f", size, 3));
    }
}

#[tokio::test]
async fn a_wrong_source_does_not_replace_an_existing_file() {
    for size in SIZES {
        let (from, to) = (source(size), plain());
        to.add_file("f", "before");
        let wrong = Digest { kind: DigestKind::Sha256, bytes: WRONG };
        assert_eq!(copy(&from, &to, wrong, quick()).await.failures().len(), 1);
        assert_eq!(to.content("f"), "before".as_bytes());
    }
}

#[tokio::test]
async fn a_wrong_existing_file_that_must_not_be_replaced_is_an_error() {
    let (from, to) = (source(10), plain());
    let right = digest(DigestKind::Sha256, &from);
    to.add_file("f", "before");
    let never = Settings { overwrite: Overwrite::Never, ..quick() };
    let outcome = copy(&from, &to, right, never.clone()).await;
    assert!(outcome.failures()[0].to_string().contains("should be"));
    assert_eq!(to.content("f"), "before".as_bytes());
    copy(&from, &to, right, quick()).await.assert_clean();
    copy(&from, &to, right, never).await.assert_clean();
}

/// Bytes that an earlier run has left are checked as well: if they are wrong, the file restarts.
#[tokio::test]
async fn wrong_bytes_of_an_earlier_run_are_not_resumed_forever() {
    for (kind, damaged) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let from = source(40 << 20);
        let to = MemoryStorage::builder()
            .with_capabilities(|can| can.server_copy = false)
            .with_records()
            .build();
        let right = digest(kind, &from);
        from.faults().on(Operation::Read).from(60).fail(haul_storage::ErrorKind::NotFound);
        assert_eq!(copy(&from, &to, right, quick()).await.failures().len(), 1);
        from.faults().clear();
        if damaged {
            let range = to.part_ranges("f")[0];
            to.overwrite(".f.haul-part", range.start(), "other");
        }
        let again = copy(&from, &to, right, quick()).await;
        again.assert_clean();
        assert!(again.summary.resumed_bytes > 0 || damaged, "{kind:?}");
        assert_eq!(again.summary.retries, u64::from(damaged), "{kind:?}");
        assert!(to.is_pattern("f", 40 << 20, 3), "{kind:?}");
    }
}
