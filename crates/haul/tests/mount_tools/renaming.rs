//! Renaming in a mount: files that are open or wait to be uploaded, as editors do it, and what cannot be renamed.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::io::Errno;

use crate::content::content;
use crate::lab::turn;
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

const KINDS: [Kind; 4] = [Kind::Local, Kind::OpenSsh, Kind::HaulSftp, Kind::Dav];

/// Saves a file in one of the ways of editors.
fn save(top: &Path, number: usize, text: &str) -> io::Result<()> {
    let at = |name: &str| top.join(name);
    let write = |name: &str, syncs: bool| {
        let mut file = File::create(at(name))?;
        file.write_all(text.as_bytes())?;
        if syncs { file.sync_all() } else { Ok(()) }
    };
    match number % 5 {
        // In place.
        0 => write("text", false),
        // The old version becomes a backup, which is removed at the end.
        1 => {
            fs::rename(at("text"), at("text~"))?;
            write("text", true)?;
            fs::remove_file(at("text~"))
        }
        // A complete file takes the name.
        2 => {
            write(".text.tmp", true)?;
            fs::rename(at(".text.tmp"), at("text"))
        }
        3 => {
            write(".text.tmp", false)?;
            fs::rename(at(".text.tmp"), at("text"))
        }
        // A file takes the name while it is open.
        _ => {
            let mut file = File::create(at(".text.tmp"))?;
            file.write_all(&text.as_bytes()[..3])?;
            fs::rename(at(".text.tmp"), at("text"))?;
            file.write_all(&text.as_bytes()[3..])
        }
    }
}

#[test]
fn editors_save_as_on_a_disk() {
    let Some(_turn) = turn() else { return };
    for kind in KINDS {
        let Some(source) = Source::start(kind) else { continue };
        source.write("text", "version 0");
        let mounted = Mounted::start(&source, "--read-write");
        for number in 1..40 {
            let text = format!("version {number}{}", "!".repeat(number % 7));
            // Another program has the previous version open.
            let reader = File::open(mounted.path("text")).unwrap();
            // Squared, so that each way follows itself and all others but one.
            save(&mounted.path(""), number * number + number / 5, &text).unwrap();
            let found = fs::read_to_string(mounted.path("text")).unwrap();
            assert_eq!(found, text, "{kind:?} {number}");
            drop(reader);
            if number % 6 == 0 {
                mounted.uploaded();
            }
        }
        let last = fs::read_to_string(mounted.path("text")).unwrap();
        mounted.end();
        assert_eq!(source.names(""), ["text"], "{kind:?}");
        assert_eq!(fs::read_to_string(source.far("text")).unwrap(), last, "{kind:?}");
    }
}

/// Formerly, the rest of a file was fetched by its old path where the server has no open files.
#[test]
fn a_file_is_renamed_while_its_rest_is_fetched() {
    let Some(_turn) = turn() else { return };
    let whole = content(3, 24 << 20);
    let mut expected = whole.clone();
    expected[5..8].copy_from_slice(b"NEW");
    for kind in KINDS {
        let Some(source) = Source::start(kind) else { continue };
        fs::create_dir(source.far("a")).unwrap();
        source.write("a/one", &whole);
        source.write("a/two", &whole);
        let mounted = Mounted::start(&source, "--read-write");
        for (name, renames_directory) in [("a/one", false), ("a/two", true)] {
            let file = File::options().read(true).write(true).open(mounted.path(name)).unwrap();
            file.write_all_at(b"NEW", 5).unwrap();
            let new = if renames_directory {
                fs::rename(mounted.path("a"), mounted.path("b")).unwrap();
                "b/two"
            } else {
                fs::rename(mounted.path(name), mounted.path("a/new")).unwrap();
                "a/new"
            };
            let mut end = [0; 100];
            file.read_exact_at(&mut end, expected.len() as u64 - 100).unwrap();
            assert_eq!(end, expected[expected.len() - 100..]);
            drop(file);
            mounted.uploaded();
            assert!(fs::read(source.far(new)).unwrap() == expected, "{kind:?} {new}");
            fs::remove_file(mounted.path(new)).unwrap();
        }
        assert_eq!(source.names("b"), Vec::<String>::new(), "{kind:?}");
        mounted.end();
    }
}

#[test]
fn renames_and_removals_fail_as_on_a_disk() {
    let Some(_turn) = turn() else { return };
    for kind in KINDS {
        let Some(source) = Source::start(kind) else { continue };
        for directory in ["from", "full", "empty"] {
            fs::create_dir(source.far(directory)).unwrap();
        }
        source.write("full/file", "content");
        source.write("file", "content");
        let mounted = Mounted::start(&source, "--read-write");
        let failed = |outcome: io::Result<()>| Errno::from_io_error(&outcome.unwrap_err()).unwrap();
        let rename = |from: &str, to: &str| fs::rename(mounted.path(from), mounted.path(to));
        assert_eq!(failed(rename("from", "full")), Errno::NOTEMPTY, "{kind:?}");
        assert_eq!(failed(fs::remove_dir(mounted.path("full"))), Errno::NOTEMPTY, "{kind:?}");
        assert_eq!(failed(rename("file", "empty")), Errno::ISDIR, "{kind:?}");
        assert_eq!(failed(rename("from", "file")), Errno::NOTDIR, "{kind:?}");
        rename("from", "empty").unwrap();
        mounted.end();
        assert_eq!(source.names(""), ["empty", "file", "full"], "{kind:?}");
    }
}
