//! Lines of Windows servers, `02-03-24  05:06PM       <DIR>          name` with a size instead of `<DIR>`
//! for files, and of OS/2: `36611      A    04-23-103  10:57  name`.

use haul_storage::{EntryKind, SpecialKind};

use super::line::{Found, Line, fields, grouped, number};

/// The width of the column that begins with `<DIR>`.
const COLUMN: usize = 15;

/// Reads a line; `None` if it is not one of these.
pub(super) fn line(line: &[u8]) -> Option<Line<'_>> {
    windows(line).or_else(|| os2(line))
}

fn windows(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = fields(line);
    let (date, _) = fields.next()?;
    let (time, _) = fields.next()?;
    if !is_date(date) || !is_time(time) {
        return None;
    }
    let (mut size, mut end) = fields.next()?;
    if is_half(size) {
        (size, end) = fields.next()?;
    }
    let rest = &line[end..];
    let (name, kind, size) = match &size.to_ascii_uppercase()[..] {
        tag @ (b"<DIR>" | b"<JUNCTION>" | b"<SYMLINKD>" | b"<SYMLINK>") => {
            let padding = COLUMN.saturating_sub(tag.len()).max(1);
            let spaces = rest.iter().take(padding).take_while(|byte| **byte == b' ').count();
            let name = &rest[spaces..];
            let (name, kind) =
                if tag == b"<DIR>" { (name, EntryKind::Directory) } else { link(name) };
            (name, kind, None)
        }
        _ => {
            let size = number(size).or_else(|| grouped(size))?;
            (rest.strip_prefix(b" ")?, EntryKind::File, Some(size))
        }
    };
    (!name.is_empty()).then_some(Line { name, found: Found { size, ..Found::of(kind) } })
}

/// `name [C:\target]`.
fn link(name: &[u8]) -> (&[u8], EntryKind) {
    let target = name.strip_suffix(b"]").and_then(|inner| {
        let open = inner.windows(2).rposition(|part| part == b" [")?;
        Some((open, inner[open + 2..].to_vec()))
    });
    match target.filter(|(open, target)| *open > 0 && !target.is_empty()) {
        Some((open, target)) => (&name[..open], EntryKind::Symlink(target)),
        None => (name, EntryKind::Special(SpecialKind::Unknown)),
    }
}

/// Size, attributes (`DIR` among them), date with years since 1900, time, name.
fn os2(line: &[u8]) -> Option<Line<'_>> {
    let all: Vec<_> = fields(line).take(6).collect();
    let size = number(all.first()?.0)?;
    let at = all.iter().position(|(field, _)| is_short_date(field)).filter(|at| *at <= 3)?;
    let attributes = all[1..at].iter().map(|(field, _)| *field);
    let mut directory = false;
    for attribute in attributes {
        directory |= attribute == b"DIR";
        if attribute != b"DIR" && !attribute.iter().all(|letter| b"ARHS".contains(letter)) {
            return None;
        }
    }
    let (time, end) = all.get(at + 1)?;
    let name = line[*end..].trim_ascii_start();
    if !is_time(time) || name.is_empty() {
        return None;
    }
    let found = if directory {
        Found::of(EntryKind::Directory)
    } else {
        Found { size: Some(size), ..Found::of(EntryKind::File) }
    };
    Some(Line { name, found })
}

/// `02-03-24`, `02-03-2024` or `2024-02-03`; some servers have slashes or dots.
fn is_date(field: &[u8]) -> bool {
    let year_first = field.get(4).is_some_and(|byte| is_separator(*byte));
    let separators = if year_first { [4, 7] } else { [2, 5] };
    let long = field.len() == 10 || (field.len() == 8 && !year_first);
    long && is_pattern(field, separators)
}

/// A date with years since 1900: `04-23-103` is in 2003.
fn is_short_date(field: &[u8]) -> bool {
    matches!(field.len(), 8 | 9) && is_pattern(field, [2, 5])
}

fn is_pattern(field: &[u8], separators: [usize; 2]) -> bool {
    field.iter().enumerate().all(|(at, byte)| match separators.contains(&at) {
        true => is_separator(*byte),
        false => byte.is_ascii_digit(),
    })
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b'-' | b'/' | b'.')
}

/// `05:06PM`, `5:06pm`, `17:06` or `17:06:07`.
fn is_time(field: &[u8]) -> bool {
    let digits = match field.len().checked_sub(2).map(|at| field.split_at(at)) {
        Some((digits, half)) if is_half(half) => digits,
        _ => field,
    };
    let mut parts = digits.split(|byte| *byte == b':');
    let hour = parts.next().unwrap_or_default();
    let are_digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    let rest: Vec<_> = parts.collect();
    (1..=2).contains(&hour.len())
        && are_digits(hour)
        && (1..=2).contains(&rest.len())
        && rest.iter().all(|part| part.len() == 2 && are_digits(part))
}

fn is_half(field: &[u8]) -> bool {
    field.eq_ignore_ascii_case(b"AM") || field.eq_ignore_ascii_case(b"PM")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read() {
        for (text, name, size) in [
            ("02-03-2024  17:06               123456  file.txt", " file.txt", 123_456),
            ("04-27-00  9:09AM                   11 hour of one digit", "hour of one digit", 11),
            ("04-27-00  09:09pm                  12 small pm", "small pm", 12),
            ("04-27-00  09:09 PM                 12 pm apart", "pm apart", 12),
            ("04-27-00  09:09AM                1,234 thousands", "thousands", 1234),
            ("04.27.2000  09:09                1.234.567 dots", "dots", 1_234_567),
            ("2002-09-02  19:06                9,730 iso date", "iso date", 9730),
            ("36611      A    04-23-103  10:57  os2", "os2", 36_611),
            (" 1123      A    07-14-99   12:37  os2", "os2", 1123),
        ] {
            let Line { name: read, found } = line(text.as_bytes()).unwrap();
            assert_eq!((read, found.size), (name.as_bytes(), Some(size)), "{text}");
            assert_eq!(found.kind, EntryKind::File, "{text}");
        }
    }

    #[test]
    fn directories_and_links_are_read() {
        let link = |target: &str| EntryKind::Symlink(target.as_bytes().to_vec());
        for (text, name, kind) in [
            (
                "02-03-24  05:06PM       <DIR>           two words",
                " two words",
                EntryKind::Directory,
            ),
            ("2002-09-02  18:48       <DIR>          iso date", "iso date", EntryKind::Directory),
            (
                "04-27-00  12:09PM       <JUNCTION>     junction [C:\\Users]",
                "junction",
                link("C:\\Users"),
            ),
            ("04-27-00  12:09PM       <SYMLINKD>     a [b] [..\\c]", "a [b]", link("..\\c")),
            (
                "04-27-00  12:09PM       <SYMLINK>      x",
                "x",
                EntryKind::Special(SpecialKind::Unknown),
            ),
            ("    0 DIR       02-11-103  16:15  os2 dir", "os2 dir", EntryKind::Directory),
            (" 1123 DIR  A    10-05-100  23:38  os2 dir", "os2 dir", EntryKind::Directory),
        ] {
            let Line { name: read, found } = line(text.as_bytes()).unwrap();
            assert_eq!((read, found.kind), (name.as_bytes(), kind), "{text}");
            assert_eq!(found.size, None, "{text}");
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for text in [
            "",
            "02-03-24",
            "02-03-24  05:06PM 5",
            "aa-bb-cc  05:06PM 5 x",
            "02-03-24 5 5 x",
            "02-03-24  05:06PM 1,23 x",
            "02-03-24  05:06PM <FILE> x",
            "5 X 04-23-103  10:57  x",
        ] {
            assert_eq!(line(text.as_bytes()), None, "{text}");
        }
    }
}
