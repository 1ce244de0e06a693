//! Finds real data for the demo that most machines have: the Rust toolchain, or `/usr/lib`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use haul_storage::{Error, ErrorKind, without_secrets};

use crate::exit::Stop;

/// A directory, with the number and size of the files below it.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: PathBuf,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Tree {
    /// The largest directory with at most `limit` bytes in `source`; if that is `None`, in the first default directory
    /// that has one.
    ///
    /// # Errors
    /// If there is no such directory.
    pub(super) fn find(source: Option<&Path>, limit: u64) -> Result<Self, Stop> {
        let candidates: Vec<PathBuf> = match source {
            Some(source) => vec![source.to_owned()],
            None => sysroot().into_iter().chain([PathBuf::from("/usr/lib")]).collect(),
        };
        let mut best: Option<Self> = None;
        for candidate in &candidates {
            let Ok(root) = candidate.canonicalize() else { continue };
            measure(root, limit, &mut best);
            if best.as_ref().is_some_and(|tree| tree.bytes > 0) {
                break;
            }
        }
        best.filter(|tree| tree.bytes > 0).ok_or_else(|| {
            let paths: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
            Error::new(ErrorKind::NotFound, "find data")
                .at(paths.join(", "))
                .because("no readable directory has at most --size of data")
                .into()
        })
    }
}

fn sysroot() -> Option<PathBuf> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "sysroot"]).stdin(Stdio::null());
    let output = without_secrets(&mut rustc).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?;
    Some(PathBuf::from(path.trim())).filter(|path| path.is_absolute())
}

/// Counts files and bytes below `directory`, and stores in `best` the largest directory found with at most `limit`
/// bytes. Returns `None` if something in it cannot be read or copied: the demo must not copy that directory.
fn measure(directory: PathBuf, limit: u64, best: &mut Option<Tree>) -> Option<(u64, u64)> {
    let mut total = Some((0, 0));
    for entry in fs::read_dir(&directory).ok()? {
        let entry = entry.ok()?;
        let metadata = entry.metadata().ok()?;
        let below = if metadata.is_dir() {
            measure(entry.path(), limit, best)
        } else if metadata.is_file() {
            // Opening it is the only reliable test of whether it can be read.
            fs::File::open(entry.path()).ok().map(|_| (1, metadata.len()))
        } else {
            // Pipes, sockets and devices are not copied.
            metadata.is_symlink().then_some((0, 0))
        };
        total = total.zip(below).map(|((files, bytes), (more_files, more_bytes))| {
            (files + more_files, bytes + more_bytes)
        });
    }
    let (files, bytes) = total?;
    if bytes <= limit && best.as_ref().is_none_or(|best| bytes >= best.bytes) {
        *best = Some(Tree { root: directory, files, bytes });
    }
    Some((files, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_directory_within_the_limit_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, length| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![0; length]).unwrap();
        };
        write("a/x", 100);
        write("b/c/y", 60);
        write("b/d/z", 30);
        let found = |limit| Tree::find(Some(directory.path()), limit).ok();
        assert!(found(1000).unwrap().root.ends_with(directory.path().file_name().unwrap()));
        assert!(found(150).unwrap().root.ends_with("a"));
        assert!(found(95).unwrap().root.ends_with("b"));
        assert!(found(10).is_none());
        // A pipe is not copied.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            directory.path().join("b/c/pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(found(1000).unwrap().root.ends_with("a"));
    }
}
