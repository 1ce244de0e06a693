//! File systems in images, for tests of what they support.

use std::fs::File;
use std::process::Command;

use haul_bench::guard::unshare_mounts_once;

use crate::session::Session;

/// A file system in an image, unmounted when it is dropped.
pub struct Image {
    at: std::path::PathBuf,
    device: String,
}

impl Image {
    /// Creates a file system of 400 MiB by the command `make`, and mounts it at `name` by the command `mount`. `None`,
    /// with the reason printed, where that is not possible.
    pub fn new(session: &Session, name: &str, make: &[&str], mount: &[&str]) -> Option<Self> {
        unshare_mounts_once().unwrap();
        let (image, at) = (session.path(format!("{name}.image")), session.path(name));
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        std::fs::create_dir(&at).unwrap();
        let done = |command: &mut Command| command.output().ok().filter(|out| out.status.success());
        let made = done(Command::new(make[0]).args(&make[1..]).arg(&image));
        let device =
            made.and_then(|_| done(Command::new("losetup").args(["-f", "--show"]).arg(&image)));
        let device = device.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
        let Some(device) = device else {
            eprintln!("skipped: {} or losetup does not work here", make[0]);
            return None;
        };
        let this = Self { at, device };
        let mounted =
            done(Command::new(mount[0]).args(&mount[1..]).arg(&this.device).arg(&this.at));
        if mounted.is_none() {
            eprintln!("skipped: {name} cannot be mounted here");
        }
        mounted.map(|_| this)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // It is not mounted if mounting failed.
        drop(Command::new("umount").arg(&self.at).output());
        drop(Command::new("losetup").args(["-d", &self.device]).output());
    }
}
