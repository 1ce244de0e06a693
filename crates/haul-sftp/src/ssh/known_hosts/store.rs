//! Appends a line to a known_hosts file, in one write, so that lines of concurrent runs do not mix. A
//! new file is writable by its owner only.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use haul_storage::{Error, Result};

use super::line;
use crate::ssh::config::jump;
use crate::ssh::key::HostKey;

/// A host key to add.
#[derive(Debug)]
pub struct NewEntry<'a> {
    /// The name of the host in the file.
    pub name: &'a str,
    /// Its key.
    pub key: &'a HostKey,
    /// Whether the name is hashed, so that the file does not reveal which hosts are known.
    pub hashed: bool,
}

/// Appends a line. A missing directory is created with mode 0700, a missing file with 0600.
///
/// # Errors
/// I/O errors; `InvalidInput` if the name is empty, contains white space, or is a pattern.
pub fn add(file: &Path, entry: &NewEntry<'_>) -> Result<()> {
    write(file, entry).map_err(|error| {
        Error::from_io("add the host key to known_hosts", error).at(file.display())
    })
}

fn write(file: &Path, entry: &NewEntry<'_>) -> io::Result<()> {
    // Whatever the source of the name, it must not be a pattern that matches other hosts too.
    if entry.name.is_empty()
        || entry.name.contains(char::is_whitespace)
        || jump::is_pattern(entry.name)
    {
        let cause = format!("\"{}\" cannot be the name of one host", entry.name);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
    }
    let mut salt = [0; 20];
    if entry.hashed {
        fill_randomly(&mut salt)?;
    }
    let salt = entry.hashed.then_some(&salt[..]);
    let line = line::format(entry.name, salt, &entry.key.key_type, &entry.key.blob)
        .ok_or_else(|| io::Error::other("the name cannot be hashed"))?;
    if let Some(directory) = file.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut opened =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(file)?;
    // A file edited by hand may lack its last line end.
    let mut text = String::new();
    if opened.seek(SeekFrom::End(0))? > 0 {
        opened.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        opened.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    text.push_str(&line);
    text.push('\n');
    opened.write_all(text.as_bytes())
}

fn fill_randomly(buffer: &mut [u8]) -> io::Result<()> {
    std::fs::File::open("/dev/urandom")?.read_exact(buffer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::ssh::known_hosts::{HostName, KnownHosts, Verdict};

    #[test]
    fn a_name_that_would_match_other_hosts_is_not_added() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("known_hosts");
        let mut blob = vec![0, 0, 0, 7];
        blob.extend(b"ssh-rsa");
        blob.extend([0, 0, 0, 1, 3, 0, 0, 0, 1, 5]);
        let key =
            HostKey { key_type: "ssh-rsa".to_owned(), blob, rsa_bits: None, certificate: None };
        for name in
            ["*", "*,x", "[a?]:2222", "!a", "a ssh-rsa", "@revoked", "|1|a|b", "#", "", "a\nb"]
        {
            assert!(add(&file, &NewEntry { name, key: &key, hashed: false }).is_err(), "{name}");
        }
        assert!(!file.exists());
    }

    #[test]
    fn an_added_key_is_known_and_the_file_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(".ssh/known_hosts");
        let mut blob = vec![0, 0, 0, 7];
        blob.extend(b"ssh-rsa");
        blob.extend([0, 0, 0, 1, 3, 0, 0, 0, 1, 5]);
        let key =
            HostKey { key_type: "ssh-rsa".to_owned(), blob, rsa_bits: None, certificate: None };
        for (name, hashed) in [("plain", false), ("[hashed]:99", true)] {
            add(&file, &NewEntry { name, key: &key, hashed }).unwrap();
            // As if an editor had dropped the last line end.
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.trim_end()).unwrap();
        }
        let known = KnownHosts::read([file.as_path()]).unwrap();
        for host in [HostName::new(None, "plain", 22), HostName::new(None, "hashed", 99)] {
            assert_eq!(known.look_up(&host, &key), Verdict::Known, "{host:?}");
        }
        assert!(!std::fs::read_to_string(&file).unwrap().contains("hashed"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    }
}
