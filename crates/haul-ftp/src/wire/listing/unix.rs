//! A line as `ls -l` prints it: `-rw-r--r--  1 owner group  5000 Nov 22 13:50 name`.
//!
//! There is no standard: the group may be missing, an owner may have spaces in it. What is always
//! there is a size before a date; the name comes after exactly one space behind the date.

use haul_storage::{EntryKind, SpecialKind};

use super::{Found, Line, fields, number};

const MONTHS: [&[u8]; 12] = [
    b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec",
];

/// Reads a line; `None` if it is not one of these.
pub(super) fn line(line: &[u8]) -> Option<Line<'_>> {
    let kind = kind_of(*line.first()?)?;
    let (permissions, _) = fields(line).next()?;
    if !(10..=11).contains(&permissions.len()) || !are_permissions(&permissions[1..10]) {
        return None;
    }
    let (size, end) = size_and_end_of_date(line)?;
    let name = line.get(end..)?.strip_prefix(b" ")?;
    let (name, kind) = match kind {
        Kind::Link => {
            let arrow = name.windows(4).position(|part| part == b" -> ")?;
            (&name[..arrow], EntryKind::Symlink(name[arrow + 4..].to_vec()))
        }
        Kind::Plain(kind) => (name, kind),
    };
    let size = (kind == EntryKind::File).then_some(size).flatten();
    (!name.is_empty()).then_some(Line { name, found: Found { size, ..Found::of(kind) } })
}

enum Kind {
    Plain(EntryKind),
    Link,
}

fn kind_of(letter: u8) -> Option<Kind> {
    let special = |kind| Some(Kind::Plain(EntryKind::Special(kind)));
    match letter {
        b'-' => Some(Kind::Plain(EntryKind::File)),
        b'd' => Some(Kind::Plain(EntryKind::Directory)),
        b'l' => Some(Kind::Link),
        b'p' => special(SpecialKind::Fifo),
        b's' => special(SpecialKind::Socket),
        b'b' => special(SpecialKind::BlockDevice),
        b'c' => special(SpecialKind::CharDevice),
        _ => None,
    }
}

fn are_permissions(letters: &[u8]) -> bool {
    letters.iter().all(|letter| b"rwxsStTlL-".contains(letter))
}

/// The size before the first date, and where that date ends.
fn size_and_end_of_date(line: &[u8]) -> Option<(Option<u64>, usize)> {
    let fields: Vec<_> = fields(line).take(16).collect();
    (2..fields.len()).find_map(|at| {
        let size = number(fields[at - 1].0);
        size?;
        let field = |n: usize| fields.get(n).map(|(field, _)| *field);
        if is_month(fields[at].0) && is_day(field(at + 1)?) && is_time_or_year(field(at + 2)?) {
            return Some((size, fields[at + 2].1));
        }
        if is_iso_date(fields[at].0) && is_time_or_year(field(at + 1)?) {
            return Some((size, fields[at + 1].1));
        }
        None
    })
}

fn is_month(field: &[u8]) -> bool {
    MONTHS.contains(&&field.to_ascii_lowercase()[..])
}

fn is_day(field: &[u8]) -> bool {
    number(field).is_some_and(|day| (1..=31).contains(&day))
}

fn is_time_or_year(field: &[u8]) -> bool {
    let mut parts = field.split(|byte| *byte == b':');
    let numbers = parts.all(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit));
    numbers && (4..=8).contains(&field.len())
}

/// `2024-02-03`.
fn is_iso_date(field: &[u8]) -> bool {
    field.len() == 10
        && field.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> (&'static str, EntryKind, Option<u64>) {
        let Line { name, found } = line(text.as_bytes()).unwrap();
        (std::str::from_utf8(name).unwrap(), found.kind, found.size)
    }

    #[test]
    fn lines_of_many_servers_are_read() {
        let file = EntryKind::File;
        for (text, expected) in [
            (
                "-rw-r--r--    1 0        0            5000 Nov 22 13:50 name",
                ("name", file.clone(), Some(5000)),
            ),
            (
                "-rw-r--r--   1 some body group 12 Feb  3  2024  lead  ing",
                (" lead  ing", file.clone(), Some(12)),
            ),
            ("-rw-r--r-- 1 owner 12 Feb 3 2024 x", ("x", file.clone(), Some(12))),
            ("-rw-rw-rw-+ 1 o g 7 2024-02-03 10:11 iso", ("iso", file, Some(7))),
            ("drwxr-sr-t 2 o g 4096 Feb  3 10:11 dir", ("dir", EntryKind::Directory, None)),
            (
                "lrwxrwxrwx 1 o g 3 Feb  3 10:11 a -> b -> c",
                ("a", EntryKind::Symlink(b"b -> c".to_vec()), None),
            ),
            (
                "crw-rw-rw- 1 root root 1, 3 Feb  3 10:11 null",
                ("null", EntryKind::Special(SpecialKind::CharDevice), None),
            ),
            (
                "-rw-r--r-- 1 o g 9 Mar 10 10:10 1 Jan 1 2001 x",
                ("1 Jan 1 2001 x", EntryKind::File, Some(9)),
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for text in [
            "",
            "total 5",
            "-rw-r--r--",
            "-rw-r--r-- 1 o g 5 Nov 22 13:50",
            "-rw-r--r-- 1 o g 5 Nov 22 13:50 ",
            "-rw-r--r-- 1 o g five Nov 22 13:50 x",
            "-rw-r--r-- 1 o g 5 Now 22 13:50 x",
            "lrwxrwxrwx 1 o g 3 Feb  3 10:11 nowhere",
            "hello world",
        ] {
            assert_eq!(line(text.as_bytes()), None, "{text}");
        }
    }
}
