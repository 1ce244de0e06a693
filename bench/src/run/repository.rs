//! Makes a git repository of a data set, for `git status` in a mount.

use std::fs::File;
use std::io;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::command::must_run;
use crate::data::Dataset;
use crate::tools::on_path;

/// Commits all files of `data`, in a repository at its root. Later, git compares only their sizes and modification
/// times in whole seconds: inodes and owners differ in a mount, and git would read all contents again.
///
/// # Errors
/// If git is not installed, or fails.
pub(super) fn make(data: &Dataset) -> io::Result<()> {
    let git = on_path("git")
        .ok_or_else(|| io::Error::other("git is not installed (apt-get install git)"))?;
    // git also reads files again that are not older than its index.
    let earlier = SystemTime::now() - Duration::from_secs(3600);
    for name in data.names() {
        File::open(data.root().join(name))?.set_modified(earlier)?;
    }
    let steps: [&[&str]; 7] = [
        &["init", "--quiet"],
        &["config", "core.checkStat", "minimal"],
        &["config", "core.trustctime", "false"],
        &["config", "core.fileMode", "false"],
        &["add", "--all"],
        &["commit", "--quiet", "--message=files"],
        // One pack file instead of a file per object: a later walk visits mainly the files of the data set.
        &["gc", "--quiet"],
    ];
    for arguments in steps {
        let mut command = Command::new(&git);
        command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"]);
        command.args(arguments).current_dir(data.root());
        must_run(isolate(&mut command))?;
    }
    Ok(())
}

/// Makes git ignore the configuration of this machine and of the user, and the owner of the files. `git status`
/// does not write to the index.
pub(super) fn isolate(git: &mut Command) -> &mut Command {
    git.env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "safe.directory")
        .env("GIT_CONFIG_VALUE_0", "*")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSpec;

    #[test]
    fn a_copied_repository_of_a_data_set_is_clean() {
        if on_path("git").is_none() {
            eprintln!("skipped: git is not installed");
            return;
        }
        let temp = tempfile::tempdir().expect("a directory");
        let spec = DataSpec { files: 6, bytes: 100, directories: 2, sparse_size: None };
        let data = spec.make(&temp.path().join("data")).expect("writable");
        make(&data).expect("a repository");
        // Other inodes and change times, but the same sizes and modification times, as in a mount.
        let copy = temp.path().join("copy");
        must_run(Command::new("cp").arg("-a").arg(data.root()).arg(&copy)).expect("a copy");
        let status = |directory| {
            let mut git = Command::new("git");
            git.args(["status", "--porcelain"]).current_dir(directory);
            let output = must_run(isolate(&mut git)).expect("it runs");
            String::from_utf8_lossy(&output).into_owned()
        };
        assert_eq!(status(&copy), "");
        std::fs::write(copy.join("new"), "").expect("writable");
        assert_eq!(status(&copy), "?? new\n");
    }
}
