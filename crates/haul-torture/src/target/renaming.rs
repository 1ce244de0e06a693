//! Target on a FUSE file system that stores files under other names than requested, written for this test
//! (`fuse/renaming.py`).

use std::fs;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::image::find_program;
use super::keeps::Keeps;
use super::local::on;
use super::ready::{Guard, Made, Site, Target, is_root};
use crate::at;
use crate::names::Alphabet;

const PROGRAM: &str = include_str!("../../fuse/renaming.py");
/// Debian's Python, for which its package of fusepy is installed.
const PYTHON: &str = "/usr/bin/python3";

/// Mounts a file system that decomposes letters (NFD), ignores case, and drops dots and spaces at the end of names.
pub(super) fn renaming(site: &Site<'_>) -> io::Result<Made> {
    if !is_root() {
        return Ok(Made::Skipped("mounting takes root".into()));
    }
    let has = Command::new(PYTHON).args(["-c", "import fusepy"]).stderr(Stdio::null()).status();
    if !has.is_ok_and(|status| status.success()) || find_program("fusermount").is_none() {
        return Ok(Made::Skipped(format!("there is no fusepy for {PYTHON}, or no fusermount")));
    }
    let [program, backing, point] =
        ["renaming.py", "backing", "on"].map(|name| site.work.join(name));
    for directory in [&backing, &point] {
        fs::create_dir(directory).map_err(|error| at("making", directory, &error))?;
    }
    fs::write(&program, PROGRAM).map_err(|error| at("writing", &program, &error))?;
    let child = Command::new(PYTHON).arg(&program).arg(&backing).arg(&point).spawn()?;
    let guards = vec![Guard::Mount(point.clone()), Guard::Process(child)];
    let before = rustix::fs::stat(&backing)?.st_dev;
    let is_mounted = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        rustix::fs::stat(&point).is_ok_and(|stat| stat.st_dev != before)
    });
    if !is_mounted {
        return Ok(Made::Skipped("FUSE does not mount here".into()));
    }
    let target = on("renaming", site.work, &point)?;
    let keeps = Keeps { xattrs: false, ..Keeps::EXT4 };
    let mut target = Target { keeps, oracle_keeps: keeps, renames: true, guards, ..target };
    target.features.alphabet = Alphabet::ShortText;
    target.features.like_own = false;
    target.features.alike = false;
    target.features.xattrs = false;
    target.features.specials = false;
    // libfuse 2 does not support times before 1970.
    target.features.far_times = false;
    target.users = false;
    Ok(Made::Ready(Box::new(target)))
}
