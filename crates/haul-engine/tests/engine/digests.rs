//! Digests that servers report: they save reads, and a wrong one does no harm.

use std::time::Duration;

use haul_engine::tree::{CompareOptions, Compared, Comparison, Difference, Side, compare};
use haul_engine::verify::VerifyOptions;
use haul_engine::{Cancel, Compare, Filter, Settings};
use haul_storage::memory::{Builder, MemoryStorage, Operation};
use haul_storage::{Digest, DigestKind, ErrorKind, Medium, RelPath, WorkPool};

use crate::support::{job, run};

/// A file that is read whole, and one that is read by ranges.
const SIZES: [usize; 2] = [1000, 300_000];

fn server() -> Builder {
    MemoryStorage::builder().with_digests().with_capabilities(|can| can.medium = Medium::Link)
}

fn content(size: usize, changed: bool) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8 ^ u8::from(changed && at == size / 2)).collect()
}

/// The same names with different times, and with different content if `differ`.
fn fill(storages: [&MemoryStorage; 2], differ: bool) {
    for size in SIZES {
        for (at, storage) in storages.into_iter().enumerate() {
            let name = format!("f{size}");
            storage.add_file(&name, content(size, differ && at == 1));
            storage.set_modified(&name, 100 + at as i64);
        }
    }
}

/// How often files of a storage were read.
fn reads(storage: &MemoryStorage) -> u64 {
    let faults = storage.faults();
    faults.count(Operation::Read) + faults.count(Operation::ReadWhole)
}

async fn compared(sides: [&MemoryStorage; 2]) -> (Comparison, Vec<Difference>) {
    compared_by(Some(DigestKind::Blake3), sides, &Cancel::default()).await
}

async fn compared_by(
    checksum: Option<DigestKind>,
    sides: [&MemoryStorage; 2],
    cancel: &Cancel,
) -> (Comparison, Vec<Difference>) {
    let options = CompareOptions {
        checksum,
        filter: Filter::default(),
        reading: VerifyOptions {
            parallel: 4,
            memory: 8 << 20,
            strict: false,
            retries: 3,
            retry_pause: Duration::from_millis(1),
            scratch: std::env::temp_dir(),
            pool: WorkPool::new("compare-test", 2).unwrap(),
        },
    };
    let root = RelPath::root();
    let [a, b] = sides.map(|storage| Side { storage, top: &root });
    let mut differences = Vec::new();
    let report = |compared| match compared {
        Compared::Differs(_, how) => differences.push(how),
        Compared::Progress(_) => {}
        other => panic!("{other:?}"),
    };
    let comparison = compare((a, b), &options, cancel, report).await;
    (comparison, differences)
}

#[tokio::test]
async fn a_comparison_reads_nothing_of_a_server_that_reports_the_same_digests() {
    let (local, far) = (MemoryStorage::new(), server().build());
    fill([&local, &far], false);
    for sides in [[&*local, &*far], [&*far, &*local]] {
        let (comparison, differences) = compared(sides).await;
        assert!(comparison.is_same() && differences.is_empty(), "{differences:?}");
        assert_eq!((comparison.same, comparison.reported, comparison.bytes), (2, 2, 301_000));
        assert_eq!(reads(&far), 0);
    }
    let other = server().build();
    fill([&other, &MemoryStorage::new()], false);
    let (comparison, _) = compared([&other, &far]).await;
    assert_eq!((comparison.same, comparison.reported, comparison.bytes), (2, 2, 0));
    assert_eq!(reads(&far) + reads(&other), 0);
}

#[tokio::test]
async fn files_of_unknown_size_and_without_times_are_compared_by_content() {
    let plain = MemoryStorage::new();
    let site = MemoryStorage::builder().without_sizes().with_capabilities(|can| can.times = false);
    let site = site.build();
    for (name, content) in [("same", "content"), ("differs", "longer than the other")] {
        plain.add_file(name, "content");
        site.add_file(name, content);
    }
    for sides in [[&*plain, &*site], [&*site, &*plain]] {
        let (comparison, differences) = compared_by(None, sides, &Cancel::default()).await;
        assert!(matches!(differences[..], [Difference::Size(..)]), "{differences:?}");
        assert_eq!((comparison.same, comparison.by_size, comparison.differing), (1, 0, 1));
    }
}

#[tokio::test]
async fn a_comparison_that_is_cancelled_does_not_wait_for_a_read() {
    let (near, far, cancel) = (MemoryStorage::new(), MemoryStorage::new(), Cancel::default());
    fill([&near, &far], false);
    far.faults().on(Operation::Read).stall();
    let comparison = compared_by(Some(DigestKind::Blake3), [&near, &far], &cancel);
    let (outcome, ()) = tokio::join!(comparison, async {
        while far.faults().count(Operation::Read) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        cancel.cancel();
    });
    assert!(outcome.0.interrupted && !outcome.0.is_same());
    assert!(outcome.0.same <= 1, "{:?}", outcome.0);
}

#[tokio::test]
async fn a_difference_is_reported_after_both_sides_were_read() {
    for far in [server().build(), MemoryStorage::new()] {
        let near = server().build();
        fill([&near, &far], true);
        let (comparison, differences) = compared([&near, &far]).await;
        assert_eq!(differences, [Difference::Content, Difference::Content]);
        assert_eq!((comparison.differing, comparison.reported), (2, 0));
        // Formerly, only bytes of equal files were counted.
        assert_eq!(comparison.bytes, 2 * 301_000);
        assert!(reads(&near) >= 2 && reads(&far) >= 2);
    }
}

#[tokio::test]
async fn a_wrong_or_failed_digest_shows_no_difference() {
    let (local, failing) = (MemoryStorage::new(), server().build());
    let liar = server().with_false_digest(Digest::of(DigestKind::Sha256, b"x")).build();
    fill([&local, &liar], false);
    fill([&local, &failing], false);
    failing.faults().on(Operation::Digest).fail(ErrorKind::Unreachable);
    for far in [&liar, &failing] {
        for sides in [[&*local, &**far], [&**far, &*local]] {
            let (comparison, differences) = compared(sides).await;
            assert!(comparison.is_same() && differences.is_empty(), "{differences:?}");
            assert_eq!((comparison.same, comparison.reported), (2, 0));
        }
    }
    // A digest of another kind than requested.
    let other = server().with_false_digest(Digest::of(DigestKind::Blake3, b"x")).build();
    fill([&local, &other], false);
    let (comparison, _) = compared([&local, &other]).await;
    assert_eq!((comparison.same, comparison.reported), (2, 0));
}

fn by_content() -> Settings {
    Settings { compare: Compare::Content, retry_pause: Duration::ZERO, ..Settings::default() }
}

#[tokio::test]
async fn a_copy_by_content_reads_nothing_of_a_server_that_reports_the_same_digest() {
    for is_upload in [true, false] {
        let (local, far) = (MemoryStorage::new(), server().build());
        fill([&local, &far], false);
        let (source, destination) = if is_upload { (&local, &far) } else { (&far, &local) };
        let outcome = run(job(source, destination), by_content()).await;
        assert_eq!(outcome.assert_clean().summary.unchanged, 2);
        assert_eq!(reads(&far), 0, "upload: {is_upload}");
        // The time was set, so that the next comparison by time finds them equal.
        assert_eq!(destination.entry("f1000").modified, source.entry("f1000").modified);
    }
}

#[tokio::test]
async fn a_copy_by_content_copies_files_with_another_digest() {
    for is_upload in [true, false] {
        let (local, far) = (MemoryStorage::new(), server().build());
        fill([&local, &far], true);
        let (source, destination) = if is_upload { (&local, &far) } else { (&far, &local) };
        let outcome = run(job(source, destination), by_content()).await;
        assert_eq!(outcome.assert_clean().summary.unchanged, 0);
        for size in SIZES {
            let name = format!("f{size}");
            assert_eq!(source.content(&name), destination.content(&name));
        }
    }
}

#[tokio::test]
async fn a_source_is_removed_only_after_its_copy_was_read() {
    let claimed = Digest::of(DigestKind::Sha256, &content(1000, false));
    let (local, far) = (MemoryStorage::new(), server().with_false_digest(claimed).build());
    local.add_file("f", content(1000, false));
    far.add_file("f", content(1000, true));
    let settings = Settings { remove_source: true, ..by_content() };
    run(job(&local, &far), settings).await.assert_clean();
    assert!(!local.exists("f"));
    assert_eq!(far.content("f"), content(1000, false), "the reported digest was false");
}

fn listing() -> Builder {
    server().with_listed_digests(Some(DigestKind::Sha256))
}

#[tokio::test]
async fn listed_digests_decide_before_times_do() {
    let (source, destination) = (listing().build(), listing().build());
    fill([&source, &destination], false);
    let (comparison, differences) = compared([&source, &destination]).await;
    assert!(differences.is_empty());
    assert_eq!((comparison.same, comparison.reported, comparison.bytes), (2, 2, 0));
    let settings = Settings { retry_pause: Duration::ZERO, ..Settings::default() };
    let outcome = run(job(&source, &destination), settings.clone()).await;
    assert_eq!(outcome.assert_clean().summary.unchanged, 2);
    assert_eq!(destination.entry("f1000").modified, source.entry("f1000").modified);
    assert_eq!(source.faults().count(Operation::Digest), 0);
    // The same time, but another content.
    destination.add_file("f1000", content(1000, true));
    destination.set_modified("f1000", 100);
    let (_, differences) = compared([&source, &destination]).await;
    assert_eq!(differences, [Difference::Content]);
    let outcome = run(job(&source, &destination), settings).await;
    assert_eq!(outcome.assert_clean().summary.unchanged, 1);
    assert_eq!(destination.content("f1000"), content(1000, false));
}
