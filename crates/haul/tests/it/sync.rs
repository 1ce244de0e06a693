//! `haul sync`: what it copies, removes with `--delete`, and refuses.

use std::time::Duration;

use crate::session::{Session, peak_bytes};

fn session() -> Session {
    Session::new().file("src/a", "a").file("src/d/b", "b").file("dst/old", "o").file("dst/x/y", "")
}

#[test]
fn the_slash_makes_no_difference_and_nothing_is_removed_without_delete() {
    for line in ["sync -q src dst", "sync -q src/ dst/"] {
        let session = session();
        session.haul(line).status(0).stdout("").stderr("");
        assert_eq!(session.haul("ls -R dst").out(), "a\nd/\nold\nx/\nd/b\nx/y\n");
    }
}

#[test]
fn delete_makes_dest_equal_to_source() {
    let session = session();
    session.haul("sync -n --delete src dst").status(0).stdout_has("would remove old\n");
    assert!(session.has("dst/old"));
    session.haul("sync -q --delete src dst").status(0);
    session.tool("diff -r src dst");
}

#[test]
fn delete_spares_excluded_files_and_the_manifest() {
    let session = session();
    session.haul("sync -q --delete --manifest --exclude old src dst").status(0);
    assert_eq!(session.haul("ls -R dst").out(), "SHA256SUMS\na\nd/\nold\nd/b\n");
    session.haul("sync -q --delete --manifest --exclude old src dst").status(0);
    assert_eq!(session.haul("ls -R dst").out(), "SHA256SUMS\na\nd/\nold\nd/b\n");
    // Removed files are removed from the manifest, too.
    std::fs::remove_file(session.path("src/a")).unwrap();
    session.haul("sync -q --delete --manifest src dst").status(0);
    assert_eq!(session.read("dst/SHA256SUMS").lines().count(), 1);
    session.haul("verify --strict dst").status(0);
}

/// Formerly, the error for a link was that of the system call: the directory exists.
#[test]
fn a_directory_with_excluded_files_stays_in_the_way_of_a_file_and_of_a_link() {
    let session = Session::new()
        .file("src/file", "a")
        .link("src/link", "file")
        .file("dst/file/kept.old", "")
        .file("dst/link/kept.old", "")
        .file("dst/link/other", "");
    // A dry run reports the same. Formerly, it reported both directories as removed.
    for options in ["-n", "-q"] {
        let line = format!("sync {options} --delete --exclude *.old src dst");
        let ran = session.haul(&line).status(1);
        let cause = "(a directory with excluded files is in the way of the";
        let ran = ran
            .stderr_has(&format!("dst/file: cannot write {cause} file)"))
            .stderr_has(&format!("dst/link: cannot create link {cause} symbolic link)"));
        let out = ran.out();
        let removed: Vec<_> = out.lines().filter(|line| line.starts_with("would remove")).collect();
        let expected: &[&str] = if options == "-n" { &["would remove link/other"] } else { &[] };
        assert_eq!(removed, expected, "{out}");
    }
    assert_eq!(session.haul("ls -R dst").out(), "file/\nlink/\nfile/kept.old\nlink/kept.old\n");
    session.haul("sync -q --delete src dst").status(0);
    session.tool("diff -r --no-dereference src dst");
}

/// A killed run may leave the empty file with which it tested which times the file system can store.
#[test]
fn a_clock_test_file_that_a_killed_run_left_is_removed_by_the_next_run() {
    for command in ["cp -q src/ dst", "sync -q src dst"] {
        let session = Session::new().file("src/a", "a").file("dst/a", "a");
        session.write("dst/.haul.clock.haul-temp", "");
        session.haul(&format!("{command} -n")).status(0);
        assert!(session.path("dst/.haul.clock.haul-temp").exists());
        session.haul(command).status(0);
        assert!(!session.path("dst/.haul.clock.haul-temp").exists(), "{command}");
    }
}

/// Formerly, a dry run reported `extra` and `extra/d`, in which a file stays, as removed.
#[test]
fn a_dry_run_does_not_report_directories_that_stay_as_removed() {
    let session = Session::new().file("src/a", "a").file("dst/old/f", "").file("dst/empty/f", "");
    for name in ["gone/f", "d/f", "d/kept.old"] {
        session.write(format!("dst/extra/{name}"), "");
    }
    let removed = |line: &str| {
        let ran = session.haul(line).status(0).out();
        let removed = ran.lines().filter_map(|line| line.strip_prefix("would remove "));
        let mut removed: Vec<_> = removed.map(str::to_owned).collect();
        removed.sort();
        removed
    };
    let rest = ["empty", "empty/f", "extra/d/f", "extra/gone", "extra/gone/f"];
    let expected = [&rest[..], &["old", "old/f"]].concat();
    assert_eq!(removed("sync -n --delete --exclude *.old src dst"), expected);
    // With backups beside the files, every directory stays.
    assert_eq!(
        removed("sync -n --delete --backup src dst"),
        ["empty/f", "extra/d/f", "extra/d/kept.old", "extra/gone/f", "old/f"]
    );
    session.haul("sync -q --delete --exclude *.old src dst").status(0);
    assert_eq!(session.haul("ls -R dst").out(), "a\nextra/\nextra/d/\nextra/d/kept.old\n");
}

#[test]
fn a_file_is_not_a_valid_source() {
    session()
        .haul("sync src/a dst")
        .status(2)
        .stderr("haul: src/a: not a directory; use haul cp for a file\n");
}

#[test]
fn delete_refuses_a_destination_that_contains_the_source() {
    let session = session().file("src/src/a", "inner");
    let run = session.haul("sync --delete src/src src").status(1);
    run.stderr_has("is a parent of the source, which --delete would remove");
    session.haul("sync -n --delete src/src src").status(1).stderr_has("is a parent of the source");
    assert_eq!((session.read("src/src/a"), session.read("src/d/b")), ("inner".into(), "b".into()));
    // Excluded entries stay, and so does the source among them.
    session.haul("sync -q --delete --exclude /src src/src src").status(0);
    assert_eq!((session.read("src/a"), session.has("src/d")), ("inner".into(), false));
    assert_eq!(session.read("src/src/a"), "inner");
    session.haul("sync -q src/src src").status(0);
    assert_eq!(session.read("src/a"), "inner");
}

/// A disk that is not mounted looks like an empty directory.
#[test]
fn an_empty_source_does_not_empty_the_destination() {
    let session = session().directory("empty");
    session
        .haul("sync -q --delete empty dst")
        .status(1)
        .stderr_has("empty is empty, and everything in the destination would be removed")
        .stderr_has("--delete-from-empty");
    assert!(session.has("dst/old") && session.has("dst/x/y"));
    session.haul("sync -q --delete --delete-from-empty empty dst").status(0);
    assert_eq!(session.haul("ls -R dst").out(), "");
    // If there is nothing to remove, nothing is refused.
    session.haul("sync -q --delete empty dst").status(0).stderr("");
}

#[test]
fn beyond_the_limit_of_deletions_nothing_is_removed() {
    let session = session();
    // old, x and x/y of six entries: a, d, old, x, x/y and d/b exist after the copy.
    for limit in ["2", "49%", "0"] {
        let line = format!("sync -q --delete --max-delete {limit} src dst");
        session.haul(&line).status(1).stderr_has("3 of 6 entries would be removed");
        assert!(session.has("dst/old") && session.has("dst/x/y"));
    }
    session.haul("sync -q --delete --max-delete x src dst").status(2).stderr_has("percentage");
    session.haul("sync -q --delete --max-delete 50% src dst").status(0);
    session.tool("diff -r src dst");
    session.haul("sync -q --delete --max-delete 0 src dst").status(0);
}

#[test]
fn removing_from_a_finished_directory_leaves_its_time() {
    let session = session();
    session.haul("sync -q src dst").status(0);
    session.write("dst/d/extra", "");
    session.tool("touch -d 2001-02-03 src/d");
    session.haul("sync -q --delete src dst").status(0);
    assert!(!session.has("dst/d/extra"));
    let modified = |path| std::fs::metadata(session.path(path)).unwrap().modified().unwrap();
    assert_eq!(modified("src/d"), modified("dst/d"));
}

/// More files than haul keeps of one directory. A dry run and the real one report each file once.
#[test]
fn a_large_extra_directory_is_counted_and_removed_except_for_excluded_files() {
    let session = Session::new().file("src/a", "a").file("dst/a", "a").file("dst/x/kept.old", "");
    (0..3000).for_each(|file| session.write(format!("dst/x/{file}"), ""));
    session.write("dst/x/below/file", "");
    let options = "sync --delete --exclude *.old --max-delete";
    // The directory `x` is not counted: it stays.
    let refused = session.haul(&format!("{options} 3001 src dst")).status(1);
    refused.stderr_has("3002 of 3004 entries would be removed");
    assert!(session.has("dst/x/0"));
    let line = format!("{options} 3002 --json src dst");
    let removed = |line: &str| {
        let objects = session.haul(line).status(0).objects();
        let removed = objects.iter().filter(|object| object["action"] == "removed");
        let mut names: Vec<_> = removed.map(|object| object["path"].to_string()).collect();
        names.sort();
        names
    };
    let would = removed(&format!("{line} --dry-run"));
    assert_eq!(would.len(), 3002);
    assert!(session.has("dst/x/0"));
    assert_eq!(removed(&line), would);
    assert_eq!(session.haul("ls -R dst").out(), "a\nx/\nx/kept.old\n");
}

/// Formerly, a percentage left out what is below the directory in the way.
#[test]
fn a_directory_in_the_way_counts_among_the_entries_with_everything_below_it() {
    let session = Session::new().file("src/a", "a").file("dst/x", "x");
    (0..4).for_each(|file| session.write(format!("dst/a/{file}"), ""));
    // Of dst/a, its four files, and dst/x.
    session
        .haul("sync --delete --max-delete 10% src dst")
        .status(1)
        .stderr_has("a directory that a limit of removals protects is in the way")
        .stderr_has("1 of 6 entries would be removed");
    session.haul("sync --delete --max-delete 17% src dst").status(1);
    assert!(!session.has("dst/x") && session.has("dst/a/0"));
    // A number is compared with the entries to remove only.
    session.write("dst/x", "x");
    session.haul("sync --delete --max-delete 1 src dst").status(1).stderr_has("in the way");
    assert!(!session.has("dst/x") && session.has("dst/a/0"));
}

/// The most memory that `sync --delete` takes to remove one directory with this many entries.
fn peak_of_delete(entries: u32, make: impl Fn(&Session, String)) -> u64 {
    let session = Session::new().file("src/a", "a").directory("dst/x");
    (0..entries).for_each(|entry| make(&session, format!("dst/x/{entry}")));
    let line = "sync -q --delete --max-delete 300000 src dst";
    let mut running = session.command(line).spawn().unwrap();
    let mut peak = 0;
    let status = loop {
        peak = peak_bytes(running.id()).map_or(peak, |now| peak.max(now));
        match running.try_wait().unwrap() {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(status.success());
    session.tool("diff -r src dst");
    peak
}

/// Formerly, each file of a directory took about 250 bytes.
#[test]
fn the_memory_of_delete_does_not_grow_with_the_files_of_a_directory() {
    let peak = |files| peak_of_delete(files, |session, path| session.write(path, ""));
    let (few, many) = (peak(2000), peak(200_000));
    eprintln!("{few} bytes with 2000 files, {many} with 200,000");
    assert!(many < few + (16 << 20), "{few} bytes with 2000 files, {many} with 200,000");
}

/// Formerly, each took about 250 bytes.
#[test]
fn the_memory_of_delete_does_not_grow_with_the_subdirectories_of_a_directory() {
    let make = |session: &Session, path| std::fs::create_dir(session.path(path)).unwrap();
    let peak = |directories| peak_of_delete(directories, make);
    let (few, many) = (peak(2000), peak(80_000));
    eprintln!("{few} bytes with 2000 directories, {many} with 80,000");
    assert!(many < few + (10 << 20), "{few} bytes with 2000 directories, {many} with 80,000");
}
