//! The short torture test: the seeds that once found a bug, then 200 steps.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

#[test]
fn two_hundred_steps_give_the_results_of_the_model_and_rsync() {
    let rsync = Command::new("rsync").arg("--version").output();
    if rsync.is_err() {
        eprintln!("skipped: there is no rsync");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_haul-torture"))
        .args(["--short", "--steps", "200", "--haul"])
        .arg(haul())
        .output()
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    eprintln!("{err}{out}");
    assert!(output.status.success(), "haul-torture: {}", output.status);
}

/// The haul built from this source: the executable next to that of `haul-torture`, rebuilt if a source file is newer.
fn haul() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_haul-torture")).with_file_name("haul");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let is_current =
        built.metadata().is_ok_and(|built| built.modified().unwrap() >= newest(crates));
    if !is_current {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "haul"]).current_dir(crates);
        if cfg!(not(debug_assertions)) {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "haul cannot be built");
    }
    built
}

/// The modification time of the newest source file of haul and the crates it depends on, below `directory`.
fn newest(directory: &Path) -> SystemTime {
    let mut newest = SystemTime::UNIX_EPOCH;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "tests" && name != "haul-torture" && name != "haul-fault-proxy"
        {
            newest = newest.max(self::newest(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            newest = newest.max(path.metadata().unwrap().modified().unwrap());
        }
    }
    newest
}
