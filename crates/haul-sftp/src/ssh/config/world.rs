//! The files and commands that a configuration is made of: the real ones.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::reader::World;
use crate::ssh::pattern;

/// The file system and the shell.
#[derive(Debug)]
pub struct RealWorld;

impl World for RealWorld {
    /// A file below a `.ssh` directory has to belong to the user or root, and to be writable by
    /// nobody else, as OpenSSH has it: who can write it decides which commands are run.
    fn read(&self, path: &Path) -> io::Result<String> {
        let text = std::fs::read_to_string(path)?;
        if path.parent().is_some_and(|parent| parent.ends_with(".ssh")) {
            let metadata = std::fs::metadata(path)?;
            let owner = metadata.uid();
            let mine = owner == 0 || owner == rustix::process::getuid().as_raw();
            if !mine || metadata.mode() & 0o022 != 0 {
                return Err(io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    format!(
                        "bad owner or permissions: it is of user {owner} and has mode {:o}, and may be writable by you only",
                        metadata.mode() & 0o777
                    ),
                ));
            }
        }
        Ok(text)
    }

    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        let mut found = vec![PathBuf::from("/")];
        for part in Path::new(pattern).iter().filter(|part| *part != "/") {
            let part = part.to_string_lossy();
            found = if part.contains(['*', '?']) {
                found.iter().flat_map(|directory| entries(directory, &part)).collect()
            } else {
                found.into_iter().map(|directory| directory.join(&*part)).collect()
            };
        }
        found.retain(|path| path.exists());
        found.sort();
        found
    }

    fn succeeds(&self, command: &str) -> bool {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(Stdio::null());
        // A command that cannot be started has not succeeded, which is all that is asked.
        shell.status().is_ok_and(|status| status.success())
    }
}

/// The entries of a directory that match; hidden ones only if the pattern says so. A directory
/// that cannot be read has none, as with glob(3).
fn entries(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with('.') == pattern.starts_with('.') && pattern::matches(pattern, &name)
        })
        .map(|name| directory.join(name))
        .collect()
}
