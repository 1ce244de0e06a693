//! A file with several mirrors: all are read, except those that fail or differ.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Outcome, path, run};
use haul_engine::digest::Digest;
use haul_engine::mirror::{Mirror, MirrorStorage};
use haul_engine::{Job, Settings};
use haul_storage::memory::{MemoryStorage, Operation, Pattern, SimulatedLink};
use haul_storage::{Capabilities, DigestKind, ErrorKind, Range, Storage, Writes};
use tokio::time::timeout;

const SIZE: u64 = 24 << 20;

struct Copied {
    outcome: Outcome,
    destination: Arc<MemoryStorage>,
    warnings: Vec<String>,
}

fn linked(rate: u64) -> Arc<MemoryStorage> {
    let link = SimulatedLink::new(Duration::from_millis(20), rate);
    let storage = MemoryStorage::builder().with_link(link).build();
    storage.add_file("f", Pattern::new(1).bytes(Range::new(0, SIZE)));
    storage.set_modified("f", 1_000);
    storage
}

fn quick() -> Settings {
    Settings { retry_pause: Duration::from_millis(1), ..Settings::default() }
}

/// Copies `f`, which all mirrors have.
async fn copy(mirrors: &[Arc<MemoryStorage>], expected: Option<Digest>) -> Copied {
    copy_with(mirrors, expected, |can| can.server_copy = false).await
}

/// The same to a destination with these capabilities.
async fn copy_with(
    mirrors: &[Arc<MemoryStorage>],
    expected: Option<Digest>,
    change: impl FnOnce(&mut Capabilities),
) -> Copied {
    let destination = MemoryStorage::builder().with_capabilities(change).build();
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&warnings);
    let mirrors = mirrors.iter().enumerate().map(|(at, storage)| Mirror {
        name: format!("mirror{at}"),
        storage: Arc::clone(storage) as Arc<dyn Storage>,
        path: path("f"),
    });
    let mirrors: Vec<_> = mirrors.collect();
    let location = mirrors[0].storage.location().clone();
    let source = MirrorStorage::new(location, path("f"), mirrors, expected.is_some(), {
        move |name, cause| collected.lock().unwrap().push(format!("{name}: {cause}"))
    });
    let job = Job {
        source,
        source_path: path("f"),
        destination: Arc::clone(&destination) as Arc<dyn Storage>,
        destination_path: path("f"),
        expected,
    };
    let outcome = run(job, quick()).await;
    let warnings = std::mem::take(&mut *warnings.lock().unwrap());
    Copied { outcome, destination, warnings }
}

impl Copied {
    #[track_caller]
    fn arrived(&self) {
        self.outcome.assert_clean();
        assert!(self.destination.is_pattern("f", SIZE, 1), "{:?}", self.warnings);
    }
}

fn digest(kind: DigestKind) -> Digest {
    let whole = MemoryStorage::new();
    whole.add_pattern_file("f", SIZE, 1);
    Digest::of(kind, &whole.content("f"))
}

/// Bytes that were read from a mirror.
fn down(mirror: &MemoryStorage) -> u64 {
    mirror.traffic().bytes
}

#[tokio::test(start_paused = true)]
async fn all_mirrors_are_read_each_at_its_own_speed() {
    let mirrors = [linked(20_000_000), linked(20_000_000), linked(5_000_000)];
    let copied = copy(&mirrors, None).await;
    copied.arrived();
    assert_eq!(copied.warnings, Vec::<String>::new());
    let shares: Vec<_> = mirrors.iter().map(|mirror| down(mirror)).collect();
    assert!(shares[0] > SIZE / 4 && shares[1] > SIZE / 4, "{shares:?}");
    assert!(shares[2] > SIZE / 50 && shares[2] < SIZE / 4, "{shares:?}");
    assert!(shares.iter().sum::<u64>() < SIZE * 11 / 10, "read twice: {shares:?}");
}

#[tokio::test(start_paused = true)]
async fn when_a_mirror_goes_away_the_other_one_continues_without_a_pause() {
    let mirrors = [linked(20_000_000), linked(20_000_000)];
    mirrors[0].faults().on(Operation::Read).from(3).fail(ErrorKind::Unreachable);
    let copied = copy(&mirrors, Some(digest(DigestKind::Sha256))).await;
    copied.arrived();
    assert_eq!(copied.outcome.summary.retries, 0, "the other one goes on at once");
    assert!(down(&mirrors[1]) > SIZE / 2);
    let requests = mirrors[0].faults().count(Operation::Read);
    assert!(requests < 20, "{requests} requests to the mirror that is gone");
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_refuses_is_dropped_at_once_and_reported() {
    let mirrors = [linked(20_000_000), linked(20_000_000)];
    mirrors[1].faults().on(Operation::Read).from(2).fail(ErrorKind::PermissionDenied);
    let copied = copy(&mirrors, None).await;
    copied.arrived();
    assert_eq!(copied.warnings.len(), 1, "{:?}", copied.warnings);
    assert!(copied.warnings[0].starts_with("mirror1: this mirror is not used: "));
}

#[tokio::test(start_paused = true)]
async fn a_copy_completes_although_a_mirror_stalls() {
    for expected in [None, Some(digest(DigestKind::Sha256))] {
        let mirrors = [linked(20_000_000), linked(20_000_000)];
        mirrors[0].faults().on(Operation::Read).from(4).stall();
        copy(&mirrors, expected).await.arrived();
    }
}

/// Once, each byte counted as a sign of life, so such a mirror kept its ranges in flight until the end.
#[tokio::test(start_paused = true)]
async fn a_dripping_mirror_does_not_hold_up_the_copy() {
    for writes in [Writes::AnyOrder, Writes::InOrder] {
        for (first, pause) in [(2, 500), (4, 500), (4, 100)] {
            let mirrors = [linked(20_000_000), linked(20_000_000)];
            mirrors[1].faults().on(Operation::Read).from(first).drip(Duration::from_millis(pause));
            let copied = copy_with(&mirrors, None, |can| {
                (can.server_copy, can.writes) = (false, writes);
            });
            let copied = timeout(Duration::from_secs(60), copied).await;
            let copied = copied.unwrap_or_else(|_| panic!("{writes:?} {first}: it is held up"));
            copied.arrived();
            let seconds = copied.outcome.summary.elapsed.as_secs_f64();
            println!("{writes:?}, read {first} and later, {pause} ms a byte: {seconds:.1} s");
        }
    }
}

/// The other mirror is five times as fast, which is not far faster (`OUTPACED`, ten times).
#[tokio::test(start_paused = true)]
async fn a_slow_mirror_keeps_its_ranges() {
    let mirrors = [linked(1_000_000), linked(200_000)];
    let copied = copy(&mirrors, None).await;
    copied.arrived();
    assert_eq!((copied.outcome.summary.retries, copied.warnings.len()), (0, 0));
    let shares: Vec<_> = mirrors.iter().map(|mirror| down(mirror)).collect();
    assert!(shares.iter().sum::<u64>() < SIZE * 11 / 10, "read twice: {shares:?}");
}

#[tokio::test(start_paused = true)]
async fn a_mirror_with_another_size_or_without_a_digest_another_time_is_not_used() {
    for expected in [None, Some(digest(DigestKind::Blake3))] {
        let mirrors = [linked(20_000_000), linked(20_000_000), linked(20_000_000)];
        mirrors[1].resize("f", SIZE - 1);
        mirrors[2].overwrite("f", 5, "other");
        mirrors[2].set_modified("f", 2_000);
        let copied = copy(&mirrors, expected).await;
        let text = copied.warnings.join("\n");
        assert!(text.contains("mirror1: this mirror is not used: it has 25165823 bytes"), "{text}");
        if expected.is_none() {
            copied.arrived();
            assert!(text.contains("mirror2: this mirror is not used: it was modified"), "{text}");
            assert!(down(&mirrors[2]) < SIZE / 10, "modified at another time");
        } else {
            // With a digest the content decides, not the time.
            copied.arrived();
            assert!(down(&mirrors[2]) > SIZE / 10);
        }
    }
}

/// It is not known which mirror had the wrong bytes.
#[tokio::test(start_paused = true)]
async fn after_a_wrong_digest_the_file_restarts_from_one_mirror_at_a_time() {
    for kind in [DigestKind::Sha256, DigestKind::Blake3] {
        let mirrors = [linked(20_000_000), linked(20_000_000), linked(20_000_000)];
        for wrong in &mirrors[..2] {
            wrong.overwrite("f", 5, "other");
            wrong.set_modified("f", 1_000);
        }
        let copied = copy(&mirrors, Some(digest(kind))).await;
        copied.arrived();
        assert_eq!(copied.warnings.len(), 2, "{:?}", copied.warnings);
        for (at, text) in copied.warnings.iter().enumerate() {
            assert!(text.starts_with(&format!("mirror{at}: ")) && text.contains("should be"));
        }
    }
}

/// Once, such a mirror was taken for a wrong one, and no mirror was left.
#[tokio::test(start_paused = true)]
async fn a_correct_mirror_that_fails_once_after_a_wrong_digest_is_tried_again() {
    let mirrors = [linked(20_000_000), linked(20_000_000)];
    mirrors[0].overwrite("f", 5, "other");
    mirrors[0].set_modified("f", 1_000);
    mirrors[1].faults().on(Operation::Open).nth(2).fail(ErrorKind::Unreachable);
    let copied = copy(&mirrors, Some(digest(DigestKind::Sha256))).await;
    copied.arrived();
    assert_eq!(copied.warnings.len(), 1, "{:?}", copied.warnings);
}

/// Once, the range at byte 0 was requested from that mirror again and again.
#[tokio::test(start_paused = true)]
async fn a_first_mirror_that_fails_is_not_requested_again_and_again() {
    let mirrors = [linked(20_000_000), linked(20_000_000)];
    mirrors[0].faults().on(Operation::Read).from(1).fail(ErrorKind::Unreachable);
    copy(&mirrors, None).await.arrived();
    let requests = mirrors[0].faults().count(Operation::Read);
    assert!(requests < 200, "{requests} requests");
}

#[tokio::test(start_paused = true)]
async fn without_a_correct_mirror_no_file_appears() {
    let mirrors = [linked(20_000_000), linked(20_000_000)];
    let wrong = Digest { kind: DigestKind::Sha256, bytes: [7; 32] };
    let copied = copy(&mirrors, Some(wrong)).await;
    let failures = copied.outcome.failures();
    assert_eq!(failures.len(), 1);
    assert!(failures[0].to_string().contains("should be 0707"), "{}", failures[0]);
    assert_eq!(copied.destination.paths(), Vec::<String>::new());
    assert!(!copied.destination.has_part("f"));
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_cannot_be_opened_is_not_used_and_without_any_the_copy_fails() {
    let mirrors = [linked(20_000_000), linked(20_000_000)];
    mirrors[0].faults().on(Operation::Open).from(1).fail(ErrorKind::NotFound);
    let copied = copy(&mirrors, None).await;
    copied.arrived();
    assert_eq!(copied.warnings.len(), 1);
    assert!(copied.warnings[0].starts_with("mirror0: this mirror is not used: not found"));
    mirrors[1].faults().on(Operation::Open).from(1).fail(ErrorKind::PermissionDenied);
    let copied = copy(&mirrors, None).await;
    assert_eq!(copied.outcome.failures().len(), 1);
    assert!(!copied.destination.exists("f"));
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_changed_after_it_was_read_restarts_the_copy() {
    let mirrors = [linked(20_000_000), linked(20_000_000)];
    mirrors[1].faults().on(Operation::Recheck).nth(1).change();
    let copied = copy(&mirrors, None).await;
    // The second mirror has another time from then on, so the restart reads only the first.
    copied.outcome.assert_clean();
    assert!(copied.outcome.summary.retries >= 1);
    assert_eq!(copied.destination.entry("f").size, SIZE);
}

#[tokio::test]
async fn a_small_file_comes_from_the_first_mirror_that_has_it() {
    let (first, second) = (MemoryStorage::new(), MemoryStorage::new());
    for storage in [&first, &second] {
        storage.add_file("f", "small");
    }
    first.faults().on(Operation::ReadWhole).from(1).fail(ErrorKind::NotFound);
    let copied = copy(&[first, second], None).await;
    copied.outcome.assert_clean();
    assert_eq!(copied.destination.content("f"), "small".as_bytes());
    assert_eq!(copied.warnings.len(), 1);
}

/// Formerly, only long files went on to the next mirror.
#[tokio::test]
async fn after_a_wrong_digest_a_small_file_is_read_from_each_other_mirror_in_turn() {
    let mirrors = [MemoryStorage::new(), MemoryStorage::new(), MemoryStorage::new()];
    mirrors[0].add_file("f", "wrong");
    for storage in &mirrors[1..] {
        storage.add_file("f", "right");
    }
    mirrors[1].faults().on(Operation::ReadWhole).from(1).fail(ErrorKind::NotFound);
    let copied = copy(&mirrors, Some(Digest::of(DigestKind::Sha256, b"right"))).await;
    copied.outcome.assert_clean();
    assert_eq!(copied.destination.content("f"), "right".as_bytes());
    assert_eq!(copied.warnings.len(), 2, "{:?}", copied.warnings);
}

/// Formerly, each mirror but the last was dropped for good.
#[tokio::test]
async fn a_small_file_that_has_grown_or_is_unreachable_for_a_moment_costs_no_mirror() {
    let mirror = || {
        let storage = MemoryStorage::new();
        storage.add_pattern_file("f", SIZE, 1);
        storage.set_modified("f", 1_000);
        storage
    };
    let storages = [mirror(), mirror()];
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let collected = Arc::clone(&warnings);
    let mirrors = storages.iter().enumerate().map(|(at, storage)| Mirror {
        name: format!("mirror{at}"),
        storage: Arc::clone(storage) as Arc<dyn Storage>,
        path: path("f"),
    });
    let location = storages[0].location().clone();
    let source = MirrorStorage::new(location, path("f"), mirrors.collect(), false, {
        move |name, cause| collected.lock().unwrap().push(format!("{name}: {cause}"))
    });
    let error = source.read_whole(&path("f"), 1000).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    storages[0].faults().on(Operation::ReadWhole).first(1).fail(ErrorKind::Unreachable);
    assert_eq!(source.read_whole(&path("f"), SIZE).await.unwrap().bytes.len() as u64, SIZE);
    source.open(&path("f")).await.unwrap();
    for storage in storages {
        assert_eq!(storage.faults().count(Operation::Open), 1);
    }
    assert_eq!(*warnings.lock().unwrap(), Vec::<String>::new());
}
