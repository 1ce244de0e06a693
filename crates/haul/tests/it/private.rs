//! Privacy: modes while a copy is made, modes of manifests, and set-ID bits. Also read-only files and directories, and
//! hard links to the source.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::process::Command;

use crate::content::{content, unfinished};
use crate::faults::{Slow, is_root};
use crate::session::{Ran, Session, isolate};
use crate::sftp::Running;

const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

fn set_mode(session: &Session, path: &str, mode: u32) {
    fs::set_permissions(session.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(session: &Session, path: &str) -> u32 {
    fs::metadata(session.path(path)).unwrap().mode() & 0o7777
}

/// Promise: files that are private in the source are not open to others while they are copied.
#[test]
fn a_private_directory_is_private_while_it_is_copied_and_after_an_interruption() {
    for signal in ["INT", "KILL"] {
        check_private(&Session::new(), signal, ("dst", "dst", true), str::to_owned);
    }
}

/// Copies private directories, and interrupts the copy once by a signal. `to` is the destination as haul's argument,
/// `at` its path in the session. The journal of a file is beside its part file if `has_journal`.
/// `line` adds what haul needs to a command.
pub(crate) fn check_private(
    session: &Session,
    signal: &str,
    (to, at, has_journal): (&str, &str, bool),
    line: impl Fn(&str) -> String,
) {
    let there = |path: &str| format!("{at}{path}");
    session.write("src/sub/f", vec![7; 4 << 20]);
    session.write("src/open/g", "g");
    set_mode(session, "src/sub", 0o700);
    set_mode(session, "src", 0o750);
    let [file, journal] = ["/sub/f", "/sub/.f.haul-journal"].map(there);
    let part = || session.part_of(&file);
    let begun = || part().is_some() && (!has_journal || session.has(&journal));
    let slow = Slow::until(session, &line(&format!("cp --bwlimit 1M src/ {to}")), begun);
    for path in ["", "/sub"] {
        assert_eq!(mode(session, &there(path)), 0o700, "{signal}: {path}");
    }
    assert_eq!(mode(session, &part().unwrap()), 0o600, "{signal}");
    if has_journal {
        assert_eq!(mode(session, &journal), 0o600, "{signal}");
    }
    slow.end(signal);
    assert!(!session.has(&there("/sub/f")), "{signal}: the copy was complete");
    assert_eq!(mode(session, &there("/sub")), 0o700, "{signal}");
    assert!(matches!(mode(session, &there("")), 0o700 | 0o750), "{signal}");
    session.haul(&line(&format!("cp -q src/ {to}"))).status(0);
    session.tool(&format!("diff -r src {at}"));
    let modes = ["", "/sub", "/open"].map(|path| mode(session, &there(path)));
    assert_eq!(modes, [0o750, 0o700, mode(session, "src/open")], "{signal}");
}

/// A manifest reveals names, and its digests show whether a guess of the content is right.
#[test]
fn a_manifest_is_private_unless_all_listed_files_are_readable_by_all() {
    for (directory, file, wanted) in [
        (0o755, 0o644, 0o644),
        (0o700, 0o644, 0o600),
        (0o755, 0o600, 0o600),
        (0o750, 0o640, 0o600),
        (0o711, 0o644, 0o600),
        (0o755, 0o604, 0o600),
    ] {
        let session = Session::new().file("src/sub/f", "content").file("src/g", "g");
        set_mode(&session, "src", 0o755);
        set_mode(&session, "src/g", 0o644);
        set_mode(&session, "src/sub/f", file);
        set_mode(&session, "src/sub", directory);
        for arguments in ["--manifest src/ dst", "--manifest=../listed src/ dst"] {
            let shell = format!("umask 022; exec \"$0\" cp -q {arguments}");
            let haul = session.command("").get_program().to_owned();
            let mut command = Command::new("sh");
            isolate(&mut command).args(["-c", &shell]).arg(haul).current_dir(session.path(""));
            command.env("HOME", session.path("home"));
            assert!(command.status().unwrap().success());
        }
        for manifest in ["dst/SHA256SUMS", "listed"] {
            assert_eq!(mode(&session, manifest), wanted, "{directory:o} {file:o} {manifest}");
        }
        // A manifest that now lists private files does not stay open, even if modes are not preserved.
        set_mode(&session, "dst/SHA256SUMS", 0o644);
        session.haul("cp -q --manifest --preserve=times src/ dst").status(0);
        assert_eq!(mode(&session, "dst/SHA256SUMS"), wanted);
    }
}

/// The existing file is left alone, or replaced by one with its mode: either way the manifest lists a private
/// file.
#[test]
fn a_manifest_of_private_files_at_the_destination_is_private() {
    for rest in ["--overwrite=never", "--preserve=times", "--preserve=times --overwrite=never"] {
        let session = Session::new().file("src/f", "open").file("dst/f", "secret");
        set_mode(&session, "src", 0o755);
        set_mode(&session, "src/f", 0o644);
        set_mode(&session, "dst/f", 0o600);
        session.haul(&format!("cp -q --manifest {rest} src/ dst")).status(0);
        assert_eq!(mode(&session, "dst/f"), 0o600, "{rest}");
        assert_eq!(mode(&session, "dst/SHA256SUMS"), 0o600, "{rest}");
    }
}

/// Formerly, the first run left the bits out, but the second set them when it compared the modes.
#[test]
fn set_id_bits_of_another_owner_are_not_set_by_a_rerun_either() {
    if !is_root() {
        eprintln!("skipped: files of other owners need root");
        return;
    }
    let session = Session::new().file("src/tool", "x").file("src/group", "x");
    for (path, bits) in [("src/tool", 0o4755), ("src/group", 0o2755)] {
        chown(session.path(path), Some(65534), Some(65534)).unwrap();
        set_mode(&session, path, bits);
    }
    for _ in 0..3 {
        session.haul("cp -q src/ dst").status(0);
        assert_eq!((mode(&session, "dst/tool"), mode(&session, "dst/group")), (0o755, 0o755));
    }
    // Together with the owner they are preserved, also where the content is up to date.
    for _ in 0..2 {
        session.haul("cp -q --preserve=all src/ dst").status(0);
        assert_eq!((mode(&session, "dst/tool"), mode(&session, "dst/group")), (0o4755, 0o2755));
        assert_eq!(fs::metadata(session.path("dst/tool")).unwrap().uid(), 65534);
    }
}

/// A snapshot made by `cp -al`: every file is a hard link to the source.
#[test]
fn hard_links_to_the_source_are_up_to_date() {
    let session = Session::new().file("s/a", "1").file("s/d/b", "2");
    session.tool("cp -al s d");
    for line in ["sync -q s d", "sync -q --overwrite always s d", "sync -q --delete s d"] {
        session.haul(line).status(0).stderr("");
    }
    let numbers = |path| fs::metadata(session.path(path)).unwrap().ino();
    assert_eq!((numbers("s/a"), numbers("s/d/b")), (numbers("d/a"), numbers("d/d/b")));
}

/// Go's module cache, for one, is made of directories that their owner cannot write to.
#[test]
fn a_copy_in_read_only_directories_is_updated_by_their_owner() {
    if !is_root() {
        eprintln!("skipped: acting as another user needs root");
        return;
    }
    let session = Session::new();
    fs::set_permissions(session.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let haul = env!("CARGO_BIN_EXE_haul");
    let run = |line: &str| {
        let home = session.path("home");
        session.tool(&format!("{NOBODY} env HOME={} {line}", home.display()))
    };
    run("mkdir -p s/d/deep home");
    run("cp /etc/passwd s/d/x");
    run("cp /etc/passwd s/d/gone");
    run("cp /etc/passwd s/d/deep/gone");
    run("chmod 555 s/d/deep s/d");
    run(&format!("{haul} cp -q s/ t"));
    run("chmod 755 s/d s/d/deep");
    run("cp /etc/group s/d/x");
    run("cp /etc/group s/d/new");
    run("rm -r s/d/gone s/d/deep");
    run("chmod 555 s/d");
    run(&format!("{haul} sync -q --delete s t"));
    session.tool("diff -r s t");
    assert_eq!(mode(&session, "t/d"), 0o555);
    // A directory whose mode is not copied keeps its own.
    run("chmod 755 s/d");
    run("cp /etc/passwd s/d/x");
    run(&format!("{haul} sync -q --preserve=times s t"));
    session.tool("diff -r s t");
    assert_eq!(mode(&session, "t/d"), 0o555);
    // Formerly, deletions left this directory writable, and also one that stays because of an excluded file.
    run("chmod 755 t/d");
    run("mkdir t/d/new2 t/d/kept");
    run("cp /etc/passwd t/d/kept/log");
    run("cp /etc/passwd t/d/kept/gone");
    run("chmod 555 t/d/kept t/d");
    run(&format!("{haul} sync -q --delete --exclude log --preserve=times s t"));
    assert!(!session.has("t/d/new2") && !session.has("t/d/kept/gone"));
    assert!(session.has("t/d/kept/log"));
    assert_eq!((mode(&session, "t/d"), mode(&session, "t/d/kept")), (0o555, 0o555));
    // The top directories, too. Formerly, that failed if both had an entry of one name and others were removed.
    run("chmod 755 t");
    run("cp /etc/passwd t/gone");
    run("chmod 555 s t");
    run(&format!("{haul} sync -q --delete s t"));
    session.tool("diff -r s t");
    assert_eq!(mode(&session, "t"), 0o555);
}

/// `user.*` attributes can be set only with write permission for the file.
#[test]
fn a_small_read_only_file_is_copied_with_its_attributes_by_its_owner() {
    if !is_root() {
        eprintln!("skipped: acting as another user needs root");
        return;
    }
    let session = Session::new().file("s/f", "content");
    session.tool("setfattr -n user.note -v remark s/f");
    set_mode(&session, "s/f", 0o444);
    for path in ["", "s", "s/f"] {
        chown(session.path(path), Some(65534), Some(65534)).unwrap();
    }
    let haul = env!("CARGO_BIN_EXE_haul");
    let home = session.path("");
    session.tool(&format!("{NOBODY} env HOME={} {haul} cp -q -a s/ d", home.display()));
    session.tool("cmp s/f d/f");
    assert_eq!(session.tool("getfattr --only-values -n user.note d/f"), "remark");
    assert_eq!(mode(&session, "d/f"), 0o444);
}

/// A run was killed between setting the mode of a part file and renaming it.
#[test]
fn a_read_only_part_file_is_completed_by_its_owner() {
    if !is_root() {
        eprintln!("skipped: acting as another user needs root");
        return;
    }
    let session = Session::new().file("s/f", vec![1; 5 << 20]).directory("d");
    set_mode(&session, "s/f", 0o444);
    session.write("d/.f.haul-part", "begun");
    set_mode(&session, "d/.f.haul-part", 0o444);
    for path in ["", "d", "d/.f.haul-part"] {
        chown(session.path(path), Some(65534), Some(65534)).unwrap();
    }
    let haul = env!("CARGO_BIN_EXE_haul");
    session.tool(&format!("{NOBODY} env HOME={} {haul} cp -q s/f d/", session.path("").display()));
    session.tool("cmp s/f d/f");
    assert_eq!(mode(&session, "d/f"), 0o444);
}

/// rsync 3.5.0 replaces such a directory by a file, but neither by a symbolic link nor by a hard link.
#[test]
fn a_read_only_directory_in_the_way_is_removed_or_keeps_its_mode() {
    if !is_root() {
        eprintln!("skipped: acting as another user needs root");
        return;
    }
    let session = Session::new();
    fs::set_permissions(session.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let as_user = format!("{NOBODY} env HOME={}", session.path("home").display());
    let run = |line: &str| session.tool(&format!("{as_user} {line}"));
    run("mkdir -p home s t/file/deep t/link/deep t/name/deep t/kept/deep");
    for name in ["first", "file", "kept"] {
        run(&format!("cp /etc/passwd s/{name}"));
    }
    run("ln -s first s/link");
    run("ln s/first s/name");
    run("cp -p s/first t/first");
    for name in ["file", "link", "name", "kept"] {
        run(&format!("cp /etc/group t/{name}/gone"));
        run(&format!("cp /etc/group t/{name}/deep/gone"));
    }
    run("cp /etc/group t/kept/deep/log");
    for name in ["file", "link", "name", "kept"] {
        run(&format!("chmod 555 t/{name}/deep t/{name}"));
    }
    let haul = env!("CARGO_BIN_EXE_haul");
    let line = format!("{as_user} {haul} sync -q --delete --exclude log s t");
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).current_dir(session.path("")).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("a directory with excluded files is in the way"), "{message}");
    assert_eq!(message.matches("in the way").count(), 1, "{message}");
    session.tool("cmp s/file t/file");
    assert_eq!(fs::read_link(session.path("t/link")).unwrap().to_str(), Some("first"));
    let number = |path| fs::metadata(session.path(path)).unwrap().ino();
    assert_eq!(number("t/name"), number("t/first"));
    assert!(session.has("t/kept/deep/log"));
    assert!(!session.has("t/kept/gone") && !session.has("t/kept/deep/gone"));
    assert_eq!((mode(&session, "t/kept"), mode(&session, "t/kept/deep")), (0o555, 0o555));
}

/// Copies read-only directories to a server that runs as an ordinary user, and updates the copies. `to` is a directory
/// of the server as haul's argument, and `at` its path in the session. `line` adds what haul needs to a command.
pub(crate) fn check_read_only_directories(
    session: &Session,
    (to, at): (&str, &str),
    line: impl Fn(&str) -> String,
) {
    let haul = |words: &str| session.haul(&line(&format!("{words} {to}/t"))).status(0).stderr("");
    let same = || session.tool(&format!("diff -r s {at}/t"));
    let modes = |names: &[&str]| {
        for name in names {
            assert_eq!(mode(session, &format!("{at}/t/{name}")), 0o555, "{name}");
        }
    };
    for (name, length) in [("x", 10), ("gone", 10), ("deep/gone", 10), ("large", 3 << 20)] {
        session.write(format!("s/d/{name}"), content(1, length));
    }
    set_mode(session, "s/d/deep", 0o555);
    set_mode(session, "s/d", 0o555);
    haul("cp -q s/");
    same();
    modes(&["d", "d/deep"]);
    // Root needs no permission to write.
    for (name, length) in [("x", 11), ("new", 12), ("large", (3 << 20) + 1)] {
        session.write(format!("s/d/{name}"), content(2, length));
    }
    fs::remove_file(session.path("s/d/gone")).unwrap();
    fs::remove_dir_all(session.path("s/d/deep")).unwrap();
    haul("sync -q --delete s");
    same();
    modes(&["d"]);
    // A directory whose mode is not copied keeps its own.
    session.write("s/d/x", "other");
    session.write("s/d/large", content(3, 3 << 20));
    haul("sync -q --preserve=times s");
    same();
    modes(&["d"]);
    // After deletions too, it is restored.
    session.write(format!("{at}/t/d/extra/below"), "extra");
    for name in ["log", "gone"] {
        session.write(format!("{at}/t/d/kept/{name}"), "extra");
    }
    session.tool(&format!("chown -R 65534:65534 {at}/t/d/extra {at}/t/d/kept"));
    set_mode(session, &format!("{at}/t/d/kept"), 0o555);
    haul("sync -q --delete --exclude log --preserve=times s");
    assert!(
        !session.has(&format!("{at}/t/d/extra")) && !session.has(&format!("{at}/t/d/kept/gone"))
    );
    assert!(session.has(&format!("{at}/t/d/kept/log")));
    modes(&["d", "d/kept"]);
}

/// Completes part files that have the mode of a read-only source, as after a kill just before the rename, on a server
/// that runs as an ordinary user: one that haul does not know, and one that it resumes. The arguments are those of
/// [`check_read_only_directories`].
pub(crate) fn check_read_only_part_files(
    session: &Session,
    (to, at): (&str, &str),
    line: impl Fn(&str) -> String,
) {
    for (name, seed) in [("unknown", 1), ("begun", 2)] {
        session.write(format!("p/{name}"), content(seed, 8 << 20));
        set_mode(session, &format!("p/{name}"), 0o444);
    }
    let begin = |name: &str| -> String {
        let begun = line(&format!("cp --json --bwlimit 2M --window 1M p/{name} {to}/"));
        let mut running = Running::start(session, &begun);
        running.until_moved(4 << 20);
        running.kill();
        session.part_of(&format!("{at}/{name}")).unwrap()
    };
    let unknown = begin("unknown");
    session.write(&unknown, "unknown");
    session.tool(&format!("chown 65534:65534 {unknown}"));
    let journal = format!("{at}/.unknown.haul-journal");
    match session.has(&journal) {
        true => fs::remove_file(session.path(&journal)).unwrap(),
        false => session.forget_uploads(),
    }
    for part in [unknown, begin("begun")] {
        set_mode(session, &part, 0o444);
    }
    let copy = |name: &str| -> Ran {
        session.haul(&line(&format!("cp --json p/{name} {to}/"))).status(0).stderr("")
    };
    copy("unknown");
    let summary = copy("begun").summary();
    assert!(summary["resumed_bytes"].as_u64().unwrap() > 0, "{summary}");
    for name in ["unknown", "begun"] {
        session.tool(&format!("cmp p/{name} {at}/{name}"));
        assert_eq!(mode(session, &format!("{at}/{name}")), 0o444, "{name}");
    }
    assert_eq!(unfinished(&session.path(at)), Vec::<std::path::PathBuf>::new());
}
