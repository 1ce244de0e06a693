//! Conflict copies: why there is one, and its name: `NAME (conflict 2026-01-31 HOST).EXT`.

use haul_storage::{RelPath, Timestamp};
use rustix::system::uname;
use serde::{Deserialize, Serialize};

use super::warning::Warning;

/// Longest name that all common file systems can hold.
const NAME_MAX: usize = 255;

/// Longest part of a name that counts as its ending, with the dot.
const EXTENSION_MAX: usize = 10;

/// What a file is a copy of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ConflictCopy {
    pub(super) original: RelPath,
    pub(super) reason: Reason,
}

/// Why a file is not stored under its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reason {
    /// There is another version than the one that it replaces.
    Conflict,
    /// It was open when an earlier mount ended, so it may be incomplete.
    LeftOpen,
    /// Parts of it can no longer be fetched.
    Incomplete,
}

impl ConflictCopy {
    /// What the user has to know about the copy at `copy`.
    pub(super) fn warning(self, copy: RelPath) -> Warning {
        let path = self.original;
        match self.reason {
            Reason::Conflict => Warning::Conflict { path, copy },
            Reason::LeftOpen => Warning::LeftOpen { path, copy },
            Reason::Incomplete => Warning::Incomplete { path, copy },
        }
    }
}

/// The path of the copy with this number (from 1) beside `path`.
pub(super) fn copy_path(path: &RelPath, modified: Timestamp, number: u32) -> Option<RelPath> {
    let host = uname();
    let host = host.nodename().to_string_lossy();
    path.with_name(copy_name(path.name(), &modified.date(), &host, number)).ok()
}

fn copy_name(name: &[u8], date: &str, host: &str, number: u32) -> Vec<u8> {
    let is_plain = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
    let host: String = host.chars().filter(is_plain).take(64).collect();
    let number = if number > 1 { format!(" {number}") } else { String::new() };
    let mark = format!(" (conflict {date} {host}{number})");
    let dot = name.iter().rposition(|byte| *byte == b'.');
    let dot = dot.filter(|dot| *dot > 0 && name.len() - dot <= EXTENSION_MAX);
    let (stem, extension) = name.split_at(dot.unwrap_or(name.len()));
    let most = NAME_MAX.saturating_sub(mark.len() + extension.len());
    let mut end = most.min(stem.len());
    // No UTF-8 character is cut: a byte 10xxxxxx continues one.
    while end < stem.len() && end > 0 && stem[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    [&stem[..end], mark.as_bytes(), extension].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, number: u32) -> String {
        String::from_utf8(copy_name(name.as_bytes(), "2026-01-31", "desk", number)).unwrap()
    }

    #[test]
    fn a_copy_keeps_the_ending_of_the_name() {
        assert_eq!(named("plan.odt", 1), "plan (conflict 2026-01-31 desk).odt");
        assert_eq!(named("plan", 2), "plan (conflict 2026-01-31 desk 2)");
        assert_eq!(named(".profile", 1), ".profile (conflict 2026-01-31 desk)");
        assert_eq!(named("a.no ending at all", 1), "a.no ending at all (conflict 2026-01-31 desk)");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        for padding in 0..4 {
            let name = format!("{}{}.txt", "x".repeat(padding), "日".repeat(83));
            let copy = named(&name, 1);
            assert!(copy.len() <= 255 && copy.ends_with(" (conflict 2026-01-31 desk).txt"));
        }
    }

    #[test]
    fn a_copy_is_beside_its_original() {
        let path = RelPath::parse("a/b.txt").unwrap();
        let copy = copy_path(&path, Timestamp::default(), 1).unwrap();
        assert_eq!(copy.parent(), path.parent());
        assert!(copy.to_string().starts_with("a/b (conflict 1970-01-01 "), "{copy}");
    }
}
