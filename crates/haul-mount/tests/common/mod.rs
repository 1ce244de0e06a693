//! Helpers of the tests with real mounts, which need root and `/dev/fuse`.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use haul_bench::guard::unshare_mounts_once;
use haul_mount::{Mount, MountBuilder};
use haul_storage::ErrorKind;
use rustix::process::geteuid;

/// Whether this process may mount; reports a skipped test if not. From then on, only this thread, and the threads and
/// processes that it starts, see what is mounted: no mount is left if the test program is killed.
pub fn can_mount() -> bool {
    let can = geteuid().is_root() && Path::new("/dev/fuse").exists();
    if can {
        unshare_mounts_once().unwrap();
    } else {
        eprintln!("SKIPPED: mounting takes root and /dev/fuse");
    }
    can
}

/// Mounts at `point`; `None` where that is not possible at all.
pub fn try_mount(builder: MountBuilder, point: &Path) -> Option<Mount> {
    if !can_mount() {
        return None;
    }
    match builder.mount(point) {
        Ok(mount) => Some(mount),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            eprintln!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Waits until a condition holds, at most for `patience`.
pub fn eventually(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < patience, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}
