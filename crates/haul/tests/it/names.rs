//! `haul rm`, `mkdir`, `du`, `check`, `mv`, `cat` and the standard streams, on local disks. `between` tests the same on
//! servers.

use std::io::Write;
use std::process::Stdio;

use crate::session::Session;

#[test]
fn a_file_is_removed_and_a_directory_only_with_r() {
    let session = Session::new().file("d/a", "12345").file("d/b/c", "1").file("x", "");
    session.haul("rm x").status(0).stdout("").stderr("removed 1 file, 0 B\n");
    assert!(!session.has("x"));
    session.haul("rm d").status(1).stderr(
        "haul: d: cannot remove (it is a directory)\n\
         hint: haul rm -r removes it and everything in it\n\
         removed 0 files, 0 B; 1 failed\n",
    );
    let ran = session.haul("rm -rn d").status(0);
    assert_eq!(ran.out().lines().filter(|line| line.starts_with("would remove ")).count(), 4);
    assert!(session.has("d/b/c"));
    session.haul("rm -r d").status(0).stderr("removed 2 files, 2 directories, 6 B\n");
    assert!(!session.has("d"));
}

#[test]
fn a_missing_file_is_an_error_unless_f_is_given() {
    let session = Session::new().file("a", "");
    session.haul("rm none a").status(1).stderr_has("haul: none: cannot access (");
    assert!(!session.has("a"), "the other file is not removed");
    session.haul("rm -f none").status(0);
}

#[test]
fn a_link_is_removed_and_not_its_target() {
    let session = Session::new().file("d/a", "a").link("l", "d");
    session.haul("rm l").status(0);
    assert!(session.has("d/a") && !session.has("l"));
    session.write("e/x", "");
    std::os::unix::fs::symlink("../d", session.path("e/l")).unwrap();
    session.haul("rm -r e").status(0);
    assert!(session.has("d/a") && !session.has("e"));
}

#[test]
fn a_root_and_dot_names_are_not_removed() {
    let session = Session::new().file("d/a", "a");
    for path in [".", "..", "d/..", "/"] {
        session.haul(&format!("rm -r {path}")).status(1).stderr_has("it is a root, '.' or '..'");
    }
    assert!(session.has("d/a"));
}

#[test]
fn directories_are_created() {
    let session = Session::new();
    session.haul("mkdir a").status(0).stderr("");
    session.haul("mkdir a").status(1).stderr("haul: a: cannot create directory (already exists)\n");
    session.haul("mkdir -p a a/b/c").status(0);
    assert!(session.has("a/b/c"));
    session.haul("mkdir x/y").status(1);
    assert!(!session.has("x"));
    session.write("f", "");
    session.haul("mkdir -p f").status(1);
    // Formerly, directories that exist counted as created.
    session.haul("mkdir -p -v a a/b/d").status(0).stdout("created a/b/d\n");
}

#[test]
fn directories_are_measured() {
    let session = Session::new().file("d/a", "12345").file("d/b/c", "1").file("d/b/x/y", "22");
    std::fs::hard_link(session.path("d/a"), session.path("d/b/again")).unwrap();
    session.haul("du d").status(0).stdout(
        "             8         4 d\n             3         3 d/b\n             2         1 d/b/x\n",
    );
    session.haul("du -s d").status(0).stdout("             8         4 d\n");
    session.haul("du -h -d 1 -c d d/b").status(0);
    let objects = session.haul("du --json -s d").status(0).objects();
    assert_eq!(objects[0]["event"], "usage");
    assert_eq!((&objects[0]["bytes"], &objects[0]["directories"]), (&8.into(), &3.into()));
    session.haul("du none").status(1);
}

/// Formerly, a file that was named twice, once through its parent directory, counted twice.
#[test]
fn du_counts_files_in_several_locations_once() {
    let session = Session::new().file("d/a", "12345").file("d/b/c", "1").file("d/b/x/y", "22");
    session.write("e", "7777777");
    std::fs::hard_link(session.path("d/a"), session.path("f")).unwrap();
    let line = |bytes: u64, files: u64, name: &str| format!("{bytes:>14} {files:>9} {name}\n");
    let parent_last = line(3, 2, "d/b") + &line(5, 1, "d") + &line(8, 3, "total");
    session.haul("du -s -c d/b d").status(0).stdout(&parent_last);
    let parent_first = line(8, 3, "d") + &line(8, 3, "total");
    session.haul("du -s -c d d/b d/b/c ./d/../d").status(0).stdout(&parent_first);
    let names_of_one =
        line(8, 3, "d") + &line(0, 1, "f") + &line(7, 1, "e") + &line(15, 5, "total");
    session.haul("du -s -c d f e e").status(0).stdout(&names_of_one);
    let server = crate::dav::haul(&session);
    session.haul(&format!("cp -q d {}", server.url)).status(0);
    let ran = session.haul(&format!("du -s -c {0}d/b {0}d {0}d/b/", server.url)).status(0);
    assert!(ran.out().ends_with(&line(8, 3, "total")), "{}", ran.out());
    assert_eq!(ran.out().lines().count(), 3);
}

#[test]
fn a_copy_is_checked_by_size_and_time_or_by_content() {
    let session = Session::new().file("s/a", "12345").file("s/d/b", "b").file("s/d/c", "c");
    session.haul("cp -q s/ t").status(0);
    let ran = session.haul("check s t").status(0).stdout("");
    assert!(ran.err().starts_with("3 same in "), "{}", ran.err());
    session.haul("check --checksum s t").status(0).stdout("");
    // The same size and time, but different bytes.
    let modified = std::fs::metadata(session.path("s/a")).unwrap().modified().unwrap();
    session.write("t/a", "54321");
    std::fs::File::options()
        .write(true)
        .open(session.path("t/a"))
        .unwrap()
        .set_modified(modified)
        .unwrap();
    session.haul("check s t").status(0).stdout("");
    session.haul("check -c s t").status(1).stdout("differs a (content)\n");
    session.write("t/d/b", "bb");
    session.write("t/e/x", "");
    std::fs::remove_file(session.path("t/d/c")).unwrap();
    let ran = session.haul("check -c s t").status(1);
    let out = ran.out();
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["differs a (content)", "differs d/b (size: 1 and 2 bytes)", "extra e/", "missing d/c"]
    );
    session.haul("check s/d/b t/d").status(1).stdout("differs . (size: 1 and 2 bytes)\n");
    session.haul("check --one-way --exclude=b --exclude=c s t").status(0).stdout("");
    session.haul("check s none").status(1).stdout("");
}

#[test]
fn a_file_is_renamed_on_its_disk() {
    let session = Session::new().file("a", "aa").file("d/x", "x");
    session.haul("mv a b").status(0);
    assert_eq!((session.has("a"), session.read("b").as_str()), (false, "aa"));
    session.haul("mv b d").status(0);
    assert_eq!(session.read("d/b"), "aa");
    session.haul("mv d/ e").status(0);
    assert!(session.has("e/x") && !session.has("d"));
    session.haul("mv none x").status(1);
    session.haul("mv . x").status(1).stderr_has("it is a root, '.' or '..'");
}

#[test]
fn a_source_that_replaces_something_is_copied_and_then_removed() {
    let session = Session::new().file("a", "new").file("b", "old one");
    session.haul("mv a b").status(0);
    assert_eq!((session.has("a"), session.read("b").as_str()), (false, "new"));
    let session = Session::new().file("d/a", "new").file("e/d/a", "an old one").file("e/d/b", "b");
    session.haul("mv d e").status(0);
    assert_eq!((session.has("d"), session.read("e/d/a").as_str()), (false, "new"));
    assert!(session.has("e/d/b"));
    // The same size and time: only the content differs.
    let session = Session::new().file("a", "new").file("b", "old");
    for name in ["a", "b"] {
        let file = std::fs::File::options().write(true).open(session.path(name)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    session.haul("mv a b").status(0);
    assert_eq!((session.has("a"), session.read("b").as_str()), (false, "new"));
    // The destination is not replaced, so the source stays.
    let session = Session::new().file("a", "new").file("b", "old");
    session
        .haul("mv --overwrite never a b")
        .status(0)
        .stderr_has("its name exists at the destination");
    assert_eq!((session.read("a").as_str(), session.read("b").as_str()), ("new", "old"));
}

#[test]
fn files_are_printed_in_order() {
    let big = "0123456789abcdef".repeat(200_000);
    let session = Session::new().file("a", &big).file("b", "end\n");
    assert_eq!(session.haul("cat a b").status(0).stderr("").out(), format!("{big}end\n"));
    assert_eq!(session.haul("cp b a b -").status(0).out(), format!("end\n{big}end\n"));
    session.haul("cat none b").status(1).stdout("end\n").stderr_has("haul: none: ");
    session.haul("cat .").status(1).stderr_has("is a directory");
    session.haul("cat --json b").status(2).stdout("");
}

#[test]
fn the_standard_input_becomes_a_file() {
    let session = Session::new().directory("d");
    let bytes = "0123456789abcdef".repeat(200_000);
    let mut child =
        session.command("cp - d/f").stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(session.read("d/f"), bytes);
    session.haul("cp - d").status(2).stderr_has("standard input has no file name");
    session.haul("cp - a b").status(2);
    session.haul("cp - empty").status(0);
    assert_eq!(session.read("empty"), "");
}

#[test]
fn a_reader_that_closes_the_pipe_early_is_not_a_failure() {
    let session = Session::new().file("a", vec![0; 32 << 20]);
    let mut child =
        session.command("cat a").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}
