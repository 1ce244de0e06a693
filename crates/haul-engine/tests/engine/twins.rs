//! Names that a destination treats as equal: the first keeps its file, each other one is an error.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{job, job_at, run, run_jobs};
use haul_engine::{Cancel, Preserve, Settings};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, Metadata, RelPath, Storage as _};

fn settings() -> Settings {
    Settings { retry_pause: Duration::from_millis(1), ..Settings::default() }
}

/// Destinations that ignore case: with and without file numbers.
fn folding() -> [Arc<MemoryStorage>; 2] {
    [true, false].map(|ids| MemoryStorage::builder().ignoring_case().with_ids(ids).build())
}

fn tree() -> Arc<MemoryStorage> {
    let source = MemoryStorage::new();
    source.add_file("README", "upper");
    source.add_file("readme", "lower");
    source.add_file("other", "other");
    source.add_file("D/x", "in D");
    source.add_file("d/y", b"in d");
    source.add_file("L", "a file");
    source.add_symlink("l", "README");
    source
}

#[tokio::test]
async fn the_second_of_two_equal_names_is_an_error_that_names_both() {
    for destination in folding() {
        let source = tree();
        // A rerun finds what the first run has left, and does not replace it either.
        for _ in 0..3 {
            let outcome = run(job(&source, &destination), settings()).await;
            let mut failures: Vec<_> = outcome.failures().iter().map(ToString::to_string).collect();
            failures.sort();
            assert_eq!(failures.len(), 3, "{failures:?}");
            for (failure, (twin, first)) in
                failures.iter().zip([("d", "D"), ("l", "L"), ("readme", "README")])
            {
                assert!(failure.starts_with(&format!("memory:{twin}: ")), "{failure}");
                assert!(failure.contains(&format!("treats this name as {first}")), "{failure}");
            }
            assert!(outcome.failures().iter().all(|e| e.kind() == ErrorKind::AlreadyExists));
            assert_eq!(destination.content("README"), "upper");
            assert_eq!(destination.content("other"), "other");
            assert_eq!(destination.content("D/x"), "in D");
            assert_eq!(destination.content("L"), "a file");
            assert_eq!(destination.paths().len(), 5, "{:?}", destination.paths());
        }
    }
}

/// The existing file, from an earlier time, is spelled like the second name.
#[tokio::test]
async fn an_existing_file_with_the_second_name_is_not_replaced_by_both() {
    for destination in folding() {
        destination.add_file("readme", "old");
        let outcome = run(job(&tree(), &destination), settings()).await;
        assert_eq!(outcome.summary.failed, 3);
        assert_eq!(destination.content("readme"), "upper");
    }
}

#[tokio::test]
async fn names_that_the_destination_distinguishes_are_all_copied() {
    for has_ids in [true, false] {
        let destination = MemoryStorage::builder().with_ids(has_ids).build();
        let source = tree();
        source.add_file("d/Z", "Z");
        source.add_file("d/z", "z");
        source.add_file("Readme", "third");
        for copied in [true, false] {
            let outcome = run(job(&source, &destination), settings()).await;
            outcome.assert_clean();
            assert_eq!(source.paths(), destination.paths());
            assert_eq!(outcome.summary.moved_bytes > 0, copied);
        }
        assert_eq!(destination.content("readme"), "lower");
        assert_eq!(destination.content("Readme"), "third");
    }
}

/// More than can wait at once, so that some are handled while the listing goes on.
#[tokio::test]
async fn thousands_of_twins_are_copied() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for at in 0..5000 {
        source.add_dir(format!("d{at}"));
        source.add_file(format!("D{at}"), "file");
    }
    run(job(&source, &destination), settings()).await.assert_clean();
    assert_eq!(source.paths(), destination.paths());
}

/// All ways to write `aaaaaaaaa`: 511 twins of one name. The number of names must not multiply the listings:
/// otherwise such a directory, made on purpose, would delay the run.
#[tokio::test]
async fn listings_do_not_grow_with_the_number_of_equal_names() {
    let source = MemoryStorage::new();
    for at in 0..512_u32 {
        let letter = |bit: u32| if at >> bit & 1 == 0 { 'a' } else { 'A' };
        source.add_file(format!("d/{}", (0..9).map(letter).collect::<String>()), at.to_string());
    }
    let listings = |storage: &MemoryStorage| storage.faults().count(Operation::List);
    let distinct = MemoryStorage::new();
    for _ in 0..2 {
        distinct.faults().reset_count();
        run(job(&source, &distinct), settings()).await.assert_clean();
        assert_eq!(source.paths(), distinct.paths());
        assert!(listings(&distinct) < 10, "{}", listings(&distinct));
    }
    for destination in folding() {
        source.faults().reset_count();
        let outcome = run(job(&source, &destination), settings()).await;
        assert_eq!(outcome.summary.failed, 511);
        assert_eq!(destination.paths().len(), 2);
        assert!(listings(&destination) < 10, "{}", listings(&destination));
        assert!(listings(&source) < 10, "{}", listings(&source));
    }
}

/// A destination that only ignores case distinguishes `Straße`, but not `strasse`, from `STRASSE`: a rerun still
/// updates `Straße`.
#[tokio::test]
async fn of_three_similar_names_the_distinct_ones_are_updated() {
    let destination = MemoryStorage::builder().ignoring_case().build();
    let source = MemoryStorage::new();
    for content in ["1", "22", "333"] {
        for name in ["STRASSE", "Straße", "strasse"] {
            source.add_file(name, format!("{name}{content}"));
        }
        let outcome = run(job(&source, &destination), settings()).await;
        let failures: Vec<_> = outcome.failures().iter().map(ToString::to_string).collect();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].starts_with("memory:strasse: "), "{failures:?}");
        assert!(failures[0].contains("treats this name as STRASSE"), "{failures:?}");
        assert_eq!(destination.content("STRASSE"), format!("STRASSE{content}"));
        assert_eq!(destination.content("Straße"), format!("Straße{content}"));
    }
}

/// A directory that cannot be made is an error of that directory, and of no other name.
#[tokio::test]
async fn a_twin_that_fails_does_not_stop_the_others() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for name in ["DIR", "Dir", "dir"] {
        source.add_file(format!("{name}/in"), name);
        source.add_file(format!("MAKE{name}"), name);
    }
    for name in ["Makefile", "MAKEFILE", "makefile"] {
        source.add_file(name, name);
    }
    destination.add_file("Dir", "in the way");
    let outcome = run(job(&source, &destination), settings()).await;
    let failures: Vec<_> = outcome.failures().iter().map(ToString::to_string).collect();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].contains("a file is where a directory is needed"), "{failures:?}");
    assert_eq!(destination.content("Dir"), "in the way");
    for name in ["DIR/in", "dir/in", "Makefile", "MAKEFILE", "makefile"] {
        assert_eq!(destination.content(name), source.content(name));
    }
}

#[tokio::test]
async fn twins_among_directories_keep_the_mode_that_they_had() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for name in ["DIR", "Dir", "dir"] {
        source.add_file(format!("{name}/in"), name);
        destination.add_dir(name);
        let metadata = Metadata { mode: Some(0o555), ..Metadata::default() };
        let path = RelPath::parse(name.as_bytes()).unwrap();
        destination.set_metadata(&path, &metadata).await.unwrap();
    }
    let preserve = Preserve { mode: false, ..Preserve::default() };
    run(job(&source, &destination), Settings { preserve, ..settings() }).await.assert_clean();
    for name in ["DIR", "Dir", "dir"] {
        let path = RelPath::parse(name.as_bytes()).unwrap();
        assert_eq!(destination.stat(&path).await.unwrap().mode, Some(0o555), "{name}");
    }
}

#[tokio::test]
async fn equal_names_of_several_sources_are_an_error() {
    for builder in [MemoryStorage::builder(), MemoryStorage::builder().with_ids(false)] {
        // Without file numbers a run cannot distinguish its own lock from that of another.
        let builder = builder.with_capabilities(|can| can.lock = false);
        let destination = builder.ignoring_case().build();
        let (one, other) = (MemoryStorage::new(), MemoryStorage::new());
        one.add_file("README", "first");
        one.add_file("sub/x", "x");
        other.add_file("readme", "second");
        other.add_file("sub/y", "y");
        let jobs = || vec![job(&one, &destination), job(&other, &destination)];
        for _ in 0..2 {
            let outcome = run_jobs(jobs(), settings(), Cancel::default()).await;
            assert_eq!(outcome.summary.failed, 1, "{:?}", outcome.failures());
            let failure = outcome.failures()[0].to_string();
            assert!(failure.contains("treats this name as README"), "{failure}");
            assert_eq!(destination.content("README"), "first");
            assert_eq!(destination.content("sub/y"), "y");
        }
        let named = || {
            vec![
                job_at(&one, "README", &destination, "named/A"),
                job_at(&other, "readme", &destination, "named/a"),
            ]
        };
        for _ in 0..2 {
            let outcome = run_jobs(named(), settings(), Cancel::default()).await;
            assert_eq!(outcome.summary.failed, 1, "{:?}", outcome.failures());
            assert_eq!(destination.content("named/A"), "first");
        }
    }
}

/// FUSE file systems may report several inode numbers for one file.
#[tokio::test]
async fn delete_spares_a_file_that_was_just_copied_under_another_spelling() {
    for destination in folding() {
        let source = MemoryStorage::new();
        source.add_file("readme", "new");
        destination.add_file("README", "old!");
        destination.add_file("extra", b"");
        let settings = Settings { delete: true, ..settings() };
        run(job(&source, &destination), settings).await.assert_clean();
        assert_eq!(destination.content("readme"), "new");
        assert_eq!(destination.paths().len(), 1);
    }
}

/// Once, directories that the destination lists under other names were spared, with everything in them.
#[tokio::test]
async fn delete_looks_into_directories_that_the_destination_spells_differently() {
    for destination in folding() {
        destination.add_file("d/e/x", "x");
        destination.add_file("d/e/gone", "x");
        destination.add_file("d/gone/y", "x");
        destination.add_file("gone", "x");
        let source = MemoryStorage::new();
        source.add_file("D/E/x", "x");
        let settings = Settings { delete: true, ..settings() };
        let outcome = run_jobs(vec![job(&source, &destination)], settings, Cancel::default()).await;
        outcome.assert_clean();
        assert_eq!(destination.paths(), ["d/", "d/e/", "d/e/x"]);
    }
}
