//! Lines of small and old servers: EPLF, VShell, OS-9, and embedded systems (VxWorks, Nortel).

use haul_storage::{EntryKind, SpecialKind, Timestamp};

use super::line::{Found, Line, fields, is_digits, number};

/// Reads a line; `None` if it is not one of these.
pub(super) fn line(line: &[u8]) -> Option<Line<'_>> {
    if line.starts_with(b"+") {
        return eplf(line);
    }
    let all: Vec<_> = fields(line).take(8).collect();
    vshell(line, &all)
        .or_else(|| vx_works(line, &all))
        .or_else(|| nortel(line, &all))
        .or_else(|| os9(line, &all))
}

/// Whether a line is a heading and describes no entry.
pub(super) fn is_heading(line: &[u8]) -> bool {
    let mut words = fields(line).map(|(field, _)| field);
    let ruled = line.len() > 3 && line.iter().all(|byte| b"-= ".contains(byte));
    let known = matches!(
        (words.next(), words.next()),
        (Some(b"size"), Some(b"date")) | (Some(b"Owner"), Some(b"Last"))
    );
    ruled || known
}

/// `+i8388621.29609,m824255902,s280,r,up644,<TAB>name` (D. J. Bernstein's "Easily Parsed LIST Format").
fn eplf(line: &[u8]) -> Option<Line<'_>> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let (facts, name) = (&line[1..tab], &line[tab + 1..]);
    let mut found = Found::of(EntryKind::Special(SpecialKind::Unknown));
    for fact in facts.split(|byte| *byte == b',') {
        match fact {
            b"/" => found.kind = EntryKind::Directory,
            b"r" if found.kind != EntryKind::Directory => found.kind = EntryKind::File,
            [b's', size @ ..] => found.size = number(size),
            [b'm', seconds @ ..] => {
                let seconds = number(seconds).and_then(|seconds| seconds.try_into().ok());
                found.modified = seconds.map(|seconds| Timestamp { seconds, nanos: 0 });
            }
            [b'u', b'p', mode @ ..] => {
                let mode = std::str::from_utf8(mode).ok();
                found.mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok());
                found.mode = found.mode.map(|mode| mode & 0o7777);
            }
            _ => {}
        }
    }
    if !found.is_file() {
        found.size = None;
    }
    (!name.is_empty()).then_some(Line { name, found })
}

/// `206876  Apr 04, 2000 21:06 name`; a directory ends with `/`.
fn vshell<'a>(line: &'a [u8], all: &[(&'a [u8], usize)]) -> Option<Line<'a>> {
    let [(size, _), (month, _), (day, _), (year, _), (time, end), ..] = all else { return None };
    let day = day.strip_suffix(b",")?;
    let is_one = month.len() == 3
        && month.iter().all(u8::is_ascii_alphabetic)
        && is_digits(day)
        && year.len() == 4
        && is_digits(year)
        && is_time(time);
    let size = number(size).filter(|_| is_one)?;
    let name = line[*end..].strip_prefix(b" ")?;
    let found = match name.ends_with(b"/") {
        true => Found::of(EntryKind::Directory),
        false => Found { size: Some(size), ..Found::of(EntryKind::File) },
    };
    (!name.is_empty()).then_some(Line { name, found })
}

/// `2048    Feb-28-1998  05:23:30   name <DIR>`.
fn vx_works<'a>(line: &'a [u8], all: &[(&'a [u8], usize)]) -> Option<Line<'a>> {
    let [(size, _), (date, _), (time, end), ..] = all else { return None };
    let parts: Vec<_> = date.split(|byte| *byte == b'-').collect();
    let [month, day, year] = parts[..] else { return None };
    let is_one = month.len() == 3
        && month.iter().all(u8::is_ascii_alphabetic)
        && is_digits(day)
        && year.len() == 4
        && is_digits(year)
        && is_time(time);
    let size = number(size).filter(|_| is_one)?;
    let name = line[*end..].trim_ascii();
    let (name, found) = match name.strip_suffix(b"<DIR>") {
        Some(name) => (name.trim_ascii_end(), Found::of(EntryKind::Directory)),
        None => (name, Found { size: Some(size), ..Found::of(EntryKind::File) }),
    };
    (!name.is_empty()).then_some(Line { name, found })
}

/// `name       1014196  06/03/04  Thur.   10:20:03`.
fn nortel<'a>(line: &'a [u8], all: &[(&'a [u8], usize)]) -> Option<Line<'a>> {
    let [(name, _), (size, _), (date, _), (day, _), (time, end)] = all else { return None };
    let is_one = date.len() == 8
        && date.split(|byte| *byte == b'/').all(|part| part.len() == 2 && is_digits(part))
        && day.ends_with(b".")
        && is_time(time)
        && line[*end..].trim_ascii().is_empty();
    let size = number(size).filter(|_| is_one)?;
    Some(Line { name, found: Found { size: Some(size), ..Found::of(EntryKind::File) } })
}

/// `20.20 07/03/29 1026 d-ewrewr 2650 85920 name`: owner, date (year first), time, rights, sector, size.
fn os9<'a>(line: &'a [u8], all: &[(&'a [u8], usize)]) -> Option<Line<'a>> {
    let [(owner, _), (date, _), (time, _), (rights, _), _, (size, end), ..] = all else {
        return None;
    };
    let is_one = owner.split(|byte| *byte == b'.').all(is_digits)
        && date.split(|byte| *byte == b'/').all(is_digits)
        && time.len() == 4
        && is_digits(time)
        && rights.len() == 8
        && rights.iter().all(|letter| b"dsewr-".contains(letter));
    let size = number(size).filter(|_| is_one)?;
    let name = line[*end..].strip_prefix(b" ")?;
    let found = match rights[0] {
        b'd' => Found::of(EntryKind::Directory),
        _ => Found { size: Some(size), ..Found::of(EntryKind::File) },
    };
    (!name.is_empty()).then_some(Line { name, found })
}

fn is_time(text: &[u8]) -> bool {
    let mut parts = text.split(|byte| *byte == b':');
    text.contains(&b':') && parts.all(|part| (1..=2).contains(&part.len()) && is_digits(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read() {
        for (text, size) in [
            ("+i8388621.48594,m825718503,r,s280,up755\ta name", 280),
            ("206876  Apr 04, 2000 21:06 a name", 206_876),
            ("141536    Jan-28-2009  10:11:12   a name   ", 141_536),
            ("20.20 07/03/29 1026 --ewrewr 2650 85920 a name", 85_920),
        ] {
            let Line { name, found } = line(text.as_bytes()).unwrap();
            assert_eq!((name, found.size), (&b"a name"[..], Some(size)), "{text}");
            assert_eq!(found.kind, EntryKind::File);
        }
        let Line { name, found } = line(b"image.bin  1014196  06/03/04  Thur.   10:20:03").unwrap();
        assert_eq!((name, found.size), (&b"image.bin"[..], Some(1_014_196)));
        let eplf = line(b"+m825718503,r,s280,up755\tx").unwrap().found;
        assert_eq!(eplf.modified.map(|time| time.seconds), Some(825_718_503));
        assert_eq!(eplf.mode, Some(0o755));
    }

    #[test]
    fn directories_are_read() {
        for (text, expected) in [
            ("+i8388621.50690,m824255907,/,\ta name", "a name"),
            ("0  Dec 12, 2002 02:13 a name/", "a name/"),
            ("2048    Feb-28-1998  05:23:30   a name <DIR>", "a name"),
            ("20.20 07/03/29 1026 d-ewrewr 2650 85920 a name", "a name"),
        ] {
            let Line { name, found } = line(text.as_bytes()).unwrap();
            assert_eq!((name, found.kind), (expected.as_bytes(), EntryKind::Directory), "{text}");
            assert_eq!(found.size, None);
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for text in
            ["", "+", "+r,s5 x", "+r,\t", "5 Apr 4 2000 21:06 x", "5 x", "a 5 06/03/04 Thu 10:20"]
        {
            assert_eq!(line(text.as_bytes()), None, "{text}");
        }
    }
}
