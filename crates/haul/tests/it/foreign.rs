//! Destinations to which other users can write: their files are neither resumed nor given rights. Also sources and
//! destinations that are mounted under another path.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};

use haul_bench::guard::unshare_mounts_once;

use crate::faults::{Slow, is_root};
use crate::session::Session;

const NOBODY: u32 = 65534;

fn mode(session: &Session, path: &str) -> u32 {
    fs::metadata(session.path(path)).unwrap().mode() & 0o7777
}

fn set_mode(session: &Session, path: &str, mode: u32) {
    fs::set_permissions(session.path(path), fs::Permissions::from_mode(mode)).unwrap();
}

fn give(session: &Session, path: &str) {
    chown(session.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
}

fn needs_root() -> bool {
    let is_root = is_root();
    if !is_root {
        eprintln!("skipped: files of other users need root");
    }
    !is_root
}

/// Formerly, haul assumed that an existing part file has the mode that haul creates part files with.
#[test]
fn an_existing_part_file_gets_the_mode_of_its_source() {
    for size in [7, 9 << 20] {
        let session = Session::new().file("src/f", vec![7; size]).file("dst/f", "old");
        session.write("dst/.f.haul-part", "");
        set_mode(&session, "dst/.f.haul-part", 0o644);
        set_mode(&session, "src/f", 0o600);
        session.haul("cp -q -a src/ dst").status(0);
        assert_eq!(mode(&session, "dst/f"), 0o600, "{size} bytes");
    }
}

#[test]
fn a_part_file_of_another_user_is_not_resumed() {
    if needs_root() {
        return;
    }
    for is_journal in [false, true] {
        let content: Vec<u8> = (0..16u32 << 20).map(|at| (at % 251) as u8).collect();
        let session = Session::new().file("src/f", &content);
        let has_begun = || {
            let part = fs::metadata(session.path("dst/.f.haul-part"));
            session.has("dst/.f.haul-journal") && part.is_ok_and(|part| part.blocks() >= 4096)
        };
        Slow::until(&session, "cp --bwlimit 4M src/ dst", has_begun).end("KILL");
        let part = session.path("dst/.f.haul-part");
        let file = fs::File::options().write(true).open(&part).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"not of the source", 0).unwrap();
        give(&session, if is_journal { "dst/.f.haul-journal" } else { "dst/.f.haul-part" });
        session.haul("cp -q src/ dst").status(0).stderr("");
        assert!(fs::read(session.path("dst/f")).unwrap() == content, "journal: {is_journal}");
        assert_eq!(fs::metadata(session.path("dst/f")).unwrap().uid(), 0);
    }
}

/// The part file's name may be a hard link to an unrelated file.
#[test]
fn a_hard_link_is_not_used_as_a_part_file() {
    let session = Session::new().file("src/f", vec![7; 9 << 20]).file("dst/victim", "precious");
    fs::hard_link(session.path("dst/victim"), session.path("dst/.f.haul-part")).unwrap();
    session.haul("cp -q src/ dst").status(0);
    assert_eq!(session.read("dst/victim"), "precious");
    assert_eq!(fs::metadata(session.path("dst/f")).unwrap().len(), 9 << 20);
}

/// Formerly, haul as root changed the owner of another user's file of the same size and time to root, and set its
/// set-user-ID bit, without comparing the content.
#[test]
fn set_id_bits_are_set_only_on_the_bytes_of_the_source() {
    if needs_root() {
        return;
    }
    let session = Session::new().file("src/tool", "good").file("dst/tool", "evil");
    set_mode(&session, "src/tool", 0o4755);
    give(&session, "dst/tool");
    session.tool("touch -d 2001-02-03 src/tool dst/tool");
    session.haul("cp -q -a --dry-run src/ dst").status(0);
    assert_eq!(session.read("dst/tool"), "evil");
    session.haul("cp -q -a src/ dst").status(0);
    assert_eq!((session.read("dst/tool").as_str(), mode(&session, "dst/tool")), ("good", 0o4755));
    // Without set-ID bits, equal size and time are enough.
    set_mode(&session, "src/tool", 0o755);
    give(&session, "dst/tool");
    session.tool("touch -d 2001-02-03 src/tool dst/tool");
    session.haul("cp -a src/ dst").status(0).stderr_has("1 unchanged");
    assert_eq!(fs::metadata(session.path("dst/tool")).unwrap().uid(), 0);
}

/// A bind mount, unmounted when it is dropped.
struct Bind(std::path::PathBuf);

impl Bind {
    /// `None`, with the reason printed, where directories cannot be mounted.
    fn new(session: &Session, what: &str, at: &str) -> Option<Self> {
        unshare_mounts_once().unwrap();
        let at = session.path(at);
        fs::create_dir_all(&at).unwrap();
        let done = std::process::Command::new("mount")
            .arg("--bind")
            .arg(session.path(what))
            .arg(&at)
            .output()
            .is_ok_and(|out| out.status.success());
        if !done {
            eprintln!("skipped: bind mounts do not work here");
        }
        done.then_some(Self(at))
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        drop(std::process::Command::new("umount").arg(&self.0).output());
    }
}

/// Formerly, the source was removed as an extra entry of the destination, under another path.
#[test]
fn a_source_that_is_mounted_elsewhere_is_not_removed_from_its_destination() {
    let session = Session::new().file("par/src/1", "new").file("par/1", "old");
    let Some(_bind) = Bind::new(&session, "par/src", "elsewhere") else { return };
    for line in ["sync --delete --overwrite never elsewhere par", "sync --delete elsewhere par"] {
        session.haul(line).status(1).stderr_has("it is a source of this run, under another path");
        assert_eq!(session.read("par/src/1"), "new");
    }
}

/// Formerly, the copy descended into itself without end.
#[test]
fn a_destination_that_is_mounted_elsewhere_is_not_copied_into_itself() {
    let session = Session::new().file("in/a/f", "x").file("in/b", "y");
    let Some(_bind) = Bind::new(&session, "in", "elsewhere") else { return };
    let cause = "in/a/c: cannot copy (it is the destination of this run, under another path";
    session.haul("cp in/ elsewhere/a/c").status(1).stderr_has(cause);
    assert_eq!(
        (session.read("in/a/c/a/f").as_str(), session.read("in/a/c/b").as_str()),
        ("x", "y")
    );
    assert!(!session.has("in/a/c/a/c"));
}
