//! Whole transfers between storages in memory: what arrives, what is reported, and what remains after
//! failures.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{job, job_at, path, run, run_until};
use haul_engine::{
    Action, Auto, Backup, Cancel, Compare, DeleteLimit, Event, Filter, Overwrite, Owners, Preserve,
    Settings,
};
use haul_storage::memory::{MemoryStorage, Operation, SimulatedLink};
use haul_storage::{
    CreateOptions, DigestKind, ErrorKind, LinkKind, Location, Medium, Metadata, RelPath, Retry,
    SpecialKind, Storage, TicketText, Timestamp, Writes,
};
use tokio::time::timeout;

fn quick() -> Settings {
    Settings { retry_pause: Duration::from_millis(1), ..Settings::default() }
}

/// A destination without server-side copy, so that bytes are written.
fn plain() -> Arc<MemoryStorage> {
    MemoryStorage::builder().with_capabilities(|can| can.server_copy = false).build()
}

/// The same with a journal.
fn recorded() -> Arc<MemoryStorage> {
    MemoryStorage::builder().with_capabilities(|can| can.server_copy = false).with_records().build()
}

/// Sizes that matter: empty, one byte, one below the limit of small files, a block, a record of the journal (1 MiB;
/// files have a journal from 2 MiB on), several ranges with a rest.
const SIZES: [usize; 9] =
    [0, 1, 65_535, 256 << 10, (256 << 10) + 1, 1 << 20, (1 << 20) + 1, 8 << 20, (9 << 20) + 77];

#[tokio::test]
async fn a_tree_arrives_unchanged() {
    let source = MemoryStorage::new();
    for (at, size) in SIZES.iter().enumerate() {
        source.add_pattern_file(format!("d{}/f{at}", at % 3), *size as u64, at as u64);
    }
    source.add_dir("empty/inside");
    source.add_symlink("d0/link", "../elsewhere");
    for digest in [None, Some(DigestKind::Blake3), Some(DigestKind::Sha256)] {
        let destination = MemoryStorage::new();
        let outcome = run(job(&source, &destination), Settings { digest, ..quick() }).await;
        outcome.assert_clean();
        for (at, size) in SIZES.iter().enumerate() {
            let name = format!("d{}/f{at}", at % 3);
            assert!(
                destination.is_pattern(&name, *size as u64, at as u64),
                "{name} with {digest:?}"
            );
        }
        assert_eq!(source.paths(), destination.paths());
        assert_eq!(outcome.summary.files, SIZES.len() as u64);
        assert_eq!(outcome.summary.bytes, SIZES.iter().map(|size| *size as u64).sum::<u64>());
        assert_eq!(outcome.summary.links, 1);
    }
}

#[tokio::test]
async fn digests_computed_during_the_copy_are_those_of_the_content() {
    let source = MemoryStorage::new();
    for (at, size) in SIZES.iter().enumerate() {
        source.add_pattern_file(format!("f{at}"), *size as u64, at as u64);
    }
    for kind in [DigestKind::Blake3, DigestKind::Sha256] {
        let destination = MemoryStorage::new();
        let settings = Settings { digest: Some(kind), verify: true, ..quick() };
        let outcome = run(job(&source, &destination), settings).await;
        outcome.assert_clean();
        let mut seen = 0;
        for event in &outcome.events {
            let Event::File(file) = event else { continue };
            let content = destination.content(file.path.as_bytes());
            assert_eq!(file.digest, Some(haul_engine::digest::Digest::of(kind, &content)));
            seen += 1;
        }
        assert_eq!(seen, SIZES.len());
    }
}

#[tokio::test]
async fn a_second_run_moves_nothing() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_pattern_file("a/big", 10 << 20, 1);
    source.add_file("a/small", "text");
    source.add_symlink("a/link", "small");
    run(job(&source, &destination), quick()).await.assert_clean();
    let again = run(job(&source, &destination), quick()).await;
    again.assert_clean();
    assert_eq!(again.summary.moved_bytes, 0);
    assert_eq!(again.summary.unchanged, 2);
    assert_eq!(again.summary.links, 0);
}

#[tokio::test]
async fn directories_get_their_times_and_modes_last() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("a/b/f", "x");
    for (dir, seconds) in [("a/b", 111), ("a", 222)] {
        let modified = Some(Timestamp { seconds, nanos: 5 });
        source.set(dir, &Metadata { mode: Some(0o555), modified, ..Metadata::default() });
    }
    run(job(&source, &destination), quick()).await.assert_clean();
    for dir in ["a", "a/b"] {
        assert_eq!(destination.entry(dir).modified, source.entry(dir).modified, "{dir}");
        assert_eq!(destination.entry(dir).mode, Some(0o555));
    }
}

#[tokio::test]
async fn overwrite_decides_whether_an_existing_file_is_replaced() {
    for (how, replaced) in [
        (Overwrite::Different, true),
        (Overwrite::Never, false),
        (Overwrite::Always, true),
        (Overwrite::Newer, false),
    ] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("f", "new");
        source.set_modified("f", 100);
        destination.add_file("f", "longer and newer");
        destination.set_modified("f", 200);
        let settings = Settings { overwrite: how, ..quick() };
        run(job(&source, &destination), settings).await.assert_clean();
        let expected: &[u8] = if replaced { b"new" } else { b"longer and newer" };
        assert_eq!(destination.content("f"), expected, "{how:?}");
    }
}

#[tokio::test]
async fn a_dry_run_changes_nothing_and_reports_what_it_would_do() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("d/f", "x");
    destination.add_file("old", "y");
    let settings = Settings { dry_run: true, delete: true, ..quick() };
    let outcome = run(job(&source, &destination), settings).await;
    outcome.assert_clean();
    assert_eq!(destination.paths(), ["old"]);
    let reported: Vec<_> = outcome
        .events
        .iter()
        .filter_map(|event| match event {
            Event::File(file) => Some((file.path.to_string(), file.action, file.dry_run)),
            _ => None,
        })
        .collect();
    assert!(reported.contains(&("d/f".to_owned(), Action::Copied, true)), "{reported:?}");
    assert!(reported.contains(&("old".to_owned(), Action::Removed, true)), "{reported:?}");
}

#[tokio::test]
async fn delete_removes_entries_that_the_source_does_not_have() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("keep/f", "x");
    source.add_file("becomes_file", "x");
    source.add_dir("becomes_dir");
    destination.add_file("keep/f", "x");
    destination.add_file("keep/old/deep", "x");
    destination.add_file("becomes_file/inner", "x");
    destination.add_file("becomes_dir", "x");
    let outcome = run(job(&source, &destination), Settings { delete: true, ..quick() }).await;
    outcome.assert_clean();
    assert_eq!(destination.paths(), source.paths());
}

/// The listing leaves out as many entries as are removed while it runs.
#[tokio::test]
async fn delete_removes_a_directory_although_its_listings_leave_entries_out() {
    let source = MemoryStorage::new();
    let destination = MemoryStorage::builder().listing_by_position().build();
    source.add_file("keep", "x");
    destination.add_file("keep", "x");
    (0..5000).for_each(|at| destination.add_file(format!("old/deep/{at}"), "x"));
    let outcome = run(job(&source, &destination), Settings { delete: true, ..quick() }).await;
    outcome.assert_clean();
    assert_eq!(destination.paths(), source.paths());
}

/// `--exclude=build/`: a pattern for directories, and a file of that name at the destination. The file is removed,
/// as by rsync: the source has no file `build`, and its excluded directory does not count.
#[tokio::test]
async fn delete_removes_a_file_that_has_the_name_of_an_excluded_directory() {
    for with_other in [true, false] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("build/o", "object");
        source.add_file("kept", "kept");
        destination.add_file("build", "old");
        if with_other {
            destination.add_file("extra", "extra");
        }
        let filter = Filter::new(|path, is_dir| !(is_dir && path == b"build"));
        let settings = Settings { delete: true, filter, ..Settings::default() };
        run(job(&source, &destination), settings).await.assert_clean();
        assert_eq!(destination.paths(), ["kept"]);
    }
}

/// Formerly, only locations on disks and servers were compared, and the source was removed.
#[tokio::test]
async fn delete_refuses_a_destination_around_the_source_in_a_share() {
    let share = |secret: &str, address: &str, path: &str| {
        let (key, secret) = ("a".repeat(60), secret.repeat(24));
        let ticket = TicketText::new(format!("haul1{key}{secret}{address}"));
        MemoryStorage::builder().with_location(Location::Peer { ticket, path: path.into() }).build()
    };
    // The same ticket, one with another address, and one of another share.
    for (secret, address, is_refused) in [("b", "c", true), ("b", "d", true), ("e", "c", false)] {
        let (source, destination) = (share("b", "c", "a"), share(secret, address, ""));
        source.add_file("b/f", "x");
        destination.add_file("a/b/f", "x");
        let settings = Settings { delete: true, ..quick() };
        let outcome = run(job_at(&source, "b", &destination, "a"), settings).await;
        assert_eq!(outcome.summary.failed, u64::from(is_refused), "{secret} {address}");
        assert_eq!(destination.exists("a/b/f"), is_refused, "{secret} {address}");
    }
}

/// Formerly, they stayed writable for their owner, unless the removal failed only because they were not empty.
#[tokio::test]
async fn directories_that_could_not_be_removed_keep_their_modes() {
    for (operation, at) in [
        (Operation::Remove, "old/in"),
        (Operation::Remove, "old/in/f"),
        (Operation::List, "old/in"),
    ] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("f", "x");
        destination.add_file("old/in/f", "x");
        let mode = |mode| Metadata { mode: Some(mode), ..Metadata::default() };
        destination.set("old/in", &mode(0o500));
        destination.set("old", &mode(0o555));
        destination.faults().on(operation).path(at).fail(ErrorKind::PermissionDenied);
        let outcome = run(job(&source, &destination), Settings { delete: true, ..quick() }).await;
        assert_eq!(outcome.summary.failed, 1, "{operation:?} {at}");
        let modes = ["old", "old/in"].map(|name| destination.entry(name).mode);
        assert_eq!(modes, [Some(0o555), Some(0o500)], "{operation:?} {at}");
    }
}

#[tokio::test]
async fn delete_spares_entries_that_the_filter_excludes() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("f", "x");
    for name in ["old/spared.log", "old/gone", "gone/deep/x", "other.log"] {
        destination.add_file(name, "x");
    }
    let filter = Filter::new(|path, _| !path.ends_with(b".log"));
    let settings = Settings { delete: true, filter, ..quick() };
    run(job(&source, &destination), settings).await.assert_clean();
    assert_eq!(destination.paths(), ["f", "old/", "old/spared.log", "other.log"]);
}

/// Once, it was copied completely, could not be renamed onto the directory, and its part file stayed.
#[tokio::test]
async fn a_file_in_whose_place_is_a_directory_with_excluded_files_is_not_copied() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_pattern_file("name", 3 << 20, 7);
    destination.add_file("name/spared.log", "x");
    destination.add_file("name/gone", "x");
    let filter = Filter::new(|path, _| !path.ends_with(b".log"));
    let settings = Settings { delete: true, filter, ..quick() };
    let ran = run(job(&source, &destination), settings).await;
    assert_eq!((ran.summary.failed, ran.summary.moved_bytes), (1, 0));
    assert_eq!(destination.paths(), ["name/", "name/spared.log"]);
    assert!(!destination.has_part("name"));
}

#[tokio::test]
async fn no_byte_is_moved_twice() {
    for server_copy in [true, false] {
        let source = MemoryStorage::new();
        let destination =
            MemoryStorage::builder().with_capabilities(|can| can.server_copy = server_copy).build();
        source.add_pattern_file("f", (37 << 20) + 1, 1);
        let outcome = run(job(&source, &destination), quick()).await;
        outcome.assert_clean();
        assert_eq!(outcome.summary.moved_bytes, (37 << 20) + 1);
    }
}

#[tokio::test]
async fn an_entry_whose_source_cannot_be_checked_is_not_removed() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("f", "x");
    destination.add_file("old", "x");
    source.faults().on(Operation::Stat).path("old").fail(ErrorKind::PermissionDenied);
    let outcome = run(job(&source, &destination), Settings { delete: true, ..quick() }).await;
    assert_eq!(outcome.summary.failed, 1);
    assert!(destination.exists("old"));
}

#[tokio::test]
async fn one_unreadable_file_does_not_stop_the_others() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for at in 0..10 {
        source.add_file(format!("f{at}"), "x");
    }
    source.faults().on(Operation::ReadWhole).path("f3").fail(ErrorKind::PermissionDenied);
    let outcome = run(job(&source, &destination), quick()).await;
    assert_eq!(outcome.summary.failed, 1);
    assert_eq!(outcome.failures()[0].kind(), ErrorKind::PermissionDenied);
    assert!(outcome.failures()[0].location().ends_with("f3"));
    assert_eq!(destination.paths().len(), 9);
}

#[tokio::test]
async fn files_in_the_way_of_directories_and_the_reverse_are_errors() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("a/f", "x");
    source.add_file("b", "x");
    source.add_file("c", "x");
    destination.add_file("a", "file where a directory is needed");
    destination.add_dir("b");
    let outcome = run(job(&source, &destination), quick()).await;
    let kinds: Vec<_> = outcome.failures().iter().map(|error| error.kind()).collect();
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    assert!(kinds.contains(&ErrorKind::NotADirectory) && kinds.contains(&ErrorKind::IsADirectory));
    assert_eq!(destination.content("c"), &b"x"[..]);
    assert_eq!(destination.content("a"), &b"file where a directory is needed"[..]);
}

#[tokio::test]
async fn special_files_are_skipped_with_a_warning() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_special("pipe", SpecialKind::Fifo);
    source.add_file(".x.haul-part", "unfinished");
    source.add_file("f", "x");
    let outcome = run(job(&source, &destination), quick()).await;
    outcome.assert_clean();
    assert_eq!(outcome.summary.skipped, 2);
    assert!(outcome.warnings().iter().any(|text| text.contains("pipe: is a named pipe")));
    assert_eq!(destination.paths(), ["f"]);
}

#[tokio::test]
async fn a_file_whose_source_keeps_changing_restarts_and_then_fails() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_pattern_file("f", 3 << 20, 1);
    source.faults().on(Operation::Recheck).nth(1).change();
    let outcome = run(job(&source, &destination), quick()).await;
    outcome.assert_clean();
    assert_eq!(outcome.summary.retries, 1);

    let destination = MemoryStorage::new();
    source.faults().on(Operation::Recheck).change();
    let outcome = run(job(&source, &destination), quick()).await;
    assert_eq!(outcome.failures()[0].kind(), ErrorKind::Changed);
    assert!(destination.paths().is_empty());
    assert!(!destination.has_part("f"), "a mixture of versions must not be continued");
}

#[tokio::test]
async fn a_source_that_shrinks_or_vanishes_leaves_no_incomplete_file() {
    for large in [false, true] {
        let (source, destination) = (MemoryStorage::new(), plain());
        let size = if large { 3 << 20 } else { 1000 };
        let read = if large { Operation::Read } else { Operation::ReadWhole };
        source.add_pattern_file("shrinks", size, 1);
        source.add_pattern_file("vanishes", size, 2);
        source.faults().on(read).path("shrinks").resize(size / 2);
        source.faults().on(Operation::Stat).path("vanishes").vanish();
        let opening = if large { Operation::Open } else { Operation::ReadWhole };
        source.faults().on(opening).path("vanishes").fail(ErrorKind::NotFound);
        let outcome = run(job(&source, &destination), quick()).await;
        let whole = destination.paths();
        if whole.contains(&"shrinks".to_owned()) {
            assert!(destination.is_pattern("shrinks", size / 2, 1), "whole in its new length");
        }
        assert!(!whole.contains(&"vanishes".to_owned()));
        assert!(outcome.failures().iter().any(|error| error.kind() == ErrorKind::NotFound));
    }
}

#[tokio::test]
async fn a_source_that_grows_while_it_is_read_arrives_with_its_new_length() {
    let (source, destination) = (MemoryStorage::new(), plain());
    source.add_pattern_file("f", 3 << 20, 1);
    source.faults().on(Operation::Read).nth(2).resize(5 << 20);
    let outcome = run(job(&source, &destination), quick()).await;
    outcome.assert_clean();
    assert_eq!(outcome.summary.retries, 1);
    assert_eq!(destination.content("f"), source.content("f"));
    assert_eq!(destination.content("f").len(), 5 << 20);
}

#[tokio::test]
async fn transient_failures_are_retried() {
    for digest in [None, Some(DigestKind::Sha256)] {
        let (source, destination) = (MemoryStorage::new(), plain());
        source.add_pattern_file("large", 5 << 20, 1);
        source.add_file("small", "x");
        let (reads, writes) = (source.faults(), destination.faults());
        reads.on(Operation::Read).first(2).fail_with(ErrorKind::Unreachable, Retry::Later);
        writes.on(Operation::Write).nth(3).fail_with(ErrorKind::Busy, Retry::Later);
        writes.on(Operation::WriteWhole).nth(1).fail_with(ErrorKind::Busy, Retry::Later);
        let outcome = run(job(&source, &destination), Settings { digest, ..quick() }).await;
        outcome.assert_clean();
        assert!(outcome.summary.retries >= 4, "{}", outcome.summary.retries);
        assert!(destination.is_pattern("large", 5 << 20, 1));
        assert_eq!(destination.content("small"), "x");
    }
}

#[tokio::test]
async fn a_full_destination_is_an_error_and_leaves_nothing_under_a_final_name() {
    let source = MemoryStorage::new();
    let destination = MemoryStorage::builder().with_capacity(6 << 20).build();
    source.add_pattern_file("f", 20 << 20, 1);
    let outcome = run(job(&source, &destination), quick()).await;
    assert_eq!(outcome.failures()[0].kind(), ErrorKind::NoSpace);
    assert!(destination.paths().is_empty());
}

#[tokio::test]
async fn an_interrupted_copy_is_resumed() {
    for digest in [None, Some(DigestKind::Blake3), Some(DigestKind::Sha256)] {
        let source = MemoryStorage::new();
        let destination = recorded();
        source.add_pattern_file("f", 40 << 20, 1);
        // All writes from the 20th on fail, as if the process had been killed there.
        destination.faults().on(Operation::Write).from(20).fail(ErrorKind::Io);
        let settings = Settings { digest, ..quick() };
        let broken = run(job(&source, &destination), settings.clone()).await;
        assert_eq!(broken.summary.failed, 1);
        assert!(destination.has_part("f"));
        destination.faults().clear();
        let again = run(job(&source, &destination), settings).await;
        again.assert_clean();
        assert!(destination.is_pattern("f", 40 << 20, 1));
        assert!(again.summary.resumed_bytes >= 4 << 20, "{}", again.summary.resumed_bytes);
        assert_eq!(again.summary.resumed_bytes + again.summary.moved_bytes, 40 << 20);
    }
}

#[tokio::test]
async fn a_file_restarts_with_a_warning_if_its_journal_is_of_another_version_of_the_source() {
    let source = MemoryStorage::new();
    let destination = recorded();
    source.add_pattern_file("f", 40 << 20, 1);
    destination.faults().on(Operation::Write).from(20).fail(ErrorKind::Io);
    run(job(&source, &destination), quick()).await;
    destination.faults().clear();
    source.add_pattern_file("f", 40 << 20, 2);
    source.set_modified("f", 12345);
    let again = run(job(&source, &destination), quick()).await;
    again.assert_clean();
    assert_eq!(again.summary.resumed_bytes, 0);
    assert!(again.warnings()[0].contains("belongs to another source"), "{:?}", again.warnings());
    assert!(destination.is_pattern("f", 40 << 20, 2));
}

#[tokio::test]
async fn cancelling_ends_soon_and_keeps_partial_files() {
    let source = MemoryStorage::new();
    let destination = recorded();
    source.add_pattern_file("f", 64 << 20, 1);
    let cancel = Cancel::default();
    destination.faults().on(Operation::Write).delay(Duration::from_millis(5));
    let stop = {
        let (cancel, faults) = (cancel.clone(), destination.faults().clone());
        async move {
            while faults.count(Operation::Record) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            cancel.cancel();
        }
    };
    let (outcome, ()) = tokio::join!(run_until(job(&source, &destination), quick(), cancel), stop);
    assert!(outcome.summary.interrupted);
    assert_eq!(outcome.summary.failed, 0, "stopping is no failure");
    assert!(destination.has_part("f"));
    destination.faults().clear();
    let again = run(job(&source, &destination), quick()).await;
    again.assert_clean();
    assert!(again.summary.resumed_bytes > 0);
    assert!(destination.is_pattern("f", 64 << 20, 1));
}

/// Once, an interrupted copy waited for 60 s for a server that sent nothing any more.
#[tokio::test(start_paused = true)]
async fn cancelling_ends_soon_even_if_an_operation_never_ends() {
    let of_source = [
        Operation::Stat,
        Operation::List,
        Operation::Open,
        Operation::Read,
        Operation::ReadWhole,
        Operation::Recheck,
    ];
    let of_destination = [
        Operation::CreateDir,
        Operation::Create,
        Operation::Write,
        Operation::WriteWhole,
        Operation::Commit,
    ];
    let sides = [(&of_source[..], true), (&of_destination[..], false)];
    for (operation, is_source) in
        sides.iter().flat_map(|(all, side)| all.iter().map(|one| (*one, *side)))
    {
        let link = SimulatedLink::new(Duration::from_millis(20), 10 << 20);
        let source = MemoryStorage::builder().with_link(link).build();
        let destination = MemoryStorage::new();
        source.add_pattern_file("d/large", 4 << 20, 1);
        source.add_pattern_file("d/small", 1000, 1);
        let stalls = if is_source { &source } else { &destination };
        stalls.faults().on(operation).stall();
        let cancel = Cancel::default();
        let begun = tokio::time::Instant::now();
        let stop = async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            cancel.cancel();
        };
        let running = run_until(job(&source, &destination), quick(), cancel.clone());
        let (outcome, ()) = tokio::join!(running, stop);
        assert!(outcome.summary.interrupted, "{operation:?}");
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(12), "{operation:?}: {took:?}");
    }
}

#[tokio::test]
async fn a_destination_that_takes_bytes_in_order_gets_them_in_order() {
    for digest in [None, Some(DigestKind::Blake3)] {
        let source = MemoryStorage::new();
        let destination = MemoryStorage::builder()
            .with_capabilities(|can| {
                can.writes = Writes::InOrder;
                can.resume = false;
            })
            .build();
        source.add_pattern_file("f", (30 << 20) + 5, 1);
        let outcome = run(job(&source, &destination), Settings { digest, ..quick() }).await;
        outcome.assert_clean();
        assert!(destination.is_pattern("f", (30 << 20) + 5, 1));
    }
}

#[tokio::test]
async fn a_source_without_ranges_is_read_in_order() {
    let source = MemoryStorage::builder().with_capabilities(|can| can.ranged_reads = false).build();
    let destination = MemoryStorage::new();
    source.add_pattern_file("f", (30 << 20) + 5, 1);
    run(job(&source, &destination), quick()).await.assert_clean();
    assert!(destination.is_pattern("f", (30 << 20) + 5, 1));
}

#[tokio::test]
async fn holes_stay_holes_and_count_in_the_digest() {
    let source = MemoryStorage::new();
    source.add_sparse_file("f", 64 << 20, &[(0, b"head"), (20 << 20, b"middle")]);
    for digest in [None, Some(DigestKind::Blake3), Some(DigestKind::Sha256)] {
        let destination = MemoryStorage::new();
        let outcome = run(job(&source, &destination), Settings { digest, ..quick() }).await;
        outcome.assert_clean();
        assert_eq!(destination.content("f"), source.content("f"));
        let held: u64 = destination.ranges("f").iter().map(|range| range.len()).sum();
        assert!(held < 4 << 20, "{held} bytes are data");
        assert_eq!(outcome.summary.bytes, 64 << 20);
    }
}

#[tokio::test]
async fn hard_links_within_a_copy_stay_hard_links() {
    use haul_storage::{LinkKind, Storage};
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_pattern_file("a/one", 2 << 20, 1);
    let link = LinkKind::Hard(path("a/one"));
    source.create_link(&path("two"), &link, false).await.unwrap();
    source.create_link(&path("a/three"), &link, false).await.unwrap();
    let settings = Settings { digest: Some(DigestKind::Sha256), ..quick() };
    let outcome = run(job(&source, &destination), settings).await;
    outcome.assert_clean();
    let id = destination.entry("a/one").id;
    assert!(id.is_some());
    assert_eq!(destination.entry("two").id, id);
    assert_eq!(destination.entry("a/three").id, id);
    assert_eq!(outcome.summary.moved_bytes, 2 << 20);
    assert_eq!(outcome.summary.files, 3);
}

/// Once, a rerun copied further names of an existing file as files of their own.
#[tokio::test]
async fn a_rerun_links_further_names_to_an_existing_file() {
    use haul_storage::{LinkKind, Storage};
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_pattern_file("one", 2 << 20, 1);
    let link = LinkKind::Hard(path("one"));
    source.create_link(&path("two"), &link, false).await.unwrap();
    run(job(&source, &destination), quick()).await.assert_clean();
    for missing in ["one", "two"] {
        destination.take_away(missing);
        let again = run(job(&source, &destination), quick()).await;
        again.assert_clean();
        assert!(destination.entry("one").id.is_some());
        assert_eq!(destination.entry("one").id, destination.entry("two").id, "without {missing}");
        let unchanged = run(job(&source, &destination), quick()).await;
        assert_eq!(unchanged.assert_clean().summary.unchanged, 2);
    }
}

/// A killed run may reach the names in another order, and begin to copy the one that the next run links.
/// Regression: on a server its part file remained, and on a disk if a run was killed between the two steps.
#[tokio::test]
async fn a_name_that_is_linked_keeps_no_part_file() {
    for medium in [Medium::Disk, Medium::Link] {
        let source = MemoryStorage::new();
        let destination =
            MemoryStorage::builder().with_capabilities(|can| can.medium = medium).build();
        source.add_pattern_file("one", 2 << 20, 1);
        source.create_link(&path("two"), &LinkKind::Hard(path("one")), false).await.unwrap();
        run(job(&source, &destination), quick()).await.assert_clean();
        for is_linked in [false, true] {
            if !is_linked {
                destination.take_away("two");
            }
            destination.add_file(".two.haul-part", "begun");
            if medium == Medium::Disk {
                destination.add_file(".two.haul-journal", "begun");
            }
            run(job(&source, &destination), quick()).await.assert_clean();
            assert_eq!(destination.paths(), ["one", "two"], "{medium:?}, {is_linked}");
            assert_eq!(destination.entry("one").id, destination.entry("two").id);
        }
    }
}

/// On a server without locks, another run may be about to rename the part file. Formerly, it was emptied first.
#[tokio::test]
async fn the_part_file_of_a_linked_name_is_removed_as_it_is() {
    let source = MemoryStorage::new();
    let destination =
        MemoryStorage::builder().with_capabilities(|can| can.medium = Medium::Link).build();
    source.add_pattern_file("one", 2 << 20, 1);
    source.create_link(&path("two"), &LinkKind::Hard(path("one")), false).await.unwrap();
    run(job(&source, &destination), quick()).await.assert_clean();
    destination.add_file(".two.haul-part", "written");
    // As if the run ended before the removal.
    destination.faults().on(Operation::Abort).fail(ErrorKind::PermissionDenied);
    run(job(&source, &destination), quick()).await;
    assert_eq!(destination.content(".two.haul-part"), "written");
}

#[tokio::test]
async fn the_part_file_that_another_run_is_writing_stays_beside_a_linked_name() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_pattern_file("one", 2 << 20, 1);
    source.create_link(&path("two"), &LinkKind::Hard(path("one")), false).await.unwrap();
    run(job(&source, &destination), quick()).await.assert_clean();
    let other = destination.create(&path("two"), &CreateOptions::default()).await.unwrap();
    run(job(&source, &destination), quick()).await.assert_clean();
    assert!(destination.has_part("two"));
    other.abort(false).await.unwrap();
    assert!(!destination.has_part("two"));
}

/// Once, an existing link with the right target kept its owner and time.
#[tokio::test]
async fn an_existing_symbolic_link_gets_owner_and_time_of_the_source() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for (storage, seconds, owner) in [(&source, 100, (7, 8)), (&destination, 200, (0, 0))] {
        storage.add_symlink("link", "target");
        let time = Timestamp { seconds, nanos: 0 };
        let metadata = Metadata { modified: Some(time), owner: Some(owner), ..Metadata::default() };
        storage.set_metadata(&path("link"), &metadata).await.unwrap();
    }
    let never = Settings { overwrite: Overwrite::Never, ..quick() };
    run(job(&source, &destination), never).await.assert_clean();
    assert_eq!(destination.entry("link").modified.unwrap().seconds, 200);
    run(job(&source, &destination), quick()).await.assert_clean();
    assert_eq!(destination.entry("link").modified.unwrap().seconds, 100);
    assert_eq!(destination.entry("link").owner, Some((0, 0)));
    let preserve = Preserve { owner: true, ..Preserve::default() };
    run(job(&source, &destination), Settings { preserve, ..quick() }).await.assert_clean();
    assert_eq!(destination.entry("link").owner, Some((7, 8)));
}

/// Once, the manifest had the digest of the source for a file that was not replaced, unless it was on a disk.
#[tokio::test]
async fn the_digest_of_a_file_that_is_not_replaced_is_its_own() {
    let source = MemoryStorage::new();
    let destination =
        MemoryStorage::builder().with_capabilities(|can| can.medium = Medium::Link).build();
    source.add_file("f", "new");
    destination.add_file("f", "old");
    for overwrite in [Overwrite::Never, Overwrite::Newer] {
        let kind = Some(DigestKind::Sha256);
        let settings = Settings { overwrite, digest: kind, digest_unchanged: true, ..quick() };
        let outcome = run(job(&source, &destination), settings).await;
        outcome.assert_clean();
        let own = haul_engine::digest::Digest::of(DigestKind::Sha256, b"old");
        let is_own = |event: &Event| matches!(event, Event::File(file) if file.digest == Some(own));
        assert!(outcome.events.iter().any(is_own), "{overwrite:?}");
    }
}

#[tokio::test]
async fn a_second_run_on_one_destination_is_refused() {
    use haul_storage::Storage;
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("d/f", "x");
    destination.add_dir("d");
    let lock = destination.lock(&path("d")).await.unwrap();
    let outcome = run(job_at(&source, "d", &destination, "d"), quick()).await;
    assert_eq!(outcome.failures()[0].kind(), ErrorKind::Busy);
    // Nor does it delete what the other run has copied.
    destination.add_file("d/of the other run", "x");
    for ignore_errors in [false, true] {
        let settings = Settings { delete: true, ignore_errors, ..quick() };
        let outcome = run(job_at(&source, "d", &destination, "d"), settings).await;
        assert_eq!(outcome.failures()[0].kind(), ErrorKind::Busy);
        assert!(destination.exists("d/of the other run"));
    }
    drop(lock);
    run(job_at(&source, "d", &destination, "d"), quick()).await.assert_clean();
}

#[tokio::test]
async fn a_transfer_stays_within_its_bandwidth_limit() {
    tokio::time::pause();
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_pattern_file("f", 20 << 20, 1);
    let settings = Settings { bandwidth_limit: Some(1 << 20), ..quick() };
    let outcome = run(job(&source, &destination), settings).await;
    outcome.assert_clean();
    let seconds = outcome.summary.elapsed.as_secs_f64();
    assert!((18.0..22.0).contains(&seconds), "{seconds} s for 20 MiB at 1 MiB/s");
}

/// A server may report entries that the user may not access as missing.
#[tokio::test]
async fn an_entry_that_the_source_lists_but_does_not_find_is_not_removed() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("closed/f", "x");
    source.add_file("f", "x");
    destination.add_file("closed/f", "x");
    destination.add_file("old", "x");
    source.faults().on(Operation::Stat).path("closed").fail(ErrorKind::NotFound);
    let outcome = run(job(&source, &destination), Settings { delete: true, ..quick() }).await;
    outcome.assert_clean();
    assert_eq!(destination.paths(), source.paths());
    // An incomplete listing removes nothing.
    destination.add_file("old", "x");
    source.faults().on(Operation::ListEntry).path("f").fail(ErrorKind::PermissionDenied);
    let outcome = run(job(&source, &destination), Settings { delete: true, ..quick() }).await;
    assert!(outcome.summary.failed > 0);
    assert!(destination.exists("old"));
}

#[tokio::test]
async fn a_name_in_another_case_is_not_removed_where_case_is_ignored() {
    for (has_ids, ignores_case) in [(true, true), (false, true), (true, false), (false, false)] {
        let source = MemoryStorage::new();
        let destination = MemoryStorage::builder().with_ids(has_ids);
        let destination = if ignores_case { destination.ignoring_case() } else { destination };
        let destination = destination.build();
        source.add_file("README", "new content");
        source.add_file("x", "");
        destination.add_file("readme", "content");
        destination.add_file("X", "");
        destination.add_file("other", "x");
        let settings = Settings { delete: true, ..quick() };
        run(job(&source, &destination), settings).await.assert_clean();
        // Where case matters, the old file is one that the source does not have.
        assert_eq!(destination.paths().len(), 2, "{:?}", destination.paths());
        assert!(destination.exists("README") && destination.exists("x"));
    }
}

#[tokio::test]
async fn no_name_is_linked_to_a_file_that_was_not_replaced() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("a", "content");
    source.create_link(&path("b"), &LinkKind::Hard(path("a")), false).await.unwrap();
    destination.add_file("a", "mine");
    let preserve = Preserve { hard_links: true, ..Preserve::default() };
    let settings = Settings { overwrite: Overwrite::Never, preserve, ..quick() };
    run(job(&source, &destination), settings.clone()).await.assert_clean();
    assert_eq!(&destination.content("a")[..], b"mine");
    assert_eq!(&destination.content("b")[..], b"content");
    // An equal file was left by an earlier run.
    let destination = MemoryStorage::new();
    run(job(&source, &destination), quick()).await.assert_clean();
    destination.remove(&path("b")).await.unwrap();
    run(job(&source, &destination), settings).await.assert_clean();
    let entries = [destination.stat(&path("a")).await, destination.stat(&path("b")).await];
    let [a, b] = entries.map(|entry| entry.unwrap().id);
    assert_eq!(a, b, "they are one file");
}

/// Names that are missing in an incomplete listing may exist. As with rsync, nothing is removed then, not
/// even in directories that were listed.
#[tokio::test]
async fn after_a_failed_listing_nothing_is_removed_unless_errors_are_ignored() {
    for operation in [Operation::List, Operation::ListEntry] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("a/f", "x");
        source.add_file("z/f", "x");
        destination.add_file("a/old", "x");
        destination.add_file("old", "x");
        let at = if operation == Operation::List { "z" } else { "z/f" };
        source.faults().on(operation).path(at).fail(ErrorKind::PermissionDenied);
        let settings = Settings { delete: true, ..quick() };
        let outcome = run(job(&source, &destination), settings.clone()).await;
        assert_eq!(outcome.summary.failed, 1);
        assert!(destination.exists("old") && destination.exists("a/old"), "{operation:?}");
        assert!(outcome.warnings()[0].contains("nothing is removed"), "{:?}", outcome.warnings());
        source.faults().clear();
        source.faults().on(operation).path(at).first(1).fail(ErrorKind::PermissionDenied);
        let settings = Settings { ignore_errors: true, ..settings };
        run(job(&source, &destination), settings).await;
        assert!(!destination.exists("old") && !destination.exists("a/old"), "{operation:?}");
    }
}

#[tokio::test]
async fn a_refused_hard_link_becomes_a_copy() {
    // EMLINK is `Io`.
    let (denied, too_many) = (ErrorKind::PermissionDenied, ErrorKind::Io);
    for kind in [ErrorKind::Unsupported, denied, too_many, ErrorKind::Other] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("a", "content");
        for name in ["b", "c"] {
            let link = LinkKind::Hard(path("a"));
            source.create_link(&path(name), &link, false).await.unwrap();
        }
        destination.faults().on(Operation::CreateLink).fail(kind);
        let outcome = run(job(&source, &destination), quick()).await;
        outcome.assert_clean();
        for name in ["a", "b", "c"] {
            assert_eq!(destination.content(name), "content", "{kind:?}");
        }
        let warnings = outcome.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("hard link was refused"), "{warnings:?}");
        let again = run(job(&source, &destination), quick()).await;
        assert_eq!(again.assert_clean().summary.unchanged, 3);
    }
}

#[tokio::test]
async fn an_empty_source_is_refused_only_if_something_would_be_removed() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    let settings = Settings { delete: true, ..quick() };
    run(job(&source, &destination), settings.clone()).await.assert_clean();
    destination.add_file("d/f", "x");
    let outcome = run(job(&source, &destination), settings.clone()).await;
    assert_eq!((outcome.summary.failed, outcome.summary.removed), (1, 0));
    assert!(destination.exists("d/f"));
    let settings = Settings { delete_from_empty: true, ..settings };
    run(job(&source, &destination), settings).await.assert_clean();
    assert!(destination.paths().is_empty());
}

/// Formerly, it was removed with all that was in it, whatever the limit, and after a failed listing, too.
#[tokio::test(start_paused = true)]
async fn a_directory_in_the_way_stays_under_a_delete_limit_and_after_a_failed_listing() {
    let limited = Settings { delete_limit: Some(DeleteLimit::Entries(0)), ..quick() };
    for (limit, fails) in [(true, false), (false, true), (false, false)] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("a/f", "x");
        source.add_file("x", "file");
        destination.add_file("x/kept", "precious");
        if fails {
            source.faults().on(Operation::List).path("a").fail(ErrorKind::PermissionDenied);
            // The file is looked at only after the listing has failed.
            let later = Duration::from_millis(200);
            destination.faults().on(Operation::Stat).path("x").delay(later);
            destination.faults().on(Operation::List).delay(later);
        }
        let settings = if limit { limited.clone() } else { quick() };
        let settings = Settings { delete: true, ..settings };
        let outcome = run(job(&source, &destination), settings).await;
        assert_eq!(destination.exists("x/kept"), limit || fails, "{limit} {fails}");
        assert_eq!(outcome.summary.failed > 0, limit || fails, "{limit} {fails}");
    }
}

#[tokio::test]
async fn a_delete_limit_counts_entries_below_directories() {
    for (limit, removes) in [
        (DeleteLimit::Entries(2), false),
        (DeleteLimit::Entries(3), true),
        (DeleteLimit::Percent(74.0), false),
        (DeleteLimit::Percent(75.0), true),
    ] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("f", "x");
        destination.add_file("f", "x");
        destination.add_file("old/a", "x");
        destination.add_file("old/b", "x");
        let settings = Settings { delete: true, delete_limit: Some(limit), ..quick() };
        let outcome = run(job(&source, &destination), settings).await;
        assert_eq!(outcome.summary.failed, u64::from(!removes), "{limit:?}");
        assert_eq!(destination.exists("old/a"), !removes, "{limit:?}");
    }
}

#[tokio::test]
async fn a_lost_connection_is_not_a_refusal_of_hard_links() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("a", "content");
    source.create_link(&path("b"), &LinkKind::Hard(path("a")), false).await.unwrap();
    destination.faults().on(Operation::CreateLink).fail(ErrorKind::Unreachable);
    assert_eq!(run(job(&source, &destination), quick()).await.summary.failed, 1);
}

#[tokio::test]
async fn an_owner_that_an_ordinary_user_cannot_set_is_a_warning() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    let capability = (b"security.capability".to_vec(), b"x".to_vec());
    let comment = (b"user.comment".to_vec(), b"x".to_vec());
    for (name, owner) in [("mine", (7, 8)), ("theirs", (1, 8)), ("root", (0, 0))] {
        source.add_file(name, name);
        let xattrs = Some(vec![capability.clone(), comment.clone()]);
        let metadata = Metadata { mode: Some(0o4755), owner: Some(owner), xattrs, modified: None };
        source.set(name, &metadata);
    }
    let preserve = Preserve { owner: true, xattrs: true, ..Preserve::default() };
    let owners = Owners::Own { user: 7, groups: vec![8, 9] };
    let settings = Settings { preserve, owners, ..quick() };
    let outcome = run(job(&source, &destination), settings).await;
    outcome.assert_clean();
    assert_eq!(outcome.warnings().len(), 1, "{:?}", outcome.warnings());
    let found = |name: &str| {
        let found = destination.attributes(name);
        (found.owner, found.mode, found.xattrs.unwrap().len())
    };
    assert_eq!(found("mine"), (Some((7, 8)), Some(0o4755), 2));
    // Set-ID bits and capabilities are not kept with another owner.
    assert_eq!(found("theirs"), (Some((7, 8)), Some(0o755), 1));
    let (_, mode, xattrs) = found("root");
    assert_eq!((mode, xattrs), (Some(0o755), 1));
}

/// Once, a login page of 5 bytes was stored in place of a file that was listed with 5 MB.
#[tokio::test]
async fn a_source_that_opens_with_another_length_than_listed_is_refused() {
    for (listed, opened) in [(5_000_000, 5), (1000, 5), (5, 1000), (5, 5_000_000)] {
        let (source, destination) = (MemoryStorage::new(), plain());
        source.add_pattern_file("f", listed, 1);
        source.faults().on(Operation::Stat).path("f").resize(listed);
        source.faults().on(Operation::Open).path("f").resize(opened);
        source.faults().on(Operation::ReadWhole).path("f").resize(opened);
        let outcome = run(job_at(&source, "f", &destination, "f"), quick()).await;
        let failures = outcome.failures();
        assert!(destination.paths().is_empty(), "{listed} listed, {opened} opened");
        let text = failures[0].to_string();
        assert_eq!(failures[0].kind(), ErrorKind::Changed, "{text}");
        if opened <= 65536 || listed > 65536 {
            assert!(text.contains(&format!("{listed} bytes")), "{text}");
            assert!(text.contains(&format!("{opened} bytes")), "{text}");
        }
    }
}

#[tokio::test]
async fn a_file_that_changed_once_after_it_was_listed_is_copied_as_it_is_now() {
    for (before, now) in [(100, 200), (100, 3 << 20), (3 << 20, 100), (3 << 20, 5 << 20)] {
        let (source, destination) = (MemoryStorage::new(), plain());
        source.add_pattern_file("d/f", before, 1);
        source.add_pattern_file("d/other", 50, 2);
        let reading = if before <= 65536 { Operation::ReadWhole } else { Operation::Open };
        source.faults().on(reading).path("d/f").nth(1).resize(now);
        let outcome = run(job(&source, &destination), quick()).await;
        outcome.assert_clean();
        assert_eq!(destination.content("d/f"), source.content("d/f"));
        assert_eq!(destination.content("d/f").len() as u64, now);
        assert_eq!(outcome.summary.bytes, now + 50);
    }
}

/// Once, each range counted its own attempts, and the file those of all ranges again.
#[tokio::test]
async fn a_file_without_progress_fails_after_the_allowed_number_of_attempts() {
    let (source, destination) = (MemoryStorage::new(), plain());
    source.add_pattern_file("f", 8 << 20, 1);
    source.faults().on(Operation::Read).from(2).fail_with(ErrorKind::Unreachable, Retry::Later);
    let settings = Settings { retries: 3, digest: None, ..quick() };
    let outcome = run(job(&source, &destination), settings).await;
    let text = outcome.failures()[0].to_string();
    assert!(text.contains("4 attempts in a row made no progress"), "{text}");
    // 32 ranges of 256 KiB may be in flight at once.
    assert!(outcome.summary.retries <= 3 * 32, "{}", outcome.summary.retries);
}

#[tokio::test]
async fn a_file_with_progress_is_retried_without_limit() {
    let (source, destination) = (MemoryStorage::new(), plain());
    source.add_pattern_file("f", 3 << 20, 1);
    source.faults().on(Operation::Read).tear(100_000, ErrorKind::Unreachable);
    let outcome = run(job(&source, &destination), Settings { retries: 1, ..quick() }).await;
    outcome.assert_clean();
    assert!(outcome.summary.retries > 20);
    assert!(destination.is_pattern("f", 3 << 20, 1));
}

#[tokio::test]
async fn a_file_without_time_and_tag_is_not_resumed() {
    let build = || MemoryStorage::builder().with_modified(false).with_ids(false).build();
    let source = build();
    source.add_pattern_file("f", 20 << 20, 1);
    let destination = recorded();
    destination.faults().on(Operation::Write).from(20).fail(ErrorKind::NoSpace);
    run(job(&source, &destination), quick()).await;
    destination.faults().clear();
    let other = build();
    other.add_pattern_file("f", 20 << 20, 2);
    run(job(&other, &destination), quick()).await.assert_clean();
    assert!(destination.is_pattern("f", 20 << 20, 2), "a mixture of two versions");
}

#[tokio::test]
async fn a_file_of_unknown_length_is_read_to_its_end() {
    for size in SIZES {
        for digest in [None, Some(DigestKind::Blake3), Some(DigestKind::Sha256)] {
            let source = MemoryStorage::builder().without_sizes().build();
            let destination = plain();
            source.add_pattern_file("d/f", size as u64, 7);
            let settings = Settings { digest, verify: digest.is_some(), ..quick() };
            let outcome = run(job(&source, &destination), settings).await;
            outcome.assert_clean();
            assert!(destination.is_pattern("d/f", size as u64, 7), "{size} with {digest:?}");
            assert_eq!(outcome.summary.bytes, size as u64);
            // Its time shows that the file is unchanged.
            let again = run(job(&source, &destination), quick()).await;
            assert_eq!((again.summary.unchanged, again.summary.moved_bytes), (1, 0));
            let by_content = Settings { compare: Compare::Content, digest, ..quick() };
            let again = run(job(&source, &destination), by_content).await;
            assert_eq!(again.assert_clean().summary.unchanged, 1);
        }
    }
}

/// Formerly, the copy was taken to have "18446744073709551615 bytes".
#[tokio::test]
async fn a_copy_is_read_back_from_a_destination_that_reports_no_lengths() {
    for size in [1000, 3 << 20] {
        let source = MemoryStorage::new();
        source.add_pattern_file("f", size, 7);
        let destination = MemoryStorage::builder().without_sizes();
        let destination = destination.with_capabilities(|can| can.server_copy = false).build();
        // It can be read only under its name.
        destination.faults().on(Operation::Reopen).fail(ErrorKind::Unsupported);
        let digest = Some(DigestKind::Blake3);
        let settings = Settings { digest, verify: true, ..quick() };
        run(job(&source, &destination), settings).await.assert_clean();
        assert!(destination.is_pattern("f", size, 7));
    }
}

fn verified(has_backup: bool) -> Settings {
    let backup = Backup { base: RelPath::root(), directory: None, suffix: b"~".to_vec() };
    let backup = has_backup.then_some(backup);
    Settings { digest: Some(DigestKind::Blake3), verify: true, backup, ..quick() }
}

/// Formerly, it stayed under its name, and the next run took it for an unchanged copy.
#[tokio::test]
async fn a_corrupt_copy_that_can_be_read_only_under_its_name_does_not_stay() {
    for has_backup in [false, true] {
        let (source, destination) = (plain(), plain());
        source.add_pattern_file("f", 3 << 20, 7);
        destination.add_file("f", "old");
        destination.faults().on(Operation::Reopen).fail(ErrorKind::Unsupported);
        destination.faults().on(Operation::Read).path("f").nth(1).corrupt(17);
        let outcome = run(job(&source, &destination), verified(has_backup)).await;
        let failures = outcome.failures();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert_eq!(failures[0].kind(), ErrorKind::Corrupt);
        assert_eq!(destination.exists("f"), has_backup);
        if has_backup {
            assert_eq!(destination.content("f"), "old");
        }
        assert!(!destination.exists("f~"));
        run(job(&source, &destination), verified(has_backup)).await.assert_clean();
        assert!(destination.is_pattern("f", 3 << 20, 7));
        assert_eq!(destination.exists("f~"), has_backup);
    }
}

/// Formerly, the old version on a server, where existing files are not looked up in advance, kept the name of its
/// backup.
#[tokio::test]
async fn the_old_version_on_a_server_gets_its_name_back_after_a_corrupt_copy() {
    for fails in [false, true] {
        let source = plain();
        source.add_pattern_file("d/f", 3 << 20, 7);
        let link = SimulatedLink::new(Duration::from_millis(1), 100_000_000);
        let far = MemoryStorage::builder().with_link(link);
        let destination = far.with_capabilities(|can| can.server_copy = false).build();
        destination.add_file("d/f", "old");
        destination.faults().on(Operation::Reopen).fail(ErrorKind::Unsupported);
        destination.faults().on(Operation::Read).path("d/f").nth(1).corrupt(17);
        if fails {
            destination
                .faults()
                .on(Operation::Rename)
                .path("d/f~")
                .fail(ErrorKind::PermissionDenied);
        }
        let outcome = run(job(&source, &destination), verified(true)).await;
        let failures = outcome.failures();
        assert_eq!(failures.len(), 1, "{failures:?}");
        if fails {
            let cause = failures[0].cause();
            assert!(cause.contains("its old version is memory:d/f~"), "{cause}");
        } else {
            assert_eq!(destination.content("d/f"), "old");
        }
        assert_eq!(destination.exists("d/f~"), fails);
    }
}

/// Formerly, the file was copied again, which replaced the backup by the new version.
#[tokio::test]
async fn a_broken_read_of_a_file_under_its_name_is_retried_alone() {
    let (source, destination) = (plain(), plain());
    source.add_pattern_file("f", 3 << 20, 7);
    destination.add_file("f", "old");
    destination.faults().on(Operation::Reopen).fail(ErrorKind::Unsupported);
    destination.faults().on(Operation::Open).path("f").first(2).fail(ErrorKind::Unreachable);
    run(job(&source, &destination), verified(true)).await.assert_clean();
    assert!(destination.is_pattern("f", 3 << 20, 7));
    assert_eq!(destination.content("f~"), "old");
    assert_eq!(destination.faults().count(Operation::Commit), 1);
}

#[tokio::test]
async fn a_file_of_unknown_length_restarts_when_its_stream_breaks() {
    let source = MemoryStorage::builder().without_sizes().build();
    let destination = plain();
    source.add_pattern_file("f", 3 << 20, 7);
    source.faults().on(Operation::Read).first(2).tear(1 << 20, ErrorKind::Unreachable);
    let outcome = run(job(&source, &destination), quick()).await;
    outcome.assert_clean();
    assert_eq!((outcome.summary.retries, outcome.summary.bytes), (2, 3 << 20));
    assert!(destination.is_pattern("f", 3 << 20, 7));
}

/// Each byte of a dripping range is progress, and the range would take days.
#[tokio::test(start_paused = true)]
async fn a_dripping_range_is_read_over_another_lane_even_in_a_small_window() {
    const SIZE: u64 = 24 << 20;
    let copy = async |window, dripping: Option<u64>| {
        let link = SimulatedLink::new(Duration::from_millis(20), 20_000_000);
        let far = MemoryStorage::builder().with_link(link).build();
        far.add_pattern_file("f", SIZE, 1);
        if let Some(nth) = dripping {
            far.faults().on(Operation::Read).nth(nth).drip(Duration::from_millis(500));
        }
        let near = plain();
        near.expect_pattern("f", 1);
        let (window, lanes) = (Auto::Fixed(window), Auto::Fixed(3));
        let settings = Settings { window, lanes, ..Settings::default() };
        let outcome = timeout(Duration::from_secs(60), run(job(&far, &near), settings)).await;
        let outcome = outcome.unwrap_or_else(|_| panic!("{window:?} {dripping:?}: it is held up"));
        outcome.assert_clean();
        assert!(near.is_pattern("f", SIZE, 1));
        far.faults().count(Operation::Read)
    };
    for window in [600 << 10, 1 << 20, 4 << 20] {
        let reads = copy(window, None).await;
        for dripping in [reads, reads - 1] {
            copy(window, Some(dripping)).await;
        }
    }
}

/// Formerly, a read error of the same kind as a wrong digest (`Corrupt`, if a response cannot be decoded) removed the
/// copy.
#[tokio::test]
async fn a_copy_that_cannot_be_read_back_under_its_name_stays() {
    let (source, destination) = (plain(), plain());
    source.add_pattern_file("f", 3 << 20, 7);
    destination.add_file("f", "old");
    destination.faults().on(Operation::Reopen).fail(ErrorKind::Unsupported);
    destination.faults().on(Operation::Open).path("f").fail(ErrorKind::Corrupt);
    let outcome = run(job(&source, &destination), verified(true)).await;
    let failures = outcome.failures();
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert!(failures[0].cause().contains("is not verified"), "{}", failures[0]);
    assert!(destination.is_pattern("f", 3 << 20, 7));
    assert_eq!(destination.content("f~"), "old");
}
