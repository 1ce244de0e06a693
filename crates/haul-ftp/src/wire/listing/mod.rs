//! One line of a listing: with facts (`MLSD`), or as `ls -l` or `dir` print it (`LIST`).

mod dos;
mod facts;
mod unix;

use haul_storage::{Entry, EntryKind, RelPath, Timestamp};

pub use facts::facts;

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// The name, or with `MLST` a path of the server's choice.
    pub name: &'a [u8],
    /// What it is.
    pub found: Found,
}

/// What is known of something that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// File, directory, link or something else.
    pub kind: EntryKind,
    /// `None` if the server does not say.
    pub size: Option<u64>,
    /// When it was changed.
    pub modified: Option<Timestamp>,
    /// Who may do what with it.
    pub mode: Option<u32>,
}

impl Found {
    /// Something of which only the kind is known.
    pub const fn of(kind: EntryKind) -> Self {
        Self { kind, size: None, modified: None, mode: None }
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == EntryKind::File
    }

    /// As an entry of a storage.
    pub fn entry(self, path: RelPath) -> Entry {
        let size = if self.is_file() { self.size.unwrap_or(0) } else { 0 };
        Entry { modified: self.modified, mode: self.mode, ..Entry::new(path, self.kind, size) }
    }
}

/// Reads a line of `LIST`, whichever way it is written. `None`: it is none of them. Its time is left
/// out: nobody knows in which zone it is, and it has no seconds.
pub fn list_line(line: &[u8]) -> Option<Line<'_>> {
    unix::line(line).or_else(|| dos::line(line))
}

/// Whether a line of `LIST` says nothing of an entry.
pub fn is_heading(line: &[u8]) -> bool {
    line.is_empty() || line.strip_prefix(b"total ").is_some_and(|rest| number(rest).is_some())
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits.trim_ascii()).ok()?.parse().ok()
}

/// The fields of a line between spaces, each with where it ends.
fn fields(line: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].iter().position(|byte| *byte != b' ')?;
        let length = line[start..].iter().position(|byte| *byte == b' ');
        let end = length.map_or(line.len(), |length| start + length);
        at = end;
        Some((&line[start..end], end))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headings_are_no_entries() {
        assert!(is_heading(b"") && is_heading(b"total 1234"));
        assert!(!is_heading(b"total recall") && !is_heading(b"drwx"));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..120)) {
            list_line(&line);
            facts(&line);
            is_heading(&line);
        }

        #[test]
        fn a_line_that_almost_makes_sense_is_read_or_refused(
            line in "[-dlcb ]{0,3}[rwx-]{0,9}[ 0-9a-zA-Z:;=>./<-]{0,80}"
        ) {
            list_line(line.as_bytes());
            facts(line.as_bytes());
        }

        #[test]
        fn a_name_in_a_listing_is_kept_byte_for_byte(
            name in prop::collection::vec(1u8..=255, 1..60), size in any::<u64>(),
        ) {
            prop_assume!(!name.contains(&b'\n') && !name.contains(&b'\r'));
            let unix = format!("-rw-r--r--    1 ftp      ftp      {size:>12} Nov 22 13:50 ");
            let dos = format!("02-03-24  05:06PM {size:>20} ");
            let mlsd = format!("type=file;size={size}; ");
            for (prefix, facts_too) in [(unix, false), (dos, false), (mlsd, true)] {
                let line = [prefix.as_bytes(), &name].concat();
                let read = if facts_too { facts(&line) } else { list_line(&line) };
                let read = read.unwrap();
                prop_assert_eq!(read.name, &name[..]);
                prop_assert_eq!(read.found.size, Some(size));
                prop_assert_eq!(read.found.kind, EntryKind::File);
            }
        }
    }
}
