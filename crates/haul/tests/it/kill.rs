//! `kill -9` at many moments of a run: files under a final name are complete, the rerun gives identical
//! results, and repeats no more than one window.
//!
//! `HAUL_TEST_KILLS` is the number of kills (200 if it is not set).

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::fs::SeekFrom;

use crate::session::Session;

/// Bytes in flight between disks: 32 blocks of 256 KiB.
const WINDOW: u64 = 8 << 20;

/// Writes every kind of file that a kill can interrupt: small ones in batches, medium ones without a journal (below
/// 2 MiB) and with one, large ones, one with holes.
fn source(session: &Session) {
    let mut seed = 1u64;
    let mut bytes = |length: usize| {
        let mut content = vec![0u8; length];
        for word in content.chunks_mut(8) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.copy_from_slice(&seed.to_le_bytes()[..word.len()]);
        }
        content
    };
    for at in 0..300 {
        session.write(format!("src/d{}/small{at}", at % 10), bytes(at * 13));
    }
    for at in 0..6 {
        session.write(format!("src/middle{at}"), bytes((1 << 20) + at * 300_001));
    }
    for at in 0..3 {
        session.write(format!("src/large{at}"), bytes((24 << 20) + at * 1_000_003));
    }
    let holes = File::create(session.path("src/holes")).unwrap();
    holes.set_len(40 << 20).unwrap();
    rustix::io::pwrite(&holes, &bytes(3 << 20), 17 << 20).unwrap();
}

/// All entries below a directory, without the directories.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => pending.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

/// Bytes of data in a file, without holes and reserved space.
fn data_bytes(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let size = file.metadata().unwrap().len();
    let (mut at, mut data) = (0, 0);
    while at < size {
        let Ok(start) = rustix::fs::seek(file.as_fd(), SeekFrom::Data(at)) else { break };
        let end = rustix::fs::seek(file.as_fd(), SeekFrom::Hole(start)).unwrap_or(size);
        data += end.min(size) - start;
        at = end;
    }
    data
}

fn is_unfinished(path: &Path) -> bool {
    haul_storage::is_part_name(path.file_name().unwrap().as_encoded_bytes())
}

/// The part files and their bytes, after checking that all other files are complete.
fn check_finished(session: &Session) -> Vec<(String, u64)> {
    let (source, destination) = (session.path("src"), session.path("dst/src"));
    let mut unfinished = Vec::new();
    for file in files(&destination) {
        if is_unfinished(&file) {
            let name = file.file_name().unwrap().to_string_lossy();
            if name.ends_with(".haul-part") {
                unfinished.push((name.into_owned(), data_bytes(&file)));
            }
            continue;
        }
        let original = source.join(file.strip_prefix(&destination).unwrap());
        assert!(
            fs::read(&file).unwrap() == fs::read(&original).unwrap(),
            "{} has its final name and is incomplete",
            file.display()
        );
    }
    unfinished
}

fn kill_and_continue(options: &str) {
    let kills: u32 = std::env::var("HAUL_TEST_KILLS").map_or(200, |text| text.parse().unwrap());
    let session = Session::new();
    source(&session);
    let line = format!("cp --json --no-progress {options} src dst");
    // The machine may stall for a moment, and then most kills would come too late.
    let runs = [(); 3].map(|()| {
        let started = Instant::now();
        session.haul(&line).status(0);
        let took = started.elapsed();
        fs::remove_dir_all(session.path("dst")).unwrap();
        took
    });
    let whole_run = runs.into_iter().min().unwrap();

    let (mut struck, mut most_repeated, mut resumed_runs) = (0, 0, 0);
    for attempt in 0..kills * 4 {
        if struck == kills {
            break;
        }
        // Spread over a run, at a different moment for each kill.
        let moment = whole_run.mul_f64(f64::from(attempt * 61 % 997) / 997.0);
        let mut child =
            session.command(&line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(moment.max(Duration::from_micros(500)));
        let finished = child.try_wait().unwrap().is_some();
        child.kill().unwrap();
        child.wait().unwrap();
        struck += u32::from(!finished);

        let unfinished = check_finished(&session);
        let summary = session.haul(&line).status(0).summary();
        let resumed = summary["resumed_bytes"].as_u64().unwrap();
        // A hole of the source counts as done in the summary, and is not data in the part file.
        let bytes: u64 = unfinished.iter().map(|(_, bytes)| bytes).sum();
        let repeated = bytes.saturating_sub(resumed);
        assert!(
            repeated <= WINDOW,
            "kill {struck} at {moment:?}: {repeated} bytes of {unfinished:?} are repeated"
        );
        most_repeated = most_repeated.max(repeated);
        resumed_runs += u32::from(resumed > 0);

        check_finished(&session);
        let count = files(&session.path("dst/src")).len();
        assert_eq!(count, files(&session.path("src")).len(), "something is missing or left over");
        fs::remove_dir_all(session.path("dst")).unwrap();
    }
    eprintln!(
        "haul cp {options}: {struck} kills, {struck} identical results, {resumed_runs} runs resumed \
         part files, at most {most_repeated} bytes repeated"
    );
    assert_eq!(struck, kills, "too few kills hit a running process");
    assert!(resumed_runs > 0, "no run had a part file to resume");
}

#[test]
fn killed_at_any_moment_a_rerun_finishes_with_identical_bytes() {
    kill_and_continue("");
}

#[test]
fn killed_at_any_moment_with_a_manifest_a_rerun_finishes_with_identical_bytes() {
    kill_and_continue("--manifest");
}

/// Formerly, `--overwrite newer`, which leaves such a file alone, left its journal as well.
#[test]
fn a_journal_that_a_kill_left_next_to_a_finished_file_is_removed_where_the_file_stays() {
    for mode in ["different", "newer", "never"] {
        let session = Session::new().file("src/f", vec![7; 9 << 20]);
        session.haul("cp -q src/ dst").status(0);
        session.write("dst/.f.haul-journal", "left");
        session.haul(&format!("cp -q --overwrite {mode} src/ dst")).status(0).stderr("");
        assert!(!session.has("dst/.f.haul-journal"), "{mode}");
        // Next to any file: a journal without a part file is useless.
        session.write("dst/f", "other");
        session.tool("touch -d 2040-01-01 dst/f");
        if mode != "different" {
            for has_part in [false, true] {
                session.write("dst/.f.haul-journal", "left");
                if has_part {
                    session.write("dst/.f.haul-part", "left");
                }
                session.haul(&format!("cp -q --overwrite {mode} src/ dst")).status(0).stderr("");
                assert_eq!(session.has("dst/.f.haul-journal"), has_part, "{mode}");
            }
        }
    }
}

/// Where every rename replaces an existing file (ntfs-3g has no `RENAME_NOREPLACE`), haul links the final name and then
/// removes the part file's name. A run that is killed in between leaves the file under both names.
#[test]
fn a_part_file_name_that_a_kill_left_on_a_finished_file_is_removed() {
    for mode in ["different", "newer", "never"] {
        let session = Session::new().file("src/f", "content");
        session.haul("cp -q src/ dst").status(0);
        session.tool("ln dst/f dst/.f.haul-part");
        session.haul(&format!("cp -q --overwrite {mode} --dry-run src/ dst")).status(0).stderr("");
        assert!(session.has("dst/.f.haul-part"), "{mode}");
        session.haul(&format!("cp -q --overwrite {mode} src/ dst")).status(0).stderr("");
        assert!(!session.has("dst/.f.haul-part"), "{mode}");
        // A part file that is another file stays: a run may resume from it.
        session.tool("ln dst/f dst/second");
        session.write("dst/.f.haul-part", "con");
        session.haul(&format!("cp -q --overwrite {mode} src/ dst")).status(0).stderr("");
        assert!(session.has("dst/.f.haul-part"), "{mode}");
    }
}
