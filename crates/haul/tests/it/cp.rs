//! `haul cp`: destinations, what is preserved, output, exit status.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::session::Session;

/// A small tree `src`: three files at different depths, an empty directory and a symbolic link.
fn tree() -> Session {
    Session::new()
        .file("src/a", "aaa")
        .file("src/deep/er/b", "bb")
        .file("src/deep/c.o", "c")
        .directory("src/empty")
        .link("src/link", "a")
}

/// Formerly, each data extent waited for the permits of the previous one, which a short file holds until its
/// end.
#[test]
fn a_short_file_with_holes_is_copied_through_a_small_window() {
    let session = Session::new().directory("s");
    for number in 0..12 {
        let file = std::fs::File::create(session.path(format!("s/{number}"))).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 8192], 20_480).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[2; 73_728], 118_784).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[3; 73_995], 266_240).unwrap();
    }
    for options in ["", "--digest blake3", "--verify", "--bwlimit 100M"] {
        session.haul(&format!("cp --queue-size 1 --block-size 1M {options} s/ d")).status(0);
        session.tool("diff -r s d");
        session.tool("rm -r d");
    }
}

#[test]
fn a_directory_goes_below_dest_whether_that_exists_or_not() {
    let session = tree();
    for _ in 0..2 {
        session.haul("cp -q src dst").status(0).stdout("").stderr("");
        session.tool("diff -r --no-dereference src dst/src");
        assert!(!session.has("dst/src/src"), "a rerun nests");
    }
    assert_eq!(session.haul("ls dst").out(), "src/\n");
}

#[test]
fn the_content_of_a_directory_goes_into_dest() {
    let session = tree();
    for line in ["cp -q src/ one", "cp -q src/ one", "cp -q src/. one"] {
        session.haul(line).status(0);
        session.tool("diff -r --no-dereference src one");
    }
    let inside = session.command("cp -q . ../two").current_dir(session.path("src")).output();
    assert!(inside.unwrap().status.success());
    session.tool("diff -r --no-dereference src two");
}

#[test]
fn a_file_gets_the_name_dest_or_goes_into_it() {
    let session = Session::new().file("a", "x").directory("dir");
    session.haul("cp -q a b").status(0);
    session.haul("cp -q a dir").status(0);
    session.haul("cp -q a new/").status(0);
    session.haul("cp -q a deep/er/name").status(0);
    for copy in ["b", "dir/a", "new/a", "deep/er/name"] {
        assert_eq!(session.read(copy), "x", "{copy}");
    }
    session.haul("cp -q a b/").status(1).stderr_has("b/: cannot open (");
}

#[test]
fn several_sources_go_into_dest() {
    let session = tree().file("x", "x");
    session.haul("cp -q x src dst").status(0);
    session.tool("diff -r --no-dereference src dst/src");
    assert_eq!(session.read("dst/x"), "x");
    session.haul("cp x src x").status(1).stderr("haul: x: cannot copy into (not a directory)\n");
    session
        .haul("cp x src/../x dst")
        .status(2)
        .stderr("haul: src/../x: another source is also copied to [ROOT]/dst/x\n");
}

#[test]
fn a_link_given_on_the_command_line_is_followed() {
    let session = tree().link("to-dir", "src").link("to-file", "src/a");
    session.haul("cp -q to-dir to-file dst").status(0);
    session.tool("diff -r --no-dereference src dst/to-dir");
    assert_eq!(session.read("dst/to-file"), "aaa");
    assert!(session.path("dst/to-file").symlink_metadata().unwrap().is_file());
}

#[test]
fn a_missing_source_does_not_stop_the_others() {
    let session = tree();
    session.haul("cp none src dst").status(1).stderr_has("haul: none: cannot open (not found)\n");
    session.tool("diff -r --no-dereference src dst/src");
}

#[test]
fn nothing_is_copied_into_itself() {
    let session = tree();
    session.haul("cp src src/deep").status(1).stderr_has("inside the source");
    session.haul("cp src/a src/a").status(1).stderr_has("the same as the source");
    session.haul("cp src .").status(1).stderr_has("the same as the source");
    assert_eq!(session.read("src/a"), "aaa");
}

#[test]
fn a_rerun_copies_nothing_again() {
    let session = tree();
    let first = session.haul("cp --json src dst").status(0).summary();
    assert_eq!((first["files"].as_u64(), first["moved_bytes"].as_u64()), (Some(3), Some(6)));
    let second = session.haul("cp --json src dst").status(0).summary();
    assert_eq!(second["unchanged"], 3);
    assert_eq!(second["moved_bytes"], 0);
}

#[test]
fn overwrite_decides_whether_an_existing_file_is_replaced() {
    let session = Session::new().file("a", "new!").file("b", "old");
    session.haul("cp -q --overwrite never a b").status(0);
    assert_eq!(session.read("b"), "old");
    session.haul("cp -q a b").status(0);
    assert_eq!(session.read("b"), "new!");
}

#[test]
fn the_first_matching_include_or_exclude_decides() {
    let session = tree();
    session.haul("cp -q --include c.o --exclude *.o --exclude er/ src/ one").status(0);
    assert_eq!(session.haul("ls -R one").out(), "a\ndeep/\nempty/\nlink\ndeep/c.o\n");
    session.haul("cp -q --exclude *.o --include c.o --exclude /a src/ two").status(0);
    let out = session.haul("ls -R two").out();
    assert_eq!(out, "deep/\nempty/\nlink\ndeep/er/\ndeep/er/b\n");
}

#[test]
fn excludes_apply_to_sources_on_the_command_line_too() {
    let session = Session::new().file("a.o", "").file("a.c", "");
    session.haul("cp -q --exclude *.o a.o a.c dst").status(0);
    assert_eq!(session.haul("ls dst").out(), "a.c\n");
}

#[test]
fn a_dry_run_prints_what_it_would_do_and_does_nothing() {
    let session = tree();
    let ran = session.haul("cp -n --manifest src/ dst").status(0);
    let out = ran.out();
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "would copy a (new, 3 B)",
            "would copy deep/c.o (new, 1 B)",
            "would copy deep/er/b (new, 2 B)",
            "would link link (new)"
        ]
    );
    ran.stderr("dry run, nothing was done; would copy 3, replace 0, remove 0; 3 files, 6 B\n");
    assert!(!session.has("dst"));
}

#[test]
fn verbose_prints_every_file_and_a_line_at_the_end() {
    let session = Session::new().file("a", "x");
    let ran = session.haul("cp -v a b").status(0).stdout("copied b (new, 1 B)\n");
    assert!(ran.err().starts_with("1 file, 1 B; moved 1 B in "), "{}", ran.err());
    session.haul("cp -v a b").status(0).stdout("unchanged b\n");
}

#[test]
fn sha256sum_can_check_a_manifest() {
    let session = tree();
    for _ in 0..2 {
        session.haul("cp -q --manifest src dst").status(0);
        let lines = session.read("dst/SHA256SUMS").lines().count();
        assert_eq!(lines, 3);
        session.tool("env -C dst sha256sum --quiet --strict -c SHA256SUMS");
    }
    // Another run adds what it copies.
    session.write("x", "x");
    session.haul("cp -q --manifest x dst").status(0);
    assert_eq!(session.read("dst/SHA256SUMS").lines().count(), 4);
    session.tool("env -C dst sha256sum --quiet --strict -c SHA256SUMS");
}

#[test]
fn the_manifest_of_one_file_is_next_to_it() {
    let session = Session::new().file("a", "x").directory("d");
    session.haul("cp -q --manifest --digest blake3 a d/b").status(0);
    assert!(session.read("d/B3SUMS").ends_with("  b\n"));
}

#[test]
fn a_manifest_may_be_elsewhere() {
    let session = tree().directory("sums");
    let sums = session.path("sums/list");
    session.haul(&format!("cp -q --manifest={} src/ dst", sums.display())).status(0);
    assert_eq!(session.read("sums/list").lines().count(), 3);
    assert!(!session.has("dst/SHA256SUMS"));
    session.haul("cp -q --manifest=lists/own src/ dst").status(0);
    assert_eq!(session.read("dst/lists/own").lines().count(), 3);
}

#[test]
fn a_manifest_in_the_source_does_not_replace_that_of_the_copy() {
    let session = tree().file("src/SHA256SUMS", "not even a manifest");
    let ran = session.haul("cp --manifest src/ dst").status(0);
    ran.stderr_has(
        "haul: warning: [ROOT]/src/SHA256SUMS: not copied: the manifest of this copy takes its \
         place\n",
    );
    assert_eq!(session.read("dst/SHA256SUMS").lines().count(), 3);
    // Below a directory of its own it is a file like any other.
    session.haul("cp --manifest src two").status(0).without_warnings();
    assert_eq!(session.read("two/src/SHA256SUMS"), "not even a manifest");
    // A manifest that is itself a SOURCE does not replace it either.
    let session = session.file("x", "x");
    let ran = session.haul("cp --manifest x src/SHA256SUMS three").status(0);
    ran.stderr_has(
        "[ROOT]/src/SHA256SUMS: not copied: the manifest of this copy takes its place\n",
    );
    assert!(session.read("three/SHA256SUMS").ends_with("  x\n"));
    assert_eq!(session.read("three/SHA256SUMS").lines().count(), 1);
    // A file of that name that goes into another directory is copied like any other.
    let session = session.file("inner/SHA256SUMS", "sums of inner");
    let ran = session.haul("cp --manifest src/ inner five").status(0);
    assert_eq!(ran.err().matches("takes its place").count(), 1, "{}", ran.err());
    assert_eq!(session.read("five/inner/SHA256SUMS"), "sums of inner");
    assert_eq!(session.read("five/SHA256SUMS").lines().count(), 4);
    // A directory in its place is an error: nothing of it could be copied.
    let session = session.file("sub/SHA256SUMS/f", "f");
    session.haul("cp -q --manifest x sub/SHA256SUMS four").status(1);
}

#[test]
fn json_has_every_event_on_a_line_of_its_own() {
    let session = tree();
    let ran = session.haul("cp --json --digest sha256 src dst none").status(1).stderr("");
    let objects = ran.objects();
    let of = |event: &str| objects.iter().filter(|o| o["event"] == event).collect::<Vec<_>>();
    assert_eq!(of("error").len(), 1);
    let ran = session.haul("cp --json --digest sha256 src/ dst").status(0).stderr("");
    let objects = ran.objects();
    let of = |event: &str| objects.iter().filter(|o| o["event"] == event).collect::<Vec<_>>();
    assert_eq!(of("plan")[0]["files"], 3);
    let a = of("file").into_iter().find(|file| file["path"] == "a").unwrap();
    assert_eq!(a["action"], "copied");
    assert_eq!(a["bytes"], 3);
    assert_eq!(
        a["digest"]["hex"],
        "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0"
    );
    let summary = ran.summary();
    for field in [
        "files",
        "bytes",
        "seconds",
        "bytes_per_second",
        "failed",
        "retries",
        "resumed_bytes",
        "lanes",
        "window_bytes",
        "rtt_ms",
        "connect_ms",
        "link_path",
        "digest",
    ] {
        assert!(summary.get(field).is_some(), "{field}: {summary}");
    }
    assert_eq!(summary["digest"], "sha256");
}

#[test]
fn a_name_that_is_not_utf8_keeps_its_bytes() {
    let name = OsStr::from_bytes(b"src/\xffx");
    let session = Session::new().file(name, "x");
    let ran = session.haul("cp --json src/ dst").status(0);
    let file = ran.objects().into_iter().find(|o| o["event"] == "file").unwrap();
    assert_eq!(file["path_bytes"], "ff78");
    assert!(session.path(OsStr::from_bytes(b"dst/\xffx")).exists());
}

#[test]
fn defaults_of_the_configuration_apply() {
    let session = tree().file("c.toml", "[defaults]\nexclude = [\"*.o\"]\nmanifest = true\n");
    session.haul("cp -q --config c.toml src/ dst").status(0);
    assert!(!session.has("dst/deep/c.o"));
    assert!(session.has("dst/SHA256SUMS"));
    session.haul("cp -q --config c.toml --no-manifest --include c.o src/ two").status(0);
    assert!(session.has("two/deep/c.o"));
    assert!(!session.has("two/SHA256SUMS"));
}

#[test]
fn more_sources_than_the_soft_limit_of_open_files_are_copied() {
    let mut session = Session::new();
    for n in 0..300 {
        session = session.file(format!("d{n}/f"), "");
    }
    let haul = env!("CARGO_BIN_EXE_haul");
    session.write("run", format!("ulimit -Sn 100; {haul} cp -q d* dst"));
    session.tool("bash run");
    assert_eq!(session.haul("ls dst").out().lines().count(), 300);
}

#[test]
fn a_long_file_is_stored_in_parts_and_read_as_one() {
    let session = Session::new().file("big", vec![7; 2500]);
    for line in ["cp -q --split 1000 big dst/big", "cp -q --split 1000 big dst"] {
        // The second run finds the folder that the first has made, and treats it as the file.
        session.haul(line).status(0);
        assert_eq!(session.haul("ls -R --json dst").objects().len(), 4);
    }
    assert_eq!(session.haul("ls dst/big/").out(), "00\n01\n02\n");
    let again = session.haul("cp --json --split 1000 big dst/big").status(0).summary();
    assert_eq!(again["unchanged"], 1);
    session.haul("cp -q --split 1000 dst/big back").status(0);
    session.write("run", "cat back/0? | cmp - big");
    session.tool("bash run");
    session.haul("cp -q --split never dst/big parts").status(0);
    assert_eq!(session.haul("ls parts/big/").out(), "00\n01\n02\n");
}

#[test]
fn a_device_is_not_replaced_by_a_file() {
    let session = Session::new().file("a", "x").link("null", "/dev/null");
    for dest in ["/dev/null", "null"] {
        session.haul(&format!("cp a {dest}")).status(1).stderr(&format!(
            "haul: {dest}: cannot replace (it is a device, a pipe or a socket)\n"
        ));
    }
}
