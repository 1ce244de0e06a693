//! known_hosts: reads several files into entries, gives a verdict on a host's key, and adds a line
//! for a key that was accepted.
//!
//! [`host_key`](super::host_key) decides what to do about a verdict.

mod line;
mod store;

use std::fmt;
use std::path::{Path, PathBuf};

use haul_storage::{Error, Result};

use self::line::{Entry, Marker};
pub use self::store::{NewEntry, add};
use super::key::HostKey;

/// A line of a file, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineLocation {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for LineLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// The result of looking up a host's key in the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is the host's key.
    Known,
    /// The host has another key of this type: its line and fingerprint.
    Changed(LineLocation, String),
    /// The key, or the authority that signed its certificate, is revoked.
    Revoked(LineLocation),
    /// The host has no known key of this type. Its keys of other types, with their lines.
    Unknown(Vec<(String, LineLocation)>),
}

/// The names under which a host is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName {
    /// The host alone, as certificates name it.
    pub host: String,
    /// The host with its port where that is not 22, as known_hosts files name it.
    pub name: String,
}

impl HostName {
    /// The alias of HostKeyAlias, or else the host and its port.
    pub fn new(alias: Option<&str>, host: &str, port: u16) -> Self {
        if let Some(alias) = alias {
            let alias = alias.to_ascii_lowercase();
            return Self { host: alias.clone(), name: alias };
        }
        let host = host.to_ascii_lowercase();
        let name = if port == 22 { host.clone() } else { format!("[{host}]:{port}") };
        Self { host, name }
    }
}

/// The entries of all files.
#[derive(Debug, Clone, Default)]
pub struct KnownHosts {
    entries: Vec<(LineLocation, Entry)>,
}

impl KnownHosts {
    /// Reads files; a missing file counts as empty.
    ///
    /// # Errors
    /// A file exists but cannot be read: it might revoke a key.
    pub fn read<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<Self> {
        let mut known = Self::default();
        for file in files {
            match std::fs::read(file) {
                Ok(bytes) => known.take(file, &String::from_utf8_lossy(&bytes)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Error::from_io("read the known hosts", error).at(file.display()));
                }
            }
        }
        Ok(known)
    }

    fn take(&mut self, file: &Path, text: &str) {
        for (index, line) in text.lines().enumerate() {
            if let Some(entry) = Entry::parse(line) {
                self.entries.push((LineLocation { file: file.to_owned(), line: index + 1 }, entry));
            }
        }
    }

    fn about<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a (LineLocation, Entry)> {
        self.entries.iter().filter(move |(_, entry)| entry.is_about(name))
    }

    /// The verdict on a host's plain key.
    pub fn look_up(&self, host: &HostName, key: &HostKey) -> Verdict {
        let authority = key.certificate.as_ref().map(|certificate| &certificate.authority);
        let revoked = |entry: &Entry| {
            entry.marker == Marker::Revoked
                && (entry.blob == key.blob || authority == Some(&entry.blob))
        };
        for name in [&host.name, &host.host] {
            if let Some((location, _)) = self.about(name).find(|(_, entry)| revoked(entry)) {
                return Verdict::Revoked(location.clone());
            }
        }
        let verdict = self.look_up_name(&host.name, key);
        // As in OpenSSH, a key known for the host without a port is accepted on every port.
        if matches!(verdict, Verdict::Unknown(_)) && host.name != host.host {
            let without_port = self.look_up_name(&host.host, key);
            if without_port == Verdict::Known {
                return without_port;
            }
        }
        verdict
    }

    fn look_up_name(&self, name: &str, key: &HostKey) -> Verdict {
        let plain = || self.about(name).filter(|(_, entry)| entry.marker == Marker::None);
        if plain().any(|(_, entry)| entry.blob == key.blob) {
            return Verdict::Known;
        }
        if let Some((location, entry)) = plain().find(|(_, entry)| entry.key_type == key.key_type) {
            return Verdict::Changed(location.clone(), super::key::fingerprint(&entry.blob));
        }
        let others = plain().map(|(location, entry)| (entry.key_type.clone(), location.clone()));
        Verdict::Unknown(others.collect())
    }

    /// Whether a key signs certificates of a host.
    pub fn is_authority(&self, host: &HostName, key: &[u8]) -> bool {
        self.authorities(host).any(|entry| entry.blob == key)
    }

    /// Whether any key signs certificates of a host.
    pub fn has_authority(&self, host: &HostName) -> bool {
        self.authorities(host).next().is_some()
    }

    fn authorities<'a>(&'a self, host: &'a HostName) -> impl Iterator<Item = &'a Entry> {
        self.entries
            .iter()
            .map(|(_, entry)| entry)
            .filter(|entry| entry.marker == Marker::CertAuthority)
            .filter(|entry| entry.is_about(&host.name) || entry.is_about(&host.host))
    }

    /// The types of a host's known keys.
    pub fn key_types(&self, host: &HostName) -> Vec<String> {
        let types = |name: &str| -> Vec<String> {
            self.about(name)
                .filter(|(_, entry)| entry.marker == Marker::None)
                .map(|(_, entry)| entry.key_type.clone())
                .collect()
        };
        let found = types(&host.name);
        if found.is_empty() { types(&host.host) } else { found }
    }
}

/// The numbers of the lines that apply to a host, for comparison with `ssh-keygen -F`.
#[cfg(feature = "fuzzing")]
pub fn lines_about(text: &[u8], name: &str) -> Vec<usize> {
    let mut known = KnownHosts::default();
    known.take(Path::new("known_hosts"), &String::from_utf8_lossy(text));
    known.about(name).map(|(location, _)| location.line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> HostKey {
        let mut blob = vec![0, 0, 0, 11];
        blob.extend(b"ssh-ed25519");
        blob.extend([0, 0, 0, 32]);
        blob.extend([byte; 32]);
        HostKey { key_type: "ssh-ed25519".to_owned(), blob, rsa_bits: None, certificate: None }
    }

    fn line(names: &str, byte: u8) -> String {
        line::format(names, None, "ssh-ed25519", &key(byte).blob).unwrap() + "\n"
    }

    fn known(text: &str) -> KnownHosts {
        let mut known = KnownHosts::default();
        known.take(Path::new("/f"), text);
        known
    }

    #[test]
    fn a_key_is_known_changed_revoked_or_unknown() {
        let host = HostName::new(None, "Host", 22);
        let text = format!("{}{}@revoked {}", line("other", 1), line("host", 2), line("*", 9));
        let known = known(&text);
        assert_eq!(known.look_up(&host, &key(2)), Verdict::Known);
        let changed = known.look_up(&host, &key(1));
        assert!(
            matches!(changed, Verdict::Changed(LineLocation { line: 2, .. }, _)),
            "{changed:?}"
        );
        assert!(matches!(
            known.look_up(&host, &key(9)),
            Verdict::Revoked(LineLocation { line: 3, .. })
        ));
        let unlisted = HostName::new(None, "stranger", 22);
        assert_eq!(known.look_up(&unlisted, &key(2)), Verdict::Unknown(Vec::new()));
    }

    #[test]
    fn a_key_listed_without_port_is_accepted_on_every_port_but_conflicts_only_on_port_22() {
        let host = HostName::new(None, "host", 2222);
        let known = known(&line("host", 2));
        assert_eq!(known.look_up(&host, &key(2)), Verdict::Known);
        assert_eq!(known.look_up(&host, &key(1)), Verdict::Unknown(Vec::new()));
    }

    #[test]
    fn an_alias_is_looked_up_without_the_port() {
        let host = HostName::new(Some("Alias"), "host", 2222);
        assert_eq!(known(&line("alias", 2)).look_up(&host, &key(2)), Verdict::Known);
    }
}
