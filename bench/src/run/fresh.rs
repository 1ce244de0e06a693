//! Creates a new file system for each run.
//!
//! After files were removed, ext4 creates new ones up to ten times more slowly for minutes, so one run would affect
//! the results of the next. The image is a sparse file in memory, and is removed after the run.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::command::must_run;
use crate::data::DataSpec;
use crate::tools::on_path;

/// How reports describe these file systems.
pub(super) const NAME: &str = "ext4, made for each run";

/// Creates file systems, one at a time.
#[derive(Debug)]
pub(super) struct Maker {
    image: PathBuf,
    bytes: u64,
    inodes: u64,
}

/// Whether this machine has what is needed: root, mkfs.ext4 and loop devices.
pub(super) fn available() -> bool {
    rustix::process::geteuid().is_root()
        && on_path("mkfs.ext4").is_some()
        && Path::new("/dev/loop-control").exists()
}

impl Maker {
    /// Prepares file systems that are large enough for copies of `data`. Creates `directory` for the image,
    /// and mounts a tmpfs on it.
    pub(super) fn new(directory: &Path, data: &DataSpec) -> io::Result<Self> {
        fs::create_dir(directory)?;
        let settings: Option<&CStr> = None;
        mount("tmpfs", directory, "tmpfs", MountFlags::empty(), settings)?;
        Ok(Self {
            image: directory.join("image"),
            // Space for a part file beside each file, for inode tables and the journal.
            bytes: data.total() * 2 + (u64::from(data.files) << 12) + (2 << 30),
            inodes: u64::from(data.files + data.directories) * 2 + 1000,
        })
    }

    /// Creates a file system and mounts it on `point`.
    pub(super) fn mount_on(&self, point: &Path) -> io::Result<()> {
        File::create(&self.image)?.set_len(self.bytes)?;
        let inodes = self.inodes.to_string();
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-N", &inodes]).arg(&self.image);
        must_run(&mut make)?;
        let mut attach = Command::new("mount");
        attach.args(["-o", "loop"]).arg(&self.image).arg(point);
        must_run(&mut attach)?;
        fs::remove_dir(point.join("lost+found"))
    }

    /// Unmounts the file system from `point` and removes it.
    pub(super) fn take_from(&self, point: &Path) -> io::Result<()> {
        unmount(point, UnmountFlags::empty())?;
        fs::remove_file(&self.image)
    }
}
