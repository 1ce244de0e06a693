//! The files and commands that a configuration is made of: the real ones.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::guard;
use super::reader::World;
use crate::ssh::pattern;

/// The file system and the shell.
#[derive(Debug)]
pub struct RealWorld;

impl World for RealWorld {
    fn read(&self, path: &Path, guarded: bool) -> io::Result<String> {
        let mut file = File::open(path)?;
        if guarded {
            // Of what was opened: by now another file may have the name.
            guard::check(&file.metadata()?)?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // Comments need not be UTF-8.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
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
