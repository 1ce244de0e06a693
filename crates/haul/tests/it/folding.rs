//! Names that the file system of the destination treats as equal, since it ignores case, or that it changes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haul_bench::guard::unshare_mounts_once;

use crate::faults::is_root;
use crate::image::Image;
use crate::session::{Session, isolate};

/// A file system that changes names.
const RENAMING: &str = include_str!("../../../haul-torture/fuse/renaming.py");
/// Debian's Python, for which its package of fusepy is installed.
const PYTHON: &str = "/usr/bin/python3";

/// File systems that ignore case: name, mkfs command, mount command.
pub(crate) const KINDS: [(&str, &[&str], &[&str]); 2] = [
    ("ntfs", &["mkfs.ntfs", "-q", "-F", "-f"], &["lowntfs-3g", "-o", "ignore_case"]),
    ("exfat", &["mkfs.exfat"], &["mount.exfat-fuse"]),
];

#[test]
fn the_second_of_two_names_that_differ_in_case_is_an_error() {
    for (name, make, mount) in KINDS {
        let session = Session::new()
            .file("s/README", "upper")
            .file("s/readme", "lower")
            .file("s/D/x", "in D")
            .file("s/d/y", "in d")
            .file("s/other", "other");
        let Some(_image) = Image::new(&session, name, make, mount) else { continue };
        let (one, other) = ("treats this name as README", "treats this name as D");
        for _ in 0..3 {
            let ran = session.haul(&format!("cp s/ {name}/to"));
            ran.status(1).stderr_has(one).stderr_has(other).stderr_has("s/README");
            assert_eq!(session.read(&format!("{name}/to/README")), "upper", "{name}");
            assert_eq!(session.read(&format!("{name}/to/other")), "other", "{name}");
            assert_eq!(session.read(&format!("{name}/to/D/x")), "in D", "{name}");
            assert!(!session.has(&format!("{name}/to/d/y")), "{name}");
        }
        session.haul(&format!("sync --delete s/ {name}/to")).status(1);
        assert_eq!(fs::read_dir(session.path(name).join("to")).unwrap().count(), 3, "{name}");
        session.haul(&format!("cp s/README s/readme {name}/")).status(1).stderr_has(one);
        assert_eq!(session.read(&format!("{name}/README")), "upper", "{name}");
    }
}

/// exfat-fuse reports two inode numbers for one file. Formerly, `--delete` therefore took the copy of a source file for
/// an extra file and removed it.
#[test]
fn delete_spares_a_file_whose_name_differs_in_case() {
    for (name, make, mount) in KINDS {
        let session = Session::new().file("s/readme", "kept").file("s/other", "other");
        let Some(_image) = Image::new(&session, name, make, mount) else { continue };
        session.haul(&format!("cp s/readme {name}/to/README")).status(0);
        session.write(format!("{name}/to/extra"), "extra");
        session.haul(&format!("sync --delete s/ {name}/to")).status(0).stderr_has("1 unchanged");
        assert_eq!(session.read(&format!("{name}/to/readme")), "kept", "{name}");
        assert_eq!(fs::read_dir(session.path(name).join("to")).unwrap().count(), 2, "{name}");
    }
}

/// A mounted `renaming.py`, unmounted when it is dropped.
struct Renaming {
    at: PathBuf,
    program: Child,
}

impl Renaming {
    /// Mounts it at `on`. Letters are stored in the Unicode form `form`. `None`, with the reason printed, where it
    /// cannot be mounted.
    fn mount(session: &Session, form: &str) -> Option<Self> {
        let mut test = Command::new(PYTHON);
        let has = isolate(&mut test).args(["-c", "import fusepy"]).stderr(Stdio::null()).status();
        if !is_root() || !has.is_ok_and(|status| status.success()) {
            eprintln!("SKIPPED: needs root and the Debian package python3-fusepy");
            return None;
        }
        unshare_mounts_once().unwrap();
        session.write("renaming.py", RENAMING);
        let [backing, at] = ["backing", "on"].map(|name| session.path(name));
        for directory in [&backing, &at] {
            fs::create_dir(directory).unwrap();
        }
        let device = |path| fs::metadata(path).unwrap().dev();
        let before = device(&at);
        let mut command = Command::new(PYTHON);
        isolate(&mut command).arg(session.path("renaming.py")).arg(&backing).arg(&at).arg(form);
        let mut mounted = Self { at: at.clone(), program: command.spawn().unwrap() };
        let begun = Instant::now();
        while device(&at) == before {
            if mounted.program.try_wait().unwrap().is_some() {
                eprintln!("SKIPPED: FUSE does not mount here");
                return None;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it is not mounted");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(mounted)
    }
}

impl Drop for Renaming {
    fn drop(&mut self) {
        // It is not mounted if mounting failed. The program ends when it is unmounted, or is killed.
        drop(Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status());
        drop(self.program.kill());
        drop(self.program.wait());
    }
}

/// All entries below a directory, with their inode numbers.
fn entries(root: &std::path::Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, entry.metadata().unwrap().ino()));
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// FAT drops dots at the end of a name, HFS+ decomposes letters, and other file systems compose them.
#[test]
fn delete_spares_files_whose_names_the_file_system_has_changed() {
    const COMPOSED: &str = "\u{e9}";
    const DECOMPOSED: &str = "e\u{301}";
    for (form, given, stored) in [("NFD", COMPOSED, DECOMPOSED), ("NFC", DECOMPOSED, COMPOSED)] {
        let session = Session::new()
            .file(format!("s/{given}"), "letter")
            .file("s/a.", "dot")
            .file("s/D./x", "in D")
            .file(format!("s/D./{given}. /deep."), "deep")
            .file("s/plain", "plain");
        let Some(_mounted) = Renaming::mount(&session, form) else { return };
        session.haul("cp s/ on/to").status(0).without_warnings();
        let copied = entries(&session.path("on/to"));
        let names: Vec<_> = copied.iter().map(|(name, _)| name.as_str()).collect();
        let inner = format!("D/{stored}");
        let deep = format!("{inner}/deep");
        let mut wanted = ["D", "D/x", &inner, &deep, "a", stored, "plain"];
        wanted.sort_unstable();
        assert_eq!(names, wanted, "{form}");
        for extra in ["extra", "D/extra", "E/below", "b"] {
            session.write(format!("on/to/{extra}"), "extra");
        }
        session.write(format!("on/to/D/{stored}/{stored}{stored}"), "extra");
        for removed in [6, 0] {
            let ran = session.haul("sync --delete --json s on/to").status(0).stderr("");
            let summary = ran.summary();
            assert_eq!(summary["moved_bytes"], 0, "{form}: {summary}");
            assert_eq!(summary["removed"], removed, "{form}: {summary}");
            // The same files, not copies of them.
            assert_eq!(entries(&session.path("on/to")), copied, "{form}");
        }
        // The entry of a source file that is gone is removed under the name that it has.
        fs::remove_file(session.path(format!("s/{given}"))).unwrap();
        fs::remove_dir_all(session.path("s/D.")).unwrap();
        session.haul("sync --delete s on/to").status(0).without_warnings();
        let names: Vec<_> = entries(&session.path("on/to")).into_iter().map(|it| it.0).collect();
        assert_eq!(names, ["a", "plain"], "{form}");
    }
}
