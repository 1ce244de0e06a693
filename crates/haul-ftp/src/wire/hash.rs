//! Digests: parses their announcement in `FEAT`, and the replies that contain them.

use haul_storage::{Digest, DigestKind};

use super::Reply;

/// The name of SHA-256 in `HASH` (IANA's registry of hash function textual names).
pub const SHA_256: &str = "SHA-256";

/// The command that requests a SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashCommand {
    /// `HASH path` (draft-bryan-ftp-hash).
    Hash {
        /// SHA-256 is the default function; otherwise `OPTS HASH` selects it for the connection.
        is_default: bool,
    },
    /// `XSHA256 path`.
    Xsha256,
}

impl HashCommand {
    /// From the lines of the reply to `FEAT`, trimmed and in upper case.
    pub(super) fn of<'a>(mut features: impl Iterator<Item = &'a str> + Clone) -> Option<Self> {
        let mut functions = features
            .clone()
            .filter_map(|line| line.strip_prefix("HASH "))
            .flat_map(|functions| functions.split(';').map(str::trim));
        // A star marks the selected function.
        let own = functions.find(|name| name.strip_suffix('*').unwrap_or(name) == SHA_256);
        match own {
            Some(name) => Some(Self::Hash { is_default: name.ends_with('*') }),
            None => features.any(|line| line == "XSHA256").then_some(Self::Xsha256),
        }
    }

    /// The command before the path.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Hash { .. } => "HASH",
            Self::Xsha256 => "XSHA256",
        }
    }

    /// The digest of the whole file from a reply. The reply to `HASH` names the range, which must begin at 0; its end
    /// is not compared with the length, because haul never requests a part.
    pub fn digest(self, reply: &Reply) -> Option<Digest> {
        if !reply.is_done() {
            return None;
        }
        let words =
            || reply.last_line().split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let hex = |word: &[u8]| Digest::from_hex(DigestKind::Sha256, word);
        match self {
            // `213 SHA-256 0-49 6ae0… name`
            Self::Hash { .. } => {
                let mut words = words();
                let (function, range) = (words.next()?, words.next()?);
                let is_sha_256 = function.eq_ignore_ascii_case(SHA_256.as_bytes());
                (is_sha_256 && range.starts_with(b"0-")).then(|| hex(words.next()?))?
            }
            // `250 6AE0…`, with words around it on some servers.
            Self::Xsha256 => {
                let mut digests = words().filter_map(hex);
                digests.next().filter(|_| digests.next().is_none())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ReplyParser;
    use super::*;

    const HASH: HashCommand = HashCommand::Hash { is_default: false };
    const HELLO: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

    fn reply(lines: &[&str]) -> Reply {
        let mut parser = ReplyParser::default();
        lines.iter().filter_map(|line| parser.line(line.as_bytes()).unwrap()).last().unwrap()
    }

    #[test]
    fn features_select_the_hash_command() {
        let of = |lines: &[&'static str]| HashCommand::of(lines.iter().copied());
        let proftpd = ["HASH CRC32;MD5;SHA-1*;SHA-256;SHA-512;", "XSHA256"];
        assert_eq!(of(&proftpd), Some(HASH));
        assert_eq!(of(&["HASH SHA-1;SHA-256*"]), Some(HashCommand::Hash { is_default: true }));
        assert_eq!(of(&["HASH SHA-1*;MD5", "XSHA256"]), Some(HashCommand::Xsha256));
        assert_eq!(of(&["HASH SHA-1*", "XSHA1", "XSHA512"]), None);
    }

    /// As ProFTPD 1.3.8 sends them for a file with the content "hello".
    #[test]
    fn digests_are_read_from_replies() {
        let expected = Digest::of(DigestKind::Sha256, b"hello");
        let last = format!("213 SHA-256 0-5 {HELLO} /up/f");
        let hashed = reply(&["213-Computing SHA-256 digest", &last]);
        assert_eq!(HASH.digest(&hashed), Some(expected));
        let last = format!("250 {}", HELLO.to_ascii_uppercase());
        let hashed = reply(&["250-Computing SHA256 digest", &last]);
        assert_eq!(HashCommand::Xsha256.digest(&hashed), Some(expected));
    }

    #[test]
    fn another_function_a_range_that_begins_later_and_a_refusal_are_no_digest() {
        let of = |line: String| HASH.digest(&reply(&[&line]));
        assert_eq!(of(format!("213 SHA-512/256 0-5 {HELLO} f")), None);
        assert_eq!(of(format!("213 SHA-256 3-5 {HELLO} f")), None);
        assert_eq!(of(format!("550 SHA-256 0-5 {HELLO} f")), None);
        assert_eq!(of(format!("213 SHA-256 0-5 {}", &HELLO[1..])), None);
        assert_eq!(of("213 SHA-256".to_owned()), None);
        let twice = reply(&[&format!("250 {HELLO} {HELLO}")]);
        assert_eq!(HashCommand::Xsha256.digest(&twice), None);
    }

    proptest! {
        #[test]
        fn any_reply_is_read_or_refused(line in "[ -~]{0,90}", feature in "[A-Z0-9*; -]{0,40}") {
            let reply = reply(&[&format!("250 {line}")]);
            for how in [HASH, HashCommand::Xsha256] {
                if let Some(digest) = how.digest(&reply) {
                    prop_assert!(line.to_ascii_lowercase().contains(&digest.to_string()));
                }
            }
            HashCommand::of([feature.as_str(), "XSHA256"].into_iter());
        }
    }
}
