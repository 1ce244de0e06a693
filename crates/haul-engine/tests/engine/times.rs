//! Destinations whose timestamps have a coarser resolution or a smaller range than they declare: a rerun copies
//! nothing, but a changed source is still copied.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{job, run};
use haul_engine::{Overwrite, Preserve, Settings};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, Metadata, RelPath, StoredTimes, Timestamp};

fn settings() -> Settings {
    Settings { retry_pause: Duration::from_millis(1), ..Settings::default() }
}

fn storing(times: StoredTimes) -> Arc<MemoryStorage> {
    MemoryStorage::builder().with_stored_times(times).build()
}

fn set(storage: &MemoryStorage, name: &str, seconds: i64, nanos: u32) {
    let modified = Some(Timestamp { seconds, nanos });
    storage.set(name, &Metadata { modified, ..Metadata::default() });
}

/// Times at the limits of common timestamp formats.
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
async fn a_rerun_copies_nothing_to_a_clock_coarser_or_shorter_than_declared() {
    let bounded =
        |step_ns, first, last| StoredTimes { step_ns, ..StoredTimes::seconds(first, last) };
    for times in [
        StoredTimes::ALL,
        StoredTimes::in_steps_of(100),
        StoredTimes::in_steps_of(1000),
        StoredTimes::in_steps_of(1_000_000),
        bounded(10_000_000, 315_532_800, 4_354_819_199),
        bounded(2_000_000_000, 315_532_800, 4_354_819_198),
        bounded(1_000_000_000, -2_147_483_648, 2_147_483_647),
        StoredTimes::seconds(0, u32::MAX.into()),
        bounded(1, -2_147_483_648, 15_032_385_535),
    ] {
        for overwrite in [Overwrite::Different, Overwrite::Newer] {
            let (source, destination) = (MemoryStorage::new(), storing(times));
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
async fn a_version_that_only_a_fine_clock_distinguishes_is_copied() {
    // The old version's time is the new one's, rounded to one second, two seconds or 100 ns, or limited to 32 bits.
    let rounded = [
        ((1_700_000_001, 5), (1_700_000_001, 0)),
        ((1_700_000_001, 5), (1_700_000_000, 0)),
        ((1_700_000_000, 123_456_789), (1_700_000_000, 123_456_700)),
        ((1_700_000_000, 999_999_999), (1_700_000_000, 0)),
        ((20_000_000_000, 0), (2_147_483_647, 0)),
        ((-20_000_000_000, 0), (-2_147_483_648, 0)),
    ];
    for (new, old) in rounded {
        let (source, destination) = (MemoryStorage::new(), storing(StoredTimes::ALL));
        source.add_file("f", "new");
        destination.add_file("f", "old");
        set(&source, "f", new.0, new.1);
        set(&destination, "f", old.0, old.1);
        run(job(&source, &destination), settings()).await.assert_clean();
        assert_eq!(destination.content("f"), "new", "{new:?} over {old:?}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_replaced_keeps_its_old_time() {
    let (source, destination) = (MemoryStorage::new(), storing(StoredTimes::ALL));
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
async fn a_time_that_cannot_be_stored_is_reported_once() {
    let declared = MemoryStorage::builder()
        .with_capabilities(|can| can.stored_times = StoredTimes::seconds(0, u32::MAX.into()))
        .build();
    for destination in [declared, storing(StoredTimes::seconds(0, u32::MAX.into()))] {
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

/// Regression: the probe of the clock changed the time of a destination file, so over SFTP a file with two hard
/// links looked newer under its other name. The probe must use a file of its own.
#[tokio::test]
async fn a_file_keeps_its_time_while_the_clock_is_probed() {
    let (source, destination) = (MemoryStorage::new(), storing(StoredTimes::in_steps_of(100)));
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

/// Regression: the clock was probed only when times are preserved, so a run without `times` copied all files again.
#[tokio::test]
async fn the_clock_is_probed_even_if_times_are_not_preserved() {
    let (source, destination) =
        (MemoryStorage::new(), storing(StoredTimes::in_steps_of(1_000_000_000)));
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

/// Formerly, such files were passed over in silence.
#[tokio::test]
async fn a_file_that_stays_without_a_known_time_is_reported() {
    for is_source in [false, true] {
        let (with, without) = (MemoryStorage::new(), MemoryStorage::builder().with_modified(false));
        let (source, destination) = match is_source {
            true => (without.build(), with),
            false => (with, without.with_capabilities(|can| can.times = false).build()),
        };
        for (name, old) in [("longer", "x"), ("equal1", "EQUAL1"), ("equal2", "EQUAL2")] {
            source.add_file(name, name);
            destination.add_file(name, old);
        }
        let newer = Settings { overwrite: Overwrite::Newer, ..settings() };
        let outcome = run(job(&source, &destination), newer).await;
        let warnings = outcome.assert_clean().warnings();
        let end = if is_source { "source" } else { "destination" };
        let of = |text: &str| warnings.iter().filter(|warning| warning.contains(text)).count();
        assert_eq!(of(&format!("the {end} reports no modification time")), 2, "{warnings:?}");
        assert_eq!(of("longer: differs from its source and stays"), 1, "{warnings:?}");
        assert_eq!(of("stays, since its size is that of the source"), 1, "{warnings:?}");
        assert_eq!((outcome.summary.skipped, outcome.summary.replaced), (1, 0));
        let outcome = run(job(&source, &destination), settings()).await;
        assert_eq!(outcome.assert_clean().warnings().len(), 1, "{:?}", outcome.warnings());
        assert_eq!((outcome.summary.skipped, outcome.summary.replaced), (0, 1));
        assert_eq!(destination.content("longer"), "longer");
        // Contents are compared, and nothing has to be reported.
        let by_content = Settings { compare: haul_engine::Compare::Content, ..settings() };
        let outcome = run(job(&source, &destination), by_content).await;
        assert_eq!(outcome.assert_clean().warnings(), Vec::<String>::new());
        assert_eq!(destination.content("equal2"), "equal2");
    }
}
