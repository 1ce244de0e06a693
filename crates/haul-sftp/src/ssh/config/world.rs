//! Access to the files, commands and host names that a configuration refers to.

use std::fs::File;
use std::io::{self, Read};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use haul_storage::without_secrets;

use super::guard;

/// The reader's access to the system.
pub trait World {
    /// The text of a file. `guarded`: it is refused if other users can write it.
    ///
    /// # Errors
    /// Those of the operating system.
    fn read(&self, path: &Path, guarded: bool) -> io::Result<String>;
    /// The files that match a glob pattern, sorted.
    fn glob(&self, pattern: &str) -> Vec<PathBuf>;
    /// Whether a shell command succeeds.
    fn succeeds(&self, command: &str) -> bool;
    /// Whether a host name resolves to an address.
    fn resolves(&self, name: &str) -> bool;
}

/// The file system and the shell.
#[derive(Debug)]
pub struct RealWorld;

impl World for RealWorld {
    fn read(&self, path: &Path, guarded: bool) -> io::Result<String> {
        let mut file = File::open(path)?;
        if guarded {
            // Checks the opened file, since the name may belong to another one by now.
            guard::check(&file.metadata()?)?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // Comments need not be UTF-8. The reader refuses lines with supported options that are not.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn glob(&self, pattern: &str) -> Vec<PathBuf> {
        let mut found = vec![PathBuf::from("/")];
        for part in Path::new(pattern).iter().filter(|part| *part != "/") {
            let part = part.to_string_lossy();
            found = if part.contains(['*', '?', '[']) {
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
        // A command that cannot be started has not succeeded.
        without_secrets(&mut shell).status().is_ok_and(|status| status.success())
    }

    fn resolves(&self, name: &str) -> bool {
        // As in OpenSSH, a failed lookup counts as no address.
        (name, 22).to_socket_addrs().is_ok_and(|mut found| found.next().is_some())
    }
}

/// The matching entries of a directory, hidden ones only if the pattern starts with a dot. A
/// directory that cannot be read has none, as with glob(3).
fn entries(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .filter(|name| {
            let name = name.to_string_lossy();
            name.starts_with('.') == pattern.starts_with('.') && glob_matches(pattern, &name)
        })
        .map(|name| directory.join(name))
        .collect()
}

/// Whether a name matches a pattern of glob(7): `*`, `?`, and sets in brackets.
fn glob_matches(pattern: &str, name: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut name = name.chars();
    loop {
        let rest = pattern.as_str();
        match pattern.next() {
            None => return name.as_str().is_empty(),
            Some('*') => {
                let after = pattern.as_str();
                let name = name.as_str();
                let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
                return ends.any(|at| glob_matches(after, &name[at..]));
            }
            Some(one) => {
                let Some(c) = name.next() else { return false };
                let matches = match (one, set(rest)) {
                    ('[', Some((is_in, after))) => {
                        pattern = after.chars();
                        is_in(c)
                    }
                    ('?', _) => true,
                    _ => c == one,
                };
                if !matches {
                    return false;
                }
            }
        }
    }
}

/// Parses the set at the beginning of a pattern; returns it and the rest. `None` if there is none, or
/// its bracket is not closed.
fn set(pattern: &str) -> Option<(impl Fn(char) -> bool + '_, &str)> {
    let inside = pattern.strip_prefix('[')?;
    let negated = inside.starts_with(['!', '^']);
    let inside = if negated { &inside[1..] } else { inside };
    // A closing bracket at the beginning belongs to the set.
    let first = inside.chars().next()?.len_utf8();
    let end = first + inside[first..].find(']')?;
    let members: Vec<char> = inside[..end].chars().collect();
    let is_in = move |c: char| {
        let mut found = false;
        let mut at = 0;
        while at < members.len() {
            match members[at..] {
                [low, '-', high, ..] => {
                    found |= (low..=high).contains(&c);
                    at += 3;
                }
                _ => {
                    found |= members[at] == c;
                    at += 1;
                }
            }
        }
        found != negated
    };
    Some((is_in, &inside[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_included_files_follow_glob() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", "a.conf~", false),
            ("?[0-9]*", "a1b", true),
            ("[!0-9]*", "1", false),
            ("[]x]", "]", true),
            ("[ab", "[ab", true),
            ("*a*b", "xaxxb", true),
            ("", "", true),
            ("a", "", false),
        ] {
            assert_eq!(glob_matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
