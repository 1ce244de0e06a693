//! What a line says, and its fields.

use haul_storage::{Entry, EntryKind, RelPath, Timestamp, UNKNOWN_SIZE};

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
        let size = if self.is_file() { self.size.unwrap_or(UNKNOWN_SIZE) } else { 0 };
        Entry { modified: self.modified, mode: self.mode, ..Entry::new(path, self.kind, size) }
    }
}

/// Digits in groups of three: `1,234` or `1.234.567`.
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
    // Rust takes a sign for part of a number.
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_digits(digits))
}

/// The fields of a line between spaces, each with where it ends.
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
