//! A line as Windows servers print it: `02-03-24  05:06PM       <DIR>          name`, or a size in the
//! place of `<DIR>`.

use haul_storage::EntryKind;

use super::{Found, Line, fields, number};

/// Between `<DIR>` and the name.
const AFTER_DIR: usize = 10;

/// Reads a line; `None` if it is not one of these.
pub(super) fn line(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = fields(line);
    let (date, _) = fields.next()?;
    let (time, _) = fields.next()?;
    let (size, end) = fields.next()?;
    if !is_date(date) || !is_time(time) {
        return None;
    }
    let rest = &line[end..];
    let (name, found) = if size == b"<DIR>" {
        let spaces = rest.iter().take(AFTER_DIR).take_while(|byte| **byte == b' ').count();
        (&rest[spaces..], Found::of(EntryKind::Directory))
    } else {
        let size = Some(number(size)?);
        (rest.strip_prefix(b" ")?, Found { size, ..Found::of(EntryKind::File) })
    };
    (!name.is_empty()).then_some(Line { name, found })
}

/// `02-03-24` or `02-03-2024`; some servers have slashes.
fn is_date(field: &[u8]) -> bool {
    matches!(field.len(), 8 | 10)
        && field.iter().enumerate().all(|(at, byte)| match at {
            2 | 5 => matches!(byte, b'-' | b'/'),
            _ => byte.is_ascii_digit(),
        })
}

/// `05:06PM` or `17:06`.
fn is_time(field: &[u8]) -> bool {
    let digits = field.strip_suffix(b"AM").or_else(|| field.strip_suffix(b"PM")).unwrap_or(field);
    let is_right = |(at, byte): (usize, &u8)| match at {
        2 => *byte == b':',
        _ => byte.is_ascii_digit(),
    };
    digits.len() == 5 && digits.iter().enumerate().all(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_are_read() {
        let dir = line(b"02-03-24  05:06PM       <DIR>           two words").unwrap();
        assert_eq!((dir.name, dir.found.kind), (&b" two words"[..], EntryKind::Directory));
        let file = line(b"02-03-2024  17:06               123456  file.txt").unwrap();
        assert_eq!((file.name, file.found.size), (&b" file.txt"[..], Some(123_456)));
    }

    #[test]
    fn other_lines_are_refused() {
        for text in
            ["", "02-03-24", "02-03-24  05:06PM 5", "aa-bb-cc  05:06PM 5 x", "02-03-24 5 5 x"]
        {
            assert_eq!(line(text.as_bytes()), None, "{text}");
        }
    }
}
