//! Changes on both sides: the mount's version becomes a conflict copy, and nothing is overwritten.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use crate::lab::{eventually, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

/// With both, the file on the server is compared, just before the commit, with the version that is to be replaced.
const KINDS: [Kind; 2] = [Kind::Dav, Kind::OpenSsh];

/// The name of the conflict copy of `notes.txt` on the server, if there is one.
fn copy(source: &Source) -> Option<String> {
    let names = source.names("");
    let is_copy = |name: &&String| name.starts_with("notes (conflict ") && name.ends_with(".txt");
    let copies: Vec<_> = names.iter().filter(is_copy).collect();
    assert!(copies.len() <= 1, "{names:?}");
    copies.first().map(|name| (*name).clone())
}

/// Writes `notes.txt` on both sides; `file` is that of the mount. Asserts that the server's version stays, and that the
/// mount's becomes a copy beside it. Returns the name of the copy.
#[track_caller]
fn conflict(source: &Source, mounted: &Mounted, mut file: File) -> String {
    file.write_all(b"from here").unwrap();
    source.write("notes.txt", "from there");
    drop(file);
    eventually("there is no conflict copy", || copy(source).is_some());
    mounted.uploaded();
    let copy = copy(source).unwrap();
    let far = |name: &str| fs::read_to_string(source.far(name)).unwrap();
    assert_eq!(far("notes.txt"), "from there", "{}", source.arguments());
    assert_eq!(far(&copy), "from here", "{}", source.arguments());
    copy
}

#[test]
fn a_file_that_has_changed_on_the_server_is_not_overwritten() {
    let Some(_turn) = turn() else { return };
    for kind in KINDS {
        let Some(source) = Source::start(kind) else { continue };
        source.write("notes.txt", "old");
        let mounted = Mounted::start(&source, "--read-write");
        let file = File::options().write(true).open(mounted.path("notes.txt")).unwrap();
        let copy = conflict(&source, &mounted, file);
        // The mount shows both files, and the log names the copy.
        assert_eq!(fs::read_to_string(mounted.path(&copy)).unwrap(), "from here", "{kind:?}");
        assert!(mounted.log().contains(&copy), "{kind:?}: {}", mounted.log());
        mounted.end();
        assert_eq!(source.names("").len(), 2, "{kind:?}: {:?}", source.names(""));
    }
}

#[test]
fn a_file_that_was_created_on_both_sides_is_stored_twice() {
    let Some(_turn) = turn() else { return };
    for kind in KINDS {
        let Some(source) = Source::start(kind) else { continue };
        let mounted = Mounted::start(&source, "--read-write");
        let file = File::create(mounted.path("notes.txt")).unwrap();
        conflict(&source, &mounted, file);
        mounted.end();
    }
}

#[test]
fn changes_through_the_mount_alone_are_no_conflict() {
    let Some(_turn) = turn() else { return };
    for kind in KINDS {
        let Some(source) = Source::start(kind) else { continue };
        source.write("notes.txt", "old");
        let mounted = Mounted::start(&source, "--read-write");
        for number in 0..20 {
            // Most are written while an earlier version is being uploaded, every fifth one after that.
            if number % 5 == 0 {
                mounted.uploaded();
            }
            fs::write(mounted.path("notes.txt"), format!("version {number}")).unwrap();
        }
        mounted.uploaded();
        assert_eq!(fs::read_to_string(source.far("notes.txt")).unwrap(), "version 19", "{kind:?}");
        mounted.end();
        assert_eq!(source.names(""), ["notes.txt"], "{kind:?}");
    }
}

/// Formerly, `fstat` showed the size of the version on the server, and reads ended there.
#[test]
fn a_program_goes_on_with_its_conflict_copy() {
    let Some(_turn) = turn() else { return };
    for kind in KINDS {
        let Some(source) = Source::start(kind) else { continue };
        source.write("notes.txt", "old");
        let mounted = Mounted::start(&source, "--read-write");
        let mut options = File::options();
        let options = options.read(true).write(true).truncate(true);
        let mut file = options.open(mounted.path("notes.txt")).unwrap();
        file.write_all(b"from here").unwrap();
        source.write("notes.txt", "from");
        file.sync_all().unwrap();
        let copy = copy(&source).unwrap();
        let from = || fs::read_to_string(mounted.path("notes.txt")).unwrap();
        // The kernel is notified in the background.
        eventually("the name is that of the copy", || from() == "from");
        assert_eq!(file.metadata().unwrap().len(), 9, "{kind:?}");
        let mut found = [0; 9];
        file.read_exact_at(&mut found, 0).unwrap();
        assert_eq!(&found, b"from here", "{kind:?}");
        file.write_all(b"!").unwrap();
        file.sync_all().unwrap();
        file.write_all(b"?").unwrap();
        drop(file);
        mounted.uploaded();
        let stored = |name: &str| fs::read_to_string(source.far(name)).unwrap();
        assert_eq!((stored("notes.txt"), stored(&copy)), ("from".into(), "from here!?".into()));
        assert_eq!(fs::read_to_string(mounted.path(&copy)).unwrap(), "from here!?");
        mounted.end();
        assert_eq!(source.names("").len(), 2, "{kind:?}");
    }
}
