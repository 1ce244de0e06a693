//! Destinations whose clocks are coarser or shorter than they declare: a rerun copies nothing, and a source that
//! did change is copied all the same.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{job, run};
use haul_engine::{Overwrite, Preserve, Settings};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, KeptTimes, Metadata, RelPath, Timestamp};

fn settings() -> Settings {
    Settings { retry_pause: Duration::from_millis(1), ..Settings::default() }
}

fn keeping(times: KeptTimes) -> Arc<MemoryStorage> {
    MemoryStorage::builder().with_kept_times(times).build()
}

fn set(storage: &MemoryStorage, name: &str, seconds: i64, nanos: u32) {
    let modified = Some(Timestamp { seconds, nanos });
    storage.set(name, &Metadata { modified, ..Metadata::default() });
}

/// Times at every border of the clocks that exist.
const TIMES: [(i64, u32); 10] = [
    (-3_000_000_000, 1),
    (-1, 999_999_999),
    (0, 0),
    (1_700_000_001, 123_456_789),
    (1_700_000_000, 999_999_999),
    (1_700_000_000, 0),
    (2_147_483_648, 0),
    (4_294_967_296, 5),
    (4_354_819_199, 0),
    (20_000_000_000, 0),
];

#[tokio::test]
async fn a_rerun_copies_nothing_to_a_clock_that_keeps_less_than_is_known() {
    let bounded = |step_ns, first, last| KeptTimes { step_ns, ..KeptTimes::seconds(first, last) };
    for times in [
        KeptTimes::ALL,
        KeptTimes::in_steps_of(100),
        KeptTimes::in_steps_of(1000),
        KeptTimes::in_steps_of(1_000_000),
        bounded(10_000_000, 315_532_800, 4_354_819_199),
        bounded(2_000_000_000, 315_532_800, 4_354_819_198),
        bounded(1_000_000_000, -2_147_483_648, 2_147_483_647),
        KeptTimes::seconds(0, u32::MAX.into()),
        bounded(1, -2_147_483_648, 15_032_385_535),
    ] {
        for overwrite in [Overwrite::Different, Overwrite::Newer] {
            let (source, destination) = (MemoryStorage::new(), keeping(times));
            for (at, (seconds, nanos)) in TIMES.into_iter().enumerate() {
                let name = format!("f{at}");
                source.add_file(&name, name.as_bytes());
                set(&source, &name, seconds, nanos);
            }
            let settings = || Settings { overwrite, ..settings() };
            run(job(&source, &destination), settings()).await.assert_clean();
            for dry_run in [true, false] {
                let settings = Settings { dry_run, ..settings() };
                let again = run(job(&source, &destination), settings).await;
                again.assert_clean();
                assert_eq!(again.summary.unchanged, 10, "{times:?}, {overwrite:?}, {dry_run}");
            }
        }
    }
}

#[tokio::test]
async fn a_version_whose_time_a_coarser_clock_would_not_tell_apart_is_copied_to_a_fine_clock() {
    // The old version's time is what a clock of a second, of two seconds, of 100 ns, or of 32 bits would make of
    // the new one's.
    let rounded = [
        ((1_700_000_001, 5), (1_700_000_001, 0)),
        ((1_700_000_001, 5), (1_700_000_000, 0)),
        ((1_700_000_000, 123_456_789), (1_700_000_000, 123_456_700)),
        ((1_700_000_000, 999_999_999), (1_700_000_000, 0)),
        ((20_000_000_000, 0), (2_147_483_647, 0)),
        ((-20_000_000_000, 0), (-2_147_483_648, 0)),
    ];
    for (new, old) in rounded {
        let (source, destination) = (MemoryStorage::new(), keeping(KeptTimes::ALL));
        source.add_file("f", "new");
        destination.add_file("f", "old");
        set(&source, "f", new.0, new.1);
        set(&destination, "f", old.0, old.1);
        run(job(&source, &destination), settings()).await.assert_clean();
        assert_eq!(destination.content("f"), "new", "{new:?} over {old:?}");
    }
}

#[tokio::test]
async fn a_file_that_was_tried_and_cannot_be_replaced_has_its_old_time() {
    let (source, destination) = (MemoryStorage::new(), keeping(KeptTimes::ALL));
    source.add_file("f", "new");
    destination.add_file("f", "old");
    set(&source, "f", 1_700_000_001, 5);
    set(&destination, "f", 1_700_000_001, 0);
    destination.faults().on(Operation::WriteWhole).fail(ErrorKind::NoSpace);
    assert_eq!(run(job(&source, &destination), settings()).await.summary.failed, 1);
    let modified = destination.attributes("f").modified;
    assert_eq!(modified, Some(Timestamp { seconds: 1_700_000_001, nanos: 0 }));
}

#[tokio::test]
async fn a_time_that_cannot_be_kept_is_reported_once() {
    let declared = MemoryStorage::builder()
        .with_capabilities(|can| can.kept_times = KeptTimes::seconds(0, u32::MAX.into()))
        .build();
    for destination in [declared, keeping(KeptTimes::seconds(0, u32::MAX.into()))] {
        let source = MemoryStorage::new();
        for (at, seconds) in [-1_000_000, -2_000_000, 5_000_000_000, 7].into_iter().enumerate() {
            source.add_file(format!("f{at}"), "x");
            set(&source, &format!("f{at}"), seconds, 0);
        }
        let outcome = run(job(&source, &destination), settings()).await;
        outcome.assert_clean();
        let warnings = outcome.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("cannot keep its modification time"), "{warnings:?}");
    }
}

/// Over SFTP a file of two names seemed newer than it is while the clock was tried on it under its other name.
#[tokio::test]
async fn a_file_keeps_its_time_while_the_clock_is_tried() {
    let (source, destination) = (MemoryStorage::new(), keeping(KeptTimes::in_steps_of(100)));
    source.add_file("f", "x");
    set(&source, "f", 1_700_000_001, 5);
    run(job(&source, &destination), settings()).await.assert_clean();
    let before = destination.faults().calls().len();
    let again = run(job(&source, &destination), settings()).await;
    again.assert_clean();
    assert_eq!(again.summary.unchanged, 1);
    let calls = destination.faults().calls().split_off(before);
    let is_about_file = |(operation, path): &&(Operation, RelPath)| {
        *operation == Operation::SetMetadata && !path.is_root()
    };
    assert_eq!(calls.iter().find(is_about_file), None);
    assert!(calls.iter().any(|(operation, _)| *operation == Operation::WriteWhole), "{calls:?}");
    assert_eq!(destination.paths(), ["f"]);
}

/// The times of a copy were learnt only where times are kept, so a run that keeps none copied all again.
#[tokio::test]
async fn the_clock_is_found_out_also_where_times_are_not_kept() {
    let (source, destination) =
        (MemoryStorage::new(), keeping(KeptTimes::in_steps_of(1_000_000_000)));
    source.add_file("f", "x");
    set(&source, "f", 1_700_000_001, 5);
    run(job(&source, &destination), settings()).await.assert_clean();
    let preserve = Preserve { times: false, ..Preserve::default() };
    let again = run(job(&source, &destination), Settings { preserve, ..settings() }).await;
    again.assert_clean();
    assert_eq!(again.summary.unchanged, 1);
    let modified = destination.attributes("f").modified;
    assert_eq!(modified, Some(Timestamp { seconds: 1_700_000_001, nanos: 0 }));
}
