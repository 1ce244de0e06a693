//! Targets on kernel and FUSE file systems, each in an image file. Mounting them requires root.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::keeps::Keeps;
use super::local::{mount, on};
use super::ready::{Guard, Made, Site, Target, is_root};
use crate::at;
use crate::names::Alphabet;

/// Bytes of an image, a sparse file at first. mkfs.xfs refuses less than 300 MB.
const SIZE: u64 = 400 << 20;

/// How to create and mount a file system, and which metadata it preserves.
struct Recipe {
    name: &'static str,
    /// The mkfs program and its options.
    make: &'static [&'static str],
    /// The mounting program and its options; image and mount point follow. `mount` stands for a kernel file system,
    /// anything else for FUSE.
    mount: &'static [&'static str],
    /// The mounting program accepts a block device only.
    device: bool,
    keeps: Keeps,
}

/// ext4 with 128-byte inodes: whole seconds only, and no times after January 2038.
pub(super) fn ext4_small_inodes(site: &Site<'_>) -> io::Result<Made> {
    create_and_mount(
        site.work,
        &Recipe {
            name: "ext4-128",
            make: &["mkfs.ext4", "-q", "-F", "-I", "128", "-b", "4096"],
            mount: &["mount", "-o", "loop"],
            device: false,
            keeps: Keeps { precision_ns: 1_000_000_000, latest: 0x7fff_ffff, ..Keeps::EXT4 },
        },
    )
}

/// ext3: like ext4 with small inodes, but without extents.
pub(super) fn ext3(site: &Site<'_>) -> io::Result<Made> {
    create_and_mount(
        site.work,
        &Recipe {
            name: "ext3",
            make: &["mkfs.ext3", "-q", "-F", "-I", "128", "-b", "4096"],
            mount: &["mount", "-o", "loop"],
            device: false,
            keeps: Keeps { precision_ns: 1_000_000_000, latest: 0x7fff_ffff, ..Keeps::EXT4 },
        },
    )
}

/// XFS with 64-bit times (`bigtime`). It lists ACLs once more to root, as `trusted.SGI_ACL_FILE`: rsync would remove
/// them there, as attributes that the source does not have. Filters of attributes replace rsync's own.
pub(super) fn xfs(site: &Site<'_>) -> io::Result<Made> {
    let made = create_and_mount(
        site.work,
        &Recipe {
            name: "xfs",
            make: &["mkfs.xfs", "-q", "-f", "-m", "bigtime=1"],
            mount: &["mount", "-o", "loop"],
            device: false,
            keeps: Keeps { earliest: -0x8000_0000, latest: 16_299_260_424, ..Keeps::ALL },
        },
    )?;
    Ok(adjusted(made, |target| {
        target.oracle_arguments = &["--filter=-x system.*", "--filter=-x trusted.*"];
    }))
}

/// btrfs.
pub(super) fn btrfs(site: &Site<'_>) -> io::Result<Made> {
    create_and_mount(
        site.work,
        &Recipe {
            name: "btrfs",
            make: &["mkfs.btrfs", "-q", "-f"],
            mount: &["mount", "-o", "loop"],
            device: false,
            keeps: Keeps::ALL,
        },
    )
}

/// NTFS by ntfs-3g: it has links and extended attributes, and with `permissions` also modes and owners.
pub(super) fn ntfs(site: &Site<'_>) -> io::Result<Made> {
    let made = create_and_mount(
        site.work,
        &Recipe {
            name: "ntfs-3g",
            make: &["mkfs.ntfs", "-q", "-F", "-f"],
            mount: &["ntfs-3g", "-o", "permissions"],
            device: true,
            keeps: Keeps {
                precision_ns: 100,
                earliest: -11_644_473_600,
                latest: 910_692_730_085,
                ..Keeps::ALL
            },
        },
    )?;
    Ok(adjusted(made, |target| {
        target.features.alphabet = Alphabet::ShortText;
        target.features.in_place = false;
        target.features.specials = false;
        // ntfs-3g loses times before 1970 and large group ids.
        target.features.far_times = false;
        target.features.owners = false;
        target.users = false;
    }))
}

/// exFAT by exfat-fuse: times in whole seconds, no links, no modes.
pub(super) fn exfat(site: &Site<'_>) -> io::Result<Made> {
    let made = create_and_mount(
        site.work,
        &Recipe {
            name: "exfat-fuse",
            make: &["mkfs.exfat"],
            mount: &["mount.exfat-fuse"],
            device: true,
            keeps: Keeps { precision_ns: 1_000_000_000, ..FAT },
        },
    )?;
    Ok(adjusted(made, fat_features))
}

/// What FAT and exFAT preserve. FAT stores times in steps of two seconds, from 1980 to 2107.
const FAT: Keeps = Keeps {
    mode: false,
    owner: false,
    xattrs: false,
    symlinks: false,
    hard_links: false,
    link_times: false,
    precision_ns: 2_000_000_000,
    earliest: 315_532_800,
    latest: 4_354_819_198,
    ..Keeps::ALL
};

fn fat_features(target: &mut Target) {
    target.features.alphabet = Alphabet::Fat;
    target.features.modes = false;
    target.features.owners = false;
    target.features.symlinks = false;
    target.features.hard_links = false;
    target.features.xattrs = false;
    target.features.specials = false;
    target.features.far_times = false;
    target.users = false;
}

/// Applies `adjust` to a target that was not skipped.
fn adjusted(made: Made, adjust: impl FnOnce(&mut Target)) -> Made {
    match made {
        Made::Ready(mut target) => {
            adjust(&mut target);
            Made::Ready(target)
        }
        skipped @ Made::Skipped(_) => skipped,
    }
}

fn create_and_mount(work: &Path, recipe: &Recipe) -> io::Result<Made> {
    if !is_root() {
        return Ok(Made::Skipped("mounting takes root".into()));
    }
    for program in [recipe.make[0], recipe.mount[0]] {
        if find_program(program).is_none() {
            return Ok(Made::Skipped(format!("there is no {program}")));
        }
    }
    let (image, point) = (work.join("image"), work.join("on"));
    fs::create_dir(&point).map_err(|error| at("making", &point, &error))?;
    File::create(&image)?.set_len(SIZE)?;
    run(recipe.make, &[&image])?;
    let mut guards = Vec::new();
    if recipe.mount[0] == "mount" {
        match mount(&recipe.mount[1..], &image, &point) {
            Ok(guard) => guards.push(guard),
            // The kernel may not support this file system.
            Err(error) => return Ok(Made::Skipped(error.to_string())),
        }
    } else {
        let mut device = image.clone();
        let mut released = None;
        if recipe.device {
            device = attach(&image)?;
            released = Some(Guard::Loop(device.clone()));
        }
        let mounted = run(recipe.mount, &[&device, &point]);
        guards.push(Guard::Mount(point.clone()));
        guards.extend(released);
        if let Err(error) = mounted {
            return Ok(Made::Skipped(error.to_string()));
        }
    }
    let target = on(recipe.name, work, &point)?;
    Ok(Made::Ready(Box::new(Target {
        keeps: recipe.keeps,
        oracle_keeps: recipe.keeps,
        guards,
        ..target
    })))
}

/// Attaches an image to a loop device and returns its path.
fn attach(image: &Path) -> io::Result<PathBuf> {
    let output = Command::new("losetup").args(["--find", "--show"]).arg(image).output()?;
    if !output.status.success() {
        return Err(at("attaching", image, &String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

fn run(command: &[&str], paths: &[&Path]) -> io::Result<()> {
    let output = Command::new(find_program(command[0]).unwrap_or_else(|| command[0].into()))
        .args(&command[1..])
        .args(paths)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{}: {}", command.join(" "), stderr.trim())))
}

/// Finds a program in `PATH`, `/usr/sbin` or `/sbin`: the last two are often missing from a user's `PATH`.
pub(super) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}
