//! One line of a known_hosts file (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"):
//! `[@marker] names type key [comment]`.

use data_encoding::BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use crate::ssh::pattern;

/// The meaning of a line's marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// It is the key of these hosts.
    None,
    /// It signs certificates of these hosts.
    CertAuthority,
    /// It must never be accepted.
    Revoked,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The role of the key.
    pub marker: Marker,
    names: Names,
    /// The type of the key, `ssh-ed25519`.
    pub key_type: String,
    /// The key in its wire encoding.
    pub blob: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Names {
    /// Patterns separated by commas.
    Plain(String),
    /// HMAC-SHA1 of one name, keyed with a salt.
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

impl Entry {
    /// Parses a line. `None` for empty lines, comments and invalid lines: like OpenSSH, haul ignores
    /// those, so that a line from a newer version does no harm.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace().peekable();
        let marker = match words.peek()? {
            word if word.starts_with('#') => return None,
            &"@cert-authority" => Marker::CertAuthority,
            &"@revoked" => Marker::Revoked,
            word if word.starts_with('@') => return None,
            _ => Marker::None,
        };
        if marker != Marker::None {
            words.next();
        }
        let names = words.next()?;
        let key_type = words.next()?.to_owned();
        let blob = BASE64.decode(words.next()?.as_bytes()).ok()?;
        // The blob begins with its own type. A truncated key is ignored: otherwise every other key of its
        // type would count as changed.
        if string(&blob)? != key_type.as_bytes() || !is_whole(&key_type, &blob) {
            return None;
        }
        let names = match names.strip_prefix("|1|") {
            Some(hashed) => {
                let (salt, hash) = hashed.split_once('|')?;
                Names::Hashed {
                    salt: BASE64.decode(salt.as_bytes()).ok()?,
                    hash: BASE64.decode(hash.as_bytes()).ok()?,
                }
            }
            None if names.starts_with('|') => return None,
            None => Names::Plain(names.to_ascii_lowercase()),
        };
        Some(Self { marker, names, key_type, blob })
    }

    /// Whether it applies to a host's name in lower case: `host` or `[host]:port`.
    pub fn is_about(&self, name: &str) -> bool {
        match &self.names {
            Names::Plain(patterns) => pattern::matches_list(patterns.split(','), name),
            Names::Hashed { salt, hash } => hashed(salt, name).is_some_and(|own| own == *hash),
        }
    }
}

/// The line for a new key of a host, without a line end. With `salt` the name is hashed.
pub fn format(name: &str, salt: Option<&[u8]>, key_type: &str, blob: &[u8]) -> Option<String> {
    let name = match salt {
        None => name.to_owned(),
        Some(salt) => {
            let hash = hashed(salt, name)?;
            format!("|1|{}|{}", BASE64.encode(salt), BASE64.encode(&hash))
        }
    };
    Some(format!("{name} {key_type} {}", BASE64.encode(blob)))
}

/// HMAC-SHA1 of `name`, keyed with `salt`. Never `None` in practice: HMAC takes keys of every length.
fn hashed(salt: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut mac = Hmac::<Sha1>::new_from_slice(salt).ok()?;
    mac.update(name.as_bytes());
    Some(mac.finalize().into_bytes().to_vec())
}

/// Whether a key's blob consists of complete strings: its type and at least one more, for ed25519 one of 32 bytes.
fn is_whole(key_type: &str, blob: &[u8]) -> bool {
    let mut lengths = Vec::new();
    let mut rest = blob;
    while let Some(string) = string(rest) {
        lengths.push(string.len());
        rest = &rest[4 + string.len()..];
    }
    let is_long_enough = match key_type {
        "ssh-ed25519" => lengths.get(1) == Some(&32),
        _ => lengths.len() > 1,
    };
    rest.is_empty() && is_long_enough
}

/// The first string of a blob: four bytes of length, then that many bytes.
fn string(blob: &[u8]) -> Option<&[u8]> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An ed25519 key of 32 equal bytes.
    pub fn blob(byte: u8) -> Vec<u8> {
        let mut blob = vec![0, 0, 0, 11];
        blob.extend(b"ssh-ed25519");
        blob.extend([0, 0, 0, 32]);
        blob.extend([byte; 32]);
        blob
    }

    #[test]
    fn a_formatted_line_parses_back_plain_and_hashed() {
        for salt in [None, Some(&[7; 20][..])] {
            let line = format("[host]:2222", salt, "ssh-ed25519", &blob(1)).unwrap();
            assert_eq!(line.contains("host"), salt.is_none());
            let entry = Entry::parse(&line).unwrap();
            assert!(entry.is_about("[host]:2222") && !entry.is_about("host"));
            assert_eq!((entry.marker, entry.blob), (Marker::None, blob(1)));
        }
    }

    #[test]
    fn markers_wildcards_and_negation_are_observed() {
        let key = BASE64.encode(&blob(1));
        let line = |names: &str| Entry::parse(&format!("{names} ssh-ed25519 {key} a comment"));
        let entry = line("@cert-authority *.Example.org,!bad.example.org").unwrap();
        assert_eq!(entry.marker, Marker::CertAuthority);
        assert!(entry.is_about("a.example.org") && !entry.is_about("bad.example.org"));
        assert_eq!(line("@revoked *").unwrap().marker, Marker::Revoked);
        assert_eq!(line("@frobnicated *"), None);
        assert_eq!(line("|2|a|b"), None);
    }

    #[test]
    fn a_key_of_another_type_than_its_line_claims_is_ignored() {
        let key = BASE64.encode(&blob(1));
        assert_eq!(Entry::parse(&format!("h ssh-rsa {key}")), None);
        assert_eq!(Entry::parse("h ssh-rsa AAAA"), None);
        assert_eq!(Entry::parse("# h ssh-rsa AAAA"), None);
    }

    /// Found by fuzzing: such a line made the host's key count as changed, while ssh ignores the line.
    #[test]
    fn a_truncated_key_is_ignored() {
        let whole = blob(1);
        for length in 0..whole.len() {
            let key = BASE64.encode(&whole[..length]);
            assert_eq!(Entry::parse(&format!("h ssh-ed25519 {key}")), None, "{length}");
        }
        let key = BASE64.encode(&[whole, vec![0]].concat());
        assert_eq!(Entry::parse(&format!("h ssh-ed25519 {key}")), None);
    }

    proptest! {
        #[test]
        fn parsing_any_line_does_not_panic(line in ".*") {
            let _ = Entry::parse(&line);
        }
    }
}
