//! Programs that walk over all files of a mount: `find`, `ls -lR` and `git status`.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::view::View;
use crate::data::Dataset;
use crate::record::Measure;
use crate::run::repository;
use crate::sys;

/// A program that walks over all files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walker {
    Find,
    List,
    GitStatus,
}

impl Walker {
    /// The program of a measure, if it has one.
    pub(super) fn of(measure: Measure) -> Option<Self> {
        match measure {
            Measure::MountFind => Some(Self::Find),
            Measure::MountList => Some(Self::List),
            Measure::MountStatus => Some(Self::GitStatus),
            Measure::Transfer
            | Measure::Connect
            | Measure::FirstByte
            | Measure::Mount
            | Measure::MountRandom
            | Measure::MountWrite => None,
        }
    }

    /// Runs the program in the mount on `point`, and checks that it has seen all files of `data`.
    pub(super) fn walk(self, data: &Dataset, point: &Path) -> io::Result<View> {
        let (name, program, arguments): (_, _, &[&str]) = match self {
            Self::Find => ("find", "find", &["."]),
            Self::List => ("ls -lR", "ls", &["-lR", "."]),
            Self::GitStatus => ("git status", "git", &["status", "--porcelain"]),
        };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(point).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        if self == Self::GitStatus {
            repository::isolate(&mut command);
        }
        sys::prepare(&mut command, None);
        let start = Instant::now();
        let output = command.output()?;
        let time = start.elapsed();
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let first = errors.lines().next().unwrap_or_default();
            return Err(io::Error::other(format!("{name}: {}: {first}", output.status)));
        }
        let wrong = self.missed(&String::from_utf8_lossy(&output.stdout), data);
        Ok(View::of_parts([(name, time)], wrong))
    }

    /// Why the program's output is wrong; `None` if it shows all files of `data`, unchanged.
    fn missed(self, output: &str, data: &Dataset) -> Option<String> {
        match self {
            Self::Find => {
                let found: HashSet<&str> =
                    output.lines().filter_map(|line| line.strip_prefix("./")).collect();
                let missing = data.names().find(|name| !found.contains(name.as_str()))?;
                Some(format!("find does not find {missing}"))
            }
            Self::List => {
                let (listed, all) = (
                    output.lines().filter(|line| line.starts_with('-')).count(),
                    data.names().count(),
                );
                (listed != all).then(|| format!("ls shows {listed} files of {all}"))
            }
            Self::GitStatus => {
                let change = output.lines().next()?;
                Some(format!("git status shows a change: {change}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSpec;
    use crate::record::Outcome;

    #[test]
    fn a_walk_over_all_files_is_right_and_one_that_misses_a_file_is_wrong() {
        let temp = tempfile::tempdir().expect("a directory");
        let spec = DataSpec { files: 6, bytes: 10, directories: 2, sparse_size: None };
        let data = spec.make(&temp.path().join("data")).expect("writable");
        let mut walkers = vec![(Walker::Find, "find"), (Walker::List, "ls -lR")];
        if crate::tools::on_path("git").is_some() {
            repository::make(&data).expect("a repository");
            walkers.push((Walker::GitStatus, "git status"));
        } else {
            eprintln!("skipped in part: git is not installed");
        }
        for (walker, name) in &walkers {
            let view = walker.walk(&data, data.root()).expect("it runs");
            assert_eq!((&view.outcome, &*view.parts[0].name), (&Outcome::Ok, *name));
        }
        std::fs::remove_file(data.root().join("d0001/f000003")).expect("removable");
        for (walker, name) in &walkers {
            let view = walker.walk(&data, data.root()).expect("it runs");
            assert!(matches!(view.outcome, Outcome::Wrong { .. }), "{name}: {view:?}");
        }
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_its_message() {
        let temp = tempfile::tempdir().expect("a directory");
        let spec = DataSpec { files: 1, bytes: 10, directories: 0, sparse_size: None };
        let data = spec.make(&temp.path().join("data")).expect("writable");
        let error = Walker::Find.walk(&data, &temp.path().join("none")).expect_err("no directory");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        if crate::tools::on_path("git").is_some() {
            let error = Walker::GitStatus.walk(&data, data.root()).expect_err("no repository");
            assert!(error.to_string().contains("not a git repository"), "{error}");
        }
    }
}
