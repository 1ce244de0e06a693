//! Creates random trees on disk and changes them at random.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, UTIME_OMIT, XattrFlags};

use crate::at;
use crate::chance::Chance;
use crate::names::{Alphabet, canonical, name};

/// What a tree may contain. Features that a file system lacks are disabled.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// The kind of names.
    pub alphabet: Alphabet,
    /// Names that look like haul's own.
    pub like_own: bool,
    /// Modes.
    pub modes: bool,
    /// Owners other than the current user, which needs root.
    pub owners: bool,
    /// Set-user-ID and set-group-ID.
    pub set_id: bool,
    /// Modes without read permission for the owner; only root can copy such files.
    pub locked: bool,
    /// Symbolic links.
    pub symlinks: bool,
    /// Hard links.
    pub hard_links: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Pipes and sockets.
    pub specials: bool,
    /// A file that is changed in place changes under all its names. With ntfs-3g, the kernel caches each
    /// name separately, so other names may show the old content for a while.
    pub in_place: bool,
    /// Names in one directory that a name-changing file system treats as equal.
    pub alike: bool,
    /// Times before 1970 and after 2106.
    pub far_times: bool,
    /// The longest file.
    pub largest: u64,
}

/// Ranges of interesting sizes: empty; one byte; disk blocks; the least size with a journal (64 KiB, with a
/// small window); one write (`--block-size`) and the limit of files that are moved whole (256 KiB); a journal
/// record (1 MiB); the size from which every file has a journal (2 MiB); half a window and a whole one between disks
/// (4 and 8 MiB); about two windows.
const SIZES: &[(u64, u64)] = &[
    (0, 0),
    (1, 1),
    (2, 100),
    (511, 513),
    (4095, 4097),
    (8191, 8193),
    (65_535, 65_537),
    (262_143, 262_145),
    (524_287, 524_289),
    (1_048_575, 1_048_577),
    (2_097_151, 2_097_153),
    (4_194_303, 4_194_305),
    (8_388_607, 8_388_609),
    (15_000_000, 20_000_000),
];

/// Adds up to `count` random entries below `root`, which is a directory.
pub fn grow(chance: &mut Chance, root: &Path, count: usize, features: &Features) -> io::Result<()> {
    for _ in 0..count {
        let directories = directories(root)?;
        let directory = chance.pick(&directories).clone();
        let path =
            directory.join(OsStr::from_bytes(&name(chance, features.alphabet, features.like_own)));
        if is_taken(&path, features)? {
            continue;
        }
        create(chance, root, &path, features)?;
    }
    Ok(())
}

/// Changes a few random entries below `root`.
pub fn mutate(chance: &mut Chance, root: &Path, features: &Features) -> io::Result<()> {
    for _ in 0..chance.below(6) {
        let everything = everything(root)?;
        if everything.is_empty() || chance.one_in(3) {
            let count = 1 + chance.below(4);
            grow(chance, root, count, features)?;
            continue;
        }
        let path = chance.pick(&everything).clone();
        change(chance, root, &path, features)?;
    }
    Ok(())
}

fn change(chance: &mut Chance, root: &Path, path: &Path, features: &Features) -> io::Result<()> {
    let stat = fs::symlink_metadata(path).map_err(|error| at("looking at", path, &error))?;
    match chance.below(9) {
        0 => remove(path),
        // A directory becomes a file, a file a link, and so on.
        1 => {
            remove(path)?;
            create(chance, root, path, features)
        }
        2 | 3 if stat.is_file() && (features.in_place || stat.nlink() == 1) => {
            let mut content = fs::read(path).map_err(|error| at("reading", path, &error))?;
            match chance.below(4) {
                0 => content.truncate(content.len() / 2),
                1 => {
                    let more = 1 + chance.below(5000);
                    content.extend(chance.bytes(more));
                }
                2 if !content.is_empty() => {
                    let index = chance.below(content.len());
                    content[index] ^= 1;
                }
                _ => {
                    let length = content.len();
                    content = chance.bytes(length);
                }
            }
            // In place, so that all names of the file change.
            fs::write(path, content).map_err(|error| at("writing", path, &error))?;
            // With another time, because a comparison by size and time cannot see a change of bytes only.
            set_time(path, distinct_time(chance, features))
        }
        4 | 5 if !stat.is_symlink() => set_random_metadata(chance, path, features),
        6 => {
            // Renames, possibly into another directory, but not into itself.
            let directories = directories(root)?;
            let new = chance.pick(&directories).join(OsStr::from_bytes(&name(
                chance,
                features.alphabet,
                features.like_own,
            )));
            if new.starts_with(path) || is_taken(&new, features)? {
                return Ok(());
            }
            fs::rename(path, &new).map_err(|error| at("renaming", path, &error))
        }
        7 if features.hard_links && stat.is_file() => hard_link(chance, root, path, features),
        _ => set_time(path, time(chance, features)),
    }
}

/// Whether this name, or one that must not coexist with it, is taken.
fn is_taken(path: &Path, features: &Features) -> io::Result<bool> {
    if fs::symlink_metadata(path).is_ok() {
        return Ok(true);
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return Ok(true) };
    if features.alike {
        return Ok(false);
    }
    let wanted = canonical(name.as_bytes());
    for entry in fs::read_dir(directory).map_err(|error| at("listing", directory, &error))? {
        if canonical(entry?.file_name().as_bytes()) == wanted {
            return Ok(true);
        }
    }
    Ok(false)
}

fn hard_link(chance: &mut Chance, root: &Path, path: &Path, features: &Features) -> io::Result<()> {
    let directories = directories(root)?;
    let new = chance.pick(&directories).join(OsStr::from_bytes(&name(
        chance,
        features.alphabet,
        features.like_own,
    )));
    if is_taken(&new, features)? {
        return Ok(());
    }
    fs::hard_link(path, &new).map_err(|error| at("linking", path, &error))
}

fn remove(path: &Path) -> io::Result<()> {
    let stat = fs::symlink_metadata(path).map_err(|error| at("looking at", path, &error))?;
    let removed = if stat.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.map_err(|error| at("removing", path, &error))
}

/// Creates a random entry at `path`, which must be free.
fn create(chance: &mut Chance, root: &Path, path: &Path, features: &Features) -> io::Result<()> {
    let failed = |error: &dyn std::fmt::Display| at("making", path, error);
    match chance.below(12) {
        0..3 => {
            // Not too deep: five names of 255 bytes are a third of the longest path (4 096 bytes).
            let depth = path.strip_prefix(root).map_or(0, |below| below.components().count());
            if depth < 5 {
                fs::create_dir(path).map_err(|error| failed(&error))?;
                return set_random_metadata(chance, path, features);
            }
        }
        3 if features.symlinks => {
            let targets: &[&str] = &[
                "a",
                "missing",
                ".",
                "..",
                "../..",
                "/",
                "/etc/passwd",
                "./loop",
                "data/../a",
                "x\ny",
                "\u{e4}",
                "//double",
                "trailing/",
            ];
            let own = path.file_name().unwrap_or_default();
            let target = match chance.below(4) {
                0 => PathBuf::from(own),
                1 => PathBuf::from("t".repeat(1000)),
                _ => PathBuf::from(chance.pick(targets)),
            };
            std::os::unix::fs::symlink(target, path).map_err(|error| failed(&error))?;
            return set_owner(chance, path, features);
        }
        4 if features.specials => {
            let kind = *chance.pick(&[FileType::Fifo, FileType::Socket]);
            rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(0o644), 0)
                .map_err(|error| failed(&error))?;
            return Ok(());
        }
        5 if features.hard_links => {
            let files: Vec<PathBuf> = everything(root)?
                .into_iter()
                .filter(|path| fs::symlink_metadata(path).is_ok_and(|stat| stat.is_file()))
                .collect();
            if !files.is_empty() {
                let existing = chance.pick(&files);
                return fs::hard_link(existing, path).map_err(|error| failed(&error));
            }
        }
        6 => {
            sparse(chance, path).map_err(|error| failed(&error))?;
            return set_random_metadata(chance, path, features);
        }
        _ => {}
    }
    let size = size(chance, features);
    let content = chance.bytes(usize::try_from(size).unwrap_or(0));
    let mut file = File::create(path).map_err(|error| failed(&error))?;
    file.write_all(&content).map_err(|error| failed(&error))?;
    drop(file);
    set_random_metadata(chance, path, features)
}

fn size(chance: &mut Chance, features: &Features) -> u64 {
    // Long files are rare, because they slow the test down.
    let end = match chance.below(40) {
        0..30 => 6,
        30..38 => 9,
        38 => 12,
        _ => SIZES.len(),
    };
    let (low, high) = SIZES[chance.below(end)];
    chance.between(low, high).min(features.largest)
}

/// Creates a file of at most three pieces with random bytes, and holes around them.
fn sparse(chance: &mut Chance, path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    let length = *chance.pick(&[1_u64, 4096, 100_000, 300_000, 1 << 20, (2 << 20) + 5, 5 << 20]);
    for _ in 0..chance.below(4) {
        let from = chance.between(0, length);
        let count = *chance.pick(&[1_usize, 100, 4096, 70_000]);
        let bytes = chance.bytes(count);
        file.write_all_at(&bytes, from)?;
    }
    if file.metadata()?.len() < length {
        file.set_len(length)?;
    }
    Ok(())
}

/// Sets random mode, owner, attributes and time of an existing entry.
fn set_random_metadata(chance: &mut Chance, path: &Path, features: &Features) -> io::Result<()> {
    let stat = fs::symlink_metadata(path).map_err(|error| at("looking at", path, &error))?;
    set_owner(chance, path, features)?;
    if features.xattrs && (stat.is_dir() || stat.is_file()) && chance.one_in(3) {
        set_attributes(chance, path)?;
    }
    if features.modes {
        let mode = mode(chance, stat.is_dir(), features);
        rustix::fs::chmod(path, Mode::from_raw_mode(mode))
            .map_err(|error| at("chmod", path, &error))?;
    }
    set_time(path, time(chance, features))
}

fn mode(chance: &mut Chance, is_directory: bool, features: &Features) -> u32 {
    let usual: &[u32] =
        if is_directory { &[0o755, 0o700, 0o775, 0o750] } else { &[0o644, 0o600, 0o755, 0o640] };
    let readable: &[u32] = if is_directory {
        &[0o555, 0o500, 0o777, 0o711]
    } else {
        &[0o444, 0o400, 0o666, 0o777, 0o501]
    };
    let locked: &[u32] = &[0, 0o000, 0o200, 0o111, 0o070, 0o007];
    let mode = match chance.below(8) {
        0..4 => *chance.pick(usual),
        4..7 => *chance.pick(readable),
        _ if features.locked => *chance.pick(locked),
        _ => *chance.pick(usual),
    };
    let special = match chance.below(12) {
        0 if features.set_id => 0o4000,
        1 if features.set_id => 0o2000,
        2 if features.set_id => 0o6000,
        3 => 0o1000,
        _ => 0,
    };
    mode | special
}

fn set_owner(chance: &mut Chance, path: &Path, features: &Features) -> io::Result<()> {
    if !features.owners || chance.one_in(2) {
        return Ok(());
    }
    let ids = [0, 1, 1000, 65_534, 70_000, 4_294_967_294];
    let (user, group) = (*chance.pick(&ids), *chance.pick(&ids));
    std::os::unix::fs::lchown(path, Some(user), Some(group))
        .map_err(|error| at("chown", path, &error))
}

fn set_attributes(chance: &mut Chance, path: &Path) -> io::Result<()> {
    let names: &[&str] = &["user.a", "user.empty", "user.\u{e4} b", "user.long"];
    for _ in 0..=chance.below(2) {
        let name = *chance.pick(names);
        if chance.one_in(4) {
            // The attribute need not exist.
            let _ = rustix::fs::lremovexattr(path, name);
            continue;
        }
        let length = match name {
            "user.empty" => 0,
            "user.long" => 1500,
            _ => 1 + chance.below(40),
        };
        let value = chance.bytes(length);
        rustix::fs::lsetxattr(path, name, &value, XattrFlags::empty())
            .map_err(|error| at("setting an attribute of", path, &error))?;
    }
    Ok(())
}

/// A random time out of a few, so that source and destination often have the same one.
fn time(chance: &mut Chance, features: &Features) -> Timespec {
    let near: &[(i64, i64)] = &[
        (1_700_000_000, 0),
        (1_700_000_000, 1),
        (1_700_000_000, 999_999_999),
        (1_700_000_001, 0),
        (1_700_000_001, 500_000_000),
        (1_600_000_000, 123_456_789),
        (1_000_000_000, 100),
        (978_307_200, 10_000_000),
        (2_000_000_001, 987_654_321),
    ];
    let far: &[(i64, i64)] = &[
        (0, 0),
        (0, 1),
        (-1, 0),
        (-1, 999_999_999),
        (-2_000_000_000, 5),
        (-2_147_483_648, 0),
        (2_147_483_647, 999_999_999),
        (2_147_483_648, 0),
        (4_294_967_295, 0),
        (4_294_967_296, 1),
        (5_000_000_000, 123_456_789),
        (10_000_000_000, 1),
    ];
    let (seconds, nanos) =
        if features.far_times && chance.one_in(4) { *chance.pick(far) } else { *chance.pick(near) };
    Timespec { tv_sec: seconds, tv_nsec: nanos }
}

/// A time that hardly any other file has, so that a change is visible at any precision.
fn distinct_time(chance: &mut Chance, features: &Features) -> Timespec {
    let precise = if features.far_times { 1_000_000_000 } else { 10 };
    let seconds = 1_710_000_000 + 2 * chance.between(0, 100_000_000) as i64;
    Timespec { tv_sec: seconds, tv_nsec: chance.below(precise) as i64 }
}

fn set_time(path: &Path, time: Timespec) -> io::Result<()> {
    let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let times = Timestamps { last_access: omit, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| at("setting the time of", path, &error))
}

/// `root` and all directories below it.
pub(crate) fn directories(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![root.to_owned()];
    found.extend(
        everything(root)?
            .into_iter()
            .filter(|path| fs::symlink_metadata(path).is_ok_and(|stat| stat.is_dir())),
    );
    Ok(found)
}

/// Everything below `root`, in an order that does not depend on the file system.
pub(crate) fn everything(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).map_err(|error| at("listing", &directory, &error))? {
            let path = entry.map_err(|error| at("listing", &directory, &error))?.path();
            if fs::symlink_metadata(&path).is_ok_and(|stat| stat.is_dir()) {
                pending.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Changes the user and group of everything at and below `root`.
pub fn give(root: &Path, user: u32, group: u32) -> io::Result<()> {
    for path in directories(root)?.into_iter().chain(everything(root)?) {
        let stat = fs::symlink_metadata(&path).map_err(|error| at("looking at", &path, &error))?;
        std::os::unix::fs::lchown(&path, Some(user), Some(group))
            .map_err(|error| at("chown", &path, &error))?;
        if !stat.is_symlink() && stat.mode() & 0o6000 != 0 {
            // Restores the set-ID bits, which a change of owner clears.
            rustix::fs::chmod(&path, Mode::from_raw_mode(stat.mode() & 0o7777))
                .map_err(|error| at("chmod", &path, &error))?;
        }
    }
    Ok(())
}
