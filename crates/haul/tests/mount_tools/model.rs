//! Random operations on a mount have the effect that they have on a disk, also for the next mount and on the server.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::content::{Chance, content};
use crate::lab::{form, seed, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

/// Mounts of a run: each takes over the spool of the one before.
const MOUNTS: usize = 3;

/// Times that are set, in seconds since 1970: from September 2001, and before November 2004.
const FIRST: u64 = 1_000_000_000;
const LATEST: i64 = 1_100_000_000;

/// An operation on a few names.
#[derive(Debug)]
enum Operation {
    Write(String, Vec<u8>),
    WriteAt(String, u64, Vec<u8>),
    Append(String, Vec<u8>),
    Truncate(String, u64),
    Replace(String, Vec<u8>),
    Store(String, Vec<u8>),
    Read(String),
    ReadAt(String, u64),
    List(String),
    Rename(String, String),
    Remove(String),
    MakeDirectory(String),
    RemoveDirectory(String),
    Link(String, String),
    Mode(String, u32),
    Time(String, u64),
}

impl Operation {
    /// A random operation among those that `kind` supports.
    fn any(chance: &mut Chance, kind: Kind) -> Self {
        let mut name = || {
            let directory = pick(chance, &["", "", "", "d/", "e/", "d/e/"]);
            format!("{directory}{}", pick(chance, &["a", "b", "c", "d", "e", "name with spaces"]))
        };
        let (one, other) = (name(), name());
        let seed = chance.next();
        let mut bytes = |most: u64| content(seed, usize::try_from(chance.below(most)).unwrap());
        let kinds = if kind == Kind::Dav { 14 } else { 18 };
        match seed % kinds {
            0 | 1 => Self::Write(one, bytes(300_000)),
            2 => Self::WriteAt(one, seed % 150_000, bytes(50_000)),
            3 => Self::Append(one, bytes(50_000)),
            4 => Self::Truncate(one, seed % 300_000),
            5 => Self::Replace(one, bytes(20_000)),
            6 => Self::Store(one, bytes(20_000)),
            7 => Self::Read(one),
            8 => Self::ReadAt(one, seed % 200_000),
            9 => Self::List(one),
            10 => Self::Rename(one, other),
            11 => Self::Remove(one),
            12 => Self::MakeDirectory(one),
            13 => Self::RemoveDirectory(one),
            14 | 15 => Self::Link(one, other),
            16 => Self::Mode(one, [0o600, 0o644, 0o755, 0o700][(seed >> 32) as usize % 4]),
            _ => Self::Time(one, FIRST + (seed >> 40)),
        }
    }

    /// Runs it below `root`. Returns the outcome that a program sees.
    fn run(&self, root: &Path) -> Result<Vec<u8>, ErrorKind> {
        let at = |name: &str| root.join(name);
        let done = |outcome: std::io::Result<()>| outcome.map(|()| Vec::new());
        let writing = |name: &str| OpenOptions::new().write(true).open(at(name));
        let outcome = match self {
            Self::Write(name, bytes) => done(fs::write(at(name), bytes)),
            Self::WriteAt(name, offset, bytes) => {
                done(writing(name).and_then(|file| file.write_all_at(bytes, *offset)))
            }
            Self::Append(name, bytes) => {
                let file = OpenOptions::new().append(true).create(true).open(at(name));
                done(file.and_then(|mut file| file.write_all(bytes)))
            }
            Self::Truncate(name, size) => done(writing(name).and_then(|file| file.set_len(*size))),
            // As editors save files.
            Self::Replace(name, bytes) => {
                let new = at(&format!("{name}~"));
                let moved = fs::write(&new, bytes).and_then(|()| fs::rename(&new, at(name)));
                done(moved.inspect_err(|_| drop(fs::remove_file(&new))))
            }
            Self::Store(name, bytes) => {
                let file = File::create(at(name));
                done(file.and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all())))
            }
            Self::Read(name) => fs::read(at(name)),
            Self::ReadAt(name, offset) => File::open(at(name)).and_then(|file| {
                let mut bytes = vec![0; 10_000];
                let length = file.read_at(&mut bytes, *offset)?;
                bytes.truncate(length);
                Ok(bytes)
            }),
            Self::List(name) => names(&at(name)).map(|names| names.join("/").into_bytes()),
            Self::Rename(from, to) => done(fs::rename(at(from), at(to))),
            Self::Remove(name) => done(fs::remove_file(at(name))),
            Self::MakeDirectory(name) => done(fs::create_dir(at(name))),
            Self::RemoveDirectory(name) => done(fs::remove_dir(at(name))),
            Self::Link(target, name) => done(symlink(target, at(name))),
            Self::Mode(name, mode) => {
                done(fs::set_permissions(at(name), fs::Permissions::from_mode(*mode)))
            }
            Self::Time(name, seconds) => {
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(*seconds);
                done(writing(name).and_then(|file| file.set_modified(time)))
            }
        };
        outcome.map_err(|error| error.kind())
    }
}

fn pick<'a>(chance: &mut Chance, from: &[&'a str]) -> &'a str {
    from[usize::try_from(chance.below(from.len() as u64)).unwrap()]
}

fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().unwrap()));
    let mut names = names.collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// What is at a path.
#[derive(Debug, PartialEq)]
enum Node {
    Directory,
    /// With its content, and permissions and time where the server stores them.
    File(Vec<u8>, Option<(u32, Option<i64>)>),
    Link(PathBuf),
}

/// Everything below a directory.
fn tree(root: &Path, kind: Kind) -> BTreeMap<PathBuf, Node> {
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(directory) = left.pop() {
        for name in names(&root.join(&directory)).unwrap() {
            let (path, at) = (directory.join(&name), root.join(&directory).join(&name));
            let metadata = fs::symlink_metadata(&at).unwrap();
            let node = if metadata.is_dir() {
                left.push(path.clone());
                Node::Directory
            } else if metadata.is_symlink() {
                Node::Link(fs::read_link(&at).unwrap())
            } else {
                // The time only if an operation has set it, not if it is that of a write.
                let set = Some(metadata.mtime()).filter(|seconds| *seconds < LATEST);
                let stored = (kind != Kind::Dav).then_some((metadata.mode() & 0o777, set));
                Node::File(fs::read(&at).unwrap(), stored)
            };
            found.insert(path, node);
        }
    }
    found
}

/// Asserts that two trees are equal, without printing contents.
#[track_caller]
fn same(one: &Path, other: &Path, kind: Kind) {
    let (one, other) = (tree(one, kind), tree(other, kind));
    let differs = |path: &&PathBuf| one.get(*path) != other.get(*path);
    let different: Vec<_> = one.keys().chain(other.keys()).filter(differs).collect();
    assert!(different.is_empty(), "{kind:?}: {different:?}");
}

#[test]
fn random_operations_have_the_same_effect_as_on_a_disk() {
    let Some(_turn) = turn() else { return };
    let seed = seed();
    let short = [(Kind::Local, 100), (Kind::OpenSsh, 50), (Kind::Dav, 50)];
    let long = [(Kind::Local, 10_000), (Kind::OpenSsh, 3000), (Kind::Dav, 3000)];
    for (kind, steps) in form(short, long) {
        let Some(source) = Source::start(kind) else { continue };
        let mut chance = Chance(seed);
        let model = source.session.path("model");
        fs::create_dir(&model).unwrap();
        for part in 0..MOUNTS {
            let mounted = Mounted::start(&source, "--read-write");
            let top = mounted.path("");
            // Files in the spool of the previous mount are shown at once, and uploaded.
            same(&model, &top, kind);
            mounted.uploaded();
            for step in 0..steps {
                let operation = Operation::any(&mut chance, kind);
                let (expected, found) = (operation.run(&model), operation.run(&top));
                // Servers have fewer kinds of errors.
                let is_same = match (&expected, &found) {
                    (Err(expected), Err(found)) => kind != Kind::Local || expected == found,
                    _ => expected == found,
                };
                if !is_same {
                    let length = |outcome: Result<Vec<u8>, ErrorKind>| outcome.map(|all| all.len());
                    let (expected, found) = (length(expected), length(found));
                    let text = format!("{operation:?}");
                    let text: String = text.chars().take(200).collect();
                    panic!("{kind:?} {part}/{step}: {text}: {found:?} instead of {expected:?}");
                }
            }
            same(&model, &top, kind);
            // The last mount uploads the rest; the others are killed.
            if part + 1 < MOUNTS {
                mounted.kill();
            } else {
                mounted.end();
            }
        }
        same(&model, &source.far(""), kind);
    }
}
