//! Names of the temporary files that haul creates.
//!
//! Beside a file `NAME` there may be these files, each with its kind at the end of its name:
//!
//! | name | content |
//! |---|---|
//! | `.NAME.haul-part` | the part file, which is renamed to `NAME` when it is complete |
//! | `.NAME.haul-journal` | the journal: which ranges of the part file have been written |
//! | `.NAME.haul-rewrite` | a journal that is being rewritten |
//! | `.NAME.haul-old` | the old version, set aside while the new one takes its place |
//! | `.NAME.UPLOADER.haul-upload` | the part file on a server; UPLOADER identifies the uploader and the address |
//! | `.NAME.UNIQUE.haul-moving` | the source of a move, just before it is removed |
//! | `.NAME.UNIQUE.haul-temp` | a short-lived file, of which several tasks may need one at once |
//!
//! Two files never share such a name, because it contains all of `NAME` before the kind. A name of more than
//! 255 bytes (the limit of every common file system) is shortened to `.HEAD.HASH[.UNIQUE].haul-long-KIND`: HEAD is the
//! start of `NAME`, cut between two characters, and HASH is 128 bits of the BLAKE3 hash of `NAME`.
//!
//! These names are reserved: nothing is copied from or to a name for which [`is_part_name`] is true.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const NAME_MAX: usize = 255;
const PART: &[u8] = b"part";
const JOURNAL: &[u8] = b"journal";
const REWRITE: &[u8] = b"rewrite";
const ASIDE: &[u8] = b"old";
const UPLOAD: &[u8] = b"upload";
const MOVING: &[u8] = b"moving";
const TEMPORARY: &[u8] = b"temp";
const KINDS: [&[u8]; 7] = [PART, JOURNAL, REWRITE, ASIDE, UPLOAD, MOVING, TEMPORARY];
/// Hexadecimal digits of a name's hash: 128 bits.
const HASH_DIGITS: usize = 32;

/// The name of the part file of `name`.
pub fn part_name(name: &[u8]) -> Vec<u8> {
    decorated(name, b"", PART)
}

/// The name of the journal of `name`.
pub fn journal_name(name: &[u8]) -> Vec<u8> {
    decorated(name, b"", JOURNAL)
}

/// The name of a journal while it is rewritten, given the name of the journal. Both have the same length.
pub fn rewritten_journal_name(journal: &[u8]) -> Vec<u8> {
    let stem = journal.strip_suffix(JOURNAL).unwrap_or(journal);
    [stem, REWRITE].concat()
}

/// The name of the local journal of an upload; `key` identifies the uploader, the file and its server.
pub fn remote_journal_name(key: &[u8]) -> Vec<u8> {
    journal_name(hash(key).as_bytes())
}

/// The name of the file that is locked during an upload; `key` is that of [`remote_journal_name`].
pub(crate) fn remote_lock_name(key: &[u8]) -> Vec<u8> {
    [hash(key).as_bytes(), b".lock"].concat()
}

/// The name of the part file of `name` on a server. `uploader` (letters, digits and `-`) distinguishes the uploads that
/// may have that destination at the same time.
pub(crate) fn upload_name(name: &[u8], uploader: &str) -> Vec<u8> {
    decorated(name, uploader.as_bytes(), UPLOAD)
}

/// The name of the old version of `name` while a new one takes its place.
pub fn aside_name(name: &[u8]) -> Vec<u8> {
    decorated(name, b"", ASIDE)
}

/// The name of the source of a move, just before it is removed. `unique` is that of [`temporary_name`].
pub fn moving_name(name: &[u8], unique: &str) -> Vec<u8> {
    decorated(name, unique.as_bytes(), MOVING)
}

/// Whether `name` was made by [`moving_name`]. Unlike a part file, it is a complete file.
pub fn is_moving_name(name: &[u8]) -> bool {
    is_part_name(name) && name.ends_with(MOVING)
}

/// The name of a short-lived file beside `name`. `unique` (letters, digits and `-`) distinguishes several of them.
pub fn temporary_name(name: &[u8], unique: &str) -> Vec<u8> {
    decorated(name, unique.as_bytes(), TEMPORARY)
}

/// Whether `temporary` was made by [`temporary_name`] for `name`, and not shortened.
pub(crate) fn is_temporary_of(temporary: &[u8], name: &[u8]) -> bool {
    let unique = temporary
        .strip_prefix(b".")
        .and_then(|rest| rest.strip_prefix(name)?.strip_prefix(b"."))
        .and_then(|rest| rest.strip_suffix(TEMPORARY)?.strip_suffix(b".haul-"));
    unique.is_some_and(|unique| !unique.is_empty() && !unique.contains(&b'.'))
}

/// A value for `unique` that neither this process nor another one has used. It contains the time of the first call,
/// because process IDs recur, and a killed process with the same ID may have left a file.
pub fn unique() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    static STARTED: OnceLock<u128> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
    });
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{started:x}-{number}", process::id())
}

/// Whether `name` is reserved for temporary files of haul.
pub fn is_part_name(name: &[u8]) -> bool {
    let Some(name) = name.strip_prefix(b".") else { return false };
    KINDS.iter().any(|kind| {
        let stem = name.strip_suffix(*kind);
        stem.is_some_and(|stem| stem.ends_with(b".haul-") || stem.ends_with(b".haul-long-"))
    })
}

fn decorated(name: &[u8], unique: &[u8], kind: &[u8]) -> Vec<u8> {
    let unique = if unique.is_empty() { Vec::new() } else { [b".", unique].concat() };
    let short = [b".", name, &unique, b".haul-", kind].concat();
    if short.len() <= NAME_MAX {
        return short;
    }
    let tail = [b".", hash(name).as_bytes(), &unique, b".haul-long-", kind].concat();
    [b".", head(name, NAME_MAX - 1 - tail.len()), &tail].concat()
}

/// The start of a name, at most `most` bytes, so that users recognise the file. No UTF-8 character is cut, because
/// servers and file systems may refuse invalid UTF-8.
fn head(name: &[u8], most: usize) -> &[u8] {
    let mut end = most.min(name.len());
    // A byte 10xxxxxx continues a character, and a character has at most four bytes.
    let least = end.saturating_sub(3);
    while end > least && name.get(end).is_some_and(|byte| byte & 0xc0 == 0x80) {
        end -= 1;
    }
    &name[..end]
}

/// 128 bits of the BLAKE3 hash in hexadecimal. It is stable across versions and machines, which resuming depends on,
/// and finding two names with the same hash takes some 2^64 attempts.
fn hash(bytes: &[u8]) -> String {
    let mut hex = blake3::hash(bytes).to_hex().to_string();
    hex.truncate(HASH_DIGITS);
    hex
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every reserved name that haul may use beside `name`.
    fn invented(name: &[u8]) -> Vec<Vec<u8>> {
        let journal = journal_name(name);
        let rewritten = rewritten_journal_name(&journal);
        let unique =
            [moving_name, temporary_name, upload_name].map(|invented| invented(name, "12-3"));
        let mut names = vec![part_name(name), journal, rewritten, aside_name(name)];
        names.extend(unique);
        names
    }

    #[test]
    fn reserved_names_have_their_documented_form() {
        assert_eq!(part_name(b"a.iso"), b".a.iso.haul-part");
        assert_eq!(journal_name(b"a.iso"), b".a.iso.haul-journal");
        assert_eq!(rewritten_journal_name(b".a.iso.haul-journal"), b".a.iso.haul-rewrite");
        assert_eq!(aside_name(b"a.iso"), b".a.iso.haul-old");
        assert_eq!(temporary_name(b"a.iso", "7-1"), b".a.iso.7-1.haul-temp");
        assert_eq!(upload_name(b"a.iso", "7f"), b".a.iso.7f.haul-upload");
        assert!(!is_part_name(b"a.haul-part"));
        assert!(!is_part_name(b".a.haul-partial"));
    }

    #[test]
    fn unique_values_differ_and_contain_the_time_of_the_first_call() {
        let (one, other) = (unique(), unique());
        assert_ne!(one, other);
        let start = |unique: &str| unique.split('-').nth(1).unwrap().to_owned();
        assert_eq!(start(&one), start(&other));
        assert!(u128::from_str_radix(&start(&one), 16).unwrap() > 0, "{one}");
        assert!(one.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{one}");
        assert!(is_temporary_of(&temporary_name(b"a", &one), b"a"));
        assert!(!is_temporary_of(&temporary_name(b"a.b", &one), b"a"));
        assert!(!is_temporary_of(&moving_name(b"a", &one), b"a"));
    }

    #[test]
    fn the_old_version_of_a_file_is_not_the_part_file_of_another() {
        assert_ne!(aside_name(b"x"), part_name(b"old-x"));
    }

    /// A file may have the same name as the shortened name of another file.
    #[test]
    fn a_file_named_like_a_shortened_name_has_other_reserved_names() {
        let long = [b'a'; 255];
        for cut in invented(&long) {
            for kind in KINDS {
                for suffix in [[b".haul-", kind].concat(), [b".haul-long-", kind].concat()] {
                    let Some(forged) = cut.strip_suffix(&*suffix) else { continue };
                    assert!(!invented(&forged[1..]).contains(&cut), "{}", forged.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        for padding in 0..4 {
            let name = format!("{}{}", "x".repeat(padding), "日".repeat(84));
            for invented in invented(name.as_bytes()) {
                assert!(std::str::from_utf8(&invented).is_ok(), "{}", invented.escape_ascii());
            }
        }
    }

    fn any_name() -> impl Strategy<Value = Vec<u8>> {
        let byte = any::<u8>().prop_map(|byte| if matches!(byte, 0 | b'/') { b'x' } else { byte });
        prop_oneof![
            proptest::collection::vec(byte.clone(), 1..40),
            proptest::collection::vec(byte, 200..256),
            "[a-b.-]{1,6}(\\.12-3)?(\\.haul-(long-)?(part|old|temp|moving|upload|journal|rewrite))?"
                .prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn two_files_never_share_a_reserved_name(one in any_name(), other in any_name()) {
            prop_assume!(one != other);
            for name in invented(&one) {
                prop_assert!(!invented(&other).contains(&name), "{}", name.escape_ascii());
            }
        }

        #[test]
        fn every_reserved_name_is_recognised_and_fits(name in any_name()) {
            let names = invented(&name);
            for (at, invented) in names.iter().enumerate() {
                prop_assert!(is_part_name(invented));
                prop_assert!(invented.len() <= NAME_MAX);
                prop_assert!(!names[at + 1..].contains(invented));
            }
        }
    }
}
