//! Targets on file systems that every Linux has: the one that has [`Site::work`], and tmpfs.

use std::fs;
use std::io;
use std::path::Path;

use super::keeps::Keeps;
use super::ready::{Guard, Made, Site, Target, is_root};
use crate::at;
use crate::grow::Features;
use crate::names::Alphabet;

/// The file system of [`Site::work`], assumed to preserve what ext4 does.
pub(super) fn disk(site: &Site<'_>) -> io::Result<Made> {
    let work = site.work;
    let target = on("disk", work, &work.join("on"))?;
    Ok(Made::Ready(Box::new(Target { keeps: Keeps::EXT4, oracle_keeps: Keeps::EXT4, ..target })))
}

/// A tmpfs mounted for one episode; skipped without root.
pub(super) fn tmpfs(site: &Site<'_>) -> io::Result<Made> {
    let work = site.work;
    if !is_root() {
        return Ok(Made::Skipped("mounting takes root".into()));
    }
    let point = work.join("on");
    fs::create_dir(&point).map_err(|error| at("making", &point, &error))?;
    let guard = mount(&["-t", "tmpfs"], Path::new("tmpfs"), &point)?;
    let mut target = on("tmpfs", work, &point)?;
    target.guards.push(guard);
    target.keeps.xattrs = takes_xattrs(&target.destination)?;
    target.oracle_keeps.xattrs = target.keeps.xattrs;
    Ok(Made::Ready(Box::new(target)))
}

/// A target whose destination is a directory of the file system at `point`, and whose source is in
/// `work`.
pub(super) fn on(name: &'static str, work: &Path, point: &Path) -> io::Result<Target> {
    let destination = point.join("dst");
    Ok(Target {
        name,
        source: work.join("src"),
        oracle: point.join("oracle"),
        argument: destination.clone().into(),
        destination,
        arguments: Vec::new(),
        oracle_arguments: &[],
        keeps: Keeps::ALL,
        oracle_keeps: Keeps::ALL,
        features: unix_features(),
        is_server: false,
        renames: false,
        users: is_root(),
        guards: Vec::new(),
    })
}

/// Mounts `what` at `point`; the guard unmounts it.
pub(super) fn mount(arguments: &[&str], what: &Path, point: &Path) -> io::Result<Guard> {
    let output =
        std::process::Command::new("mount").args(arguments).arg(what).arg(point).output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(at("mounting", point, &message.trim()));
    }
    Ok(Guard::Mount(point.to_owned()))
}

/// True if the file system of `directory` supports `user.*` extended attributes.
fn takes_xattrs(directory: &Path) -> io::Result<bool> {
    fs::create_dir_all(directory).map_err(|error| at("making", directory, &error))?;
    let flags = rustix::fs::XattrFlags::empty();
    let taken = rustix::fs::lsetxattr(directory, "user.try", b"1", flags).is_ok();
    fs::remove_dir(directory).map_err(|error| at("removing", directory, &error))?;
    Ok(taken)
}

/// All features of a Unix file system.
fn unix_features() -> Features {
    Features {
        alphabet: Alphabet::Bytes,
        like_own: true,
        modes: true,
        owners: is_root(),
        set_id: true,
        locked: is_root(),
        symlinks: true,
        hard_links: true,
        xattrs: true,
        specials: true,
        in_place: true,
        alike: true,
        far_times: true,
        largest: u64::MAX,
    }
}
