//! A parsed line of a directory listing, and helpers to split lines into fields and to parse numbers.

use haul_storage::{Entry, EntryKind, RelPath, Timestamp, UNKNOWN_SIZE};

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// The name; with `MLST`, a path in whatever form the server chooses.
    pub name: &'a [u8],
    /// Its attributes.
    pub found: Found,
}

/// Attributes of an existing file or directory, as far as the server reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// File, directory, symbolic link or special file.
    pub kind: EntryKind,
    /// Size in bytes; `None` if the server does not report it.
    pub size: Option<u64>,
    /// Modification time.
    pub modified: Option<Timestamp>,
    /// Permission bits.
    pub mode: Option<u32>,
}

impl Found {
    /// Attributes of which only the kind is known.
    pub const fn of(kind: EntryKind) -> Self {
        Self { kind, size: None, modified: None, mode: None }
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// True for a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == EntryKind::File
    }

    /// Converts to a storage entry at `path`.
    pub fn entry(self, path: RelPath) -> Entry {
        let size = if self.is_file() { self.size.unwrap_or(UNKNOWN_SIZE) } else { 0 };
        let mut entry = Entry::new(path, self.kind, size);
        (entry.modified, entry.mode) = (self.modified, self.mode);
        entry
    }
}

/// Parses a number with thousands separators: `1,234`, `1.234.567` or `1'234`.
pub(super) fn grouped(digits: &[u8]) -> Option<u64> {
    let separator = digits.iter().copied().find(|byte| !byte.is_ascii_digit())?;
    let mut groups = digits.split(|byte| *byte == separator);
    let first = (1..=3).contains(&groups.next()?.len());
    if !b",.'".contains(&separator) || !first || !groups.all(|group| group.len() == 3) {
        return None;
    }
    number(&digits.iter().copied().filter(|byte| *byte != separator).collect::<Vec<_>>())
}

pub(super) fn is_digits(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let digits = digits.trim_ascii();
    // `parse` accepts a leading `+`.
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_digits(digits))
}

/// The space-separated fields of a line, each with its end offset in the line.
pub(super) fn fields(line: &[u8]) -> impl Iterator<Item = (&[u8], usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + line[at..].iter().position(|byte| *byte != b' ')?;
        let length = line[start..].iter().position(|byte| *byte == b' ');
        let end = length.map_or(line.len(), |length| start + length);
        at = end;
        Some((&line[start..end], end))
    })
}
