//! `haul-torture --keep` leaves what a failed step worked on.

use std::fs;
use std::process::Command;

/// Ends what the program has left, also if the test fails.
struct Left(Vec<String>);

impl Drop for Left {
    fn drop(&mut self) {
        for command in &self.0 {
            let _ = Command::new("sh").args(["-c", command]).status();
        }
    }
}

#[test]
fn a_failed_step_leaves_its_mount_and_the_command_that_unmounts_it() {
    let work = tempfile::tempdir().unwrap();
    // It makes every step fail.
    let haul = work.path().join("haul");
    fs::write(&haul, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&haul, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_haul-torture"))
        .args(["--keep", "--seed", "1", "--target", "tmpfs", "--steps", "1", "--haul"])
        .args([haul.as_path(), "--work".as_ref(), work.path()])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    if printed.contains("skipped") {
        eprintln!("{printed}");
        return;
    }
    let commands = printed.lines().filter_map(|line| line.strip_prefix("    umount "));
    let left = Left(commands.map(|rest| format!("umount {rest}")).collect());
    let mounted = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let path = work.path().canonicalize().unwrap();
        mounts.lines().filter(|line| line.contains(path.to_str().unwrap())).count()
    };
    assert_eq!((left.0.len(), mounted()), (1, 1), "{printed}");
    drop(left);
    assert_eq!(mounted(), 0);
}
