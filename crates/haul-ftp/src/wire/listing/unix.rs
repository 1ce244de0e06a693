//! Lines in the format of `ls -l`: `-rw-r--r--  1 owner group  5000 Nov 22 13:50 name`.
//!
//! There is no standard: the group may be missing, an owner may contain spaces, dates are written in many
//! languages. The size comes before the date (see `date`), perhaps joined to the column before it. One space
//! separates date and name; more spaces are padding after a one-field date without a time. NetWare has rights in
//! brackets instead of permissions, and some servers print numbers only; both pad names.

use haul_storage::{EntryKind, SpecialKind};

use super::date::{self, Certainty};
use super::line::{Found, Line, fields, grouped, number};

/// Reads a line; `None` if it has none of these formats.
pub(super) fn line(line: &[u8]) -> Option<Line<'_>> {
    numerical(line).or_else(|| long(line))
}

fn long(line: &[u8]) -> Option<Line<'_>> {
    let kind = kind_of(*line.first()?)?;
    let (permissions, _) = fields(line).next()?;
    let netware = permissions.len() == 1 || permissions.get(1) == Some(&b'[');
    if netware {
        let rights = fields(line).find(|(field, _)| field.contains(&b'['))?.0;
        let rights = &rights[rights.iter().position(|byte| *byte == b'[')?..];
        if !rights.ends_with(b"]") || rights.len() > 12 {
            return None;
        }
    } else if !are_permissions(&permissions[1..]) {
        return None;
    }
    let (size, name) = size_and_name(line, &kind)?;
    // NetWare pads its columns.
    let name = if netware { name.trim_ascii_start() } else { name };
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

/// `0100644   500  101   12345    123456789       name`: mode, owner, group, size, seconds since 1970.
fn numerical(line: &[u8]) -> Option<Line<'_>> {
    let all: Vec<_> = fields(line).take(5).collect();
    let [(mode, _), (owner, _), (group, _), (size, _), (time, end)] = all[..] else { return None };
    if !(6..=7).contains(&mode.len()) || !mode.iter().all(|byte| (b'0'..=b'7').contains(byte)) {
        return None;
    }
    let mode = u32::from_str_radix(std::str::from_utf8(mode).ok()?, 8).ok()?;
    let kind = match mode >> 12 {
        0o10 => EntryKind::File,
        0o4 => EntryKind::Directory,
        _ => return None,
    };
    let size = number(size)?;
    (number(owner).is_some() && number(group).is_some() && time.len() >= 6).then_some(())?;
    let modified = haul_storage::Timestamp { seconds: number(time)?.try_into().ok()?, nanos: 0 };
    let name = line[end..].trim_ascii_start();
    let size = (kind == EntryKind::File).then_some(size);
    let found =
        Found { size, modified: Some(modified), mode: Some(mode & 0o7777), ..Found::of(kind) };
    (!name.is_empty()).then_some(Line { name, found })
}

enum Kind {
    Plain(EntryKind),
    Link,
}

fn kind_of(letter: u8) -> Option<Kind> {
    let special = |kind| Some(Kind::Plain(EntryKind::Special(kind)));
    match letter {
        // `C` is stored in one piece, `M` has been moved to a tape.
        b'-' | b'C' | b'M' => Some(Kind::Plain(EntryKind::File)),
        b'd' => Some(Kind::Plain(EntryKind::Directory)),
        b'l' => Some(Kind::Link),
        b'p' => special(SpecialKind::Fifo),
        b's' => special(SpecialKind::Socket),
        b'b' => special(SpecialKind::BlockDevice),
        b'c' => special(SpecialKind::CharDevice),
        // Doors, ports, whiteouts.
        b'D' | b'P' | b'w' => special(SpecialKind::Unknown),
        _ => None,
    }
}

/// Nine letters, and the characters that some systems append; or the capitals of Connect:Enterprise.
fn are_permissions(letters: &[u8]) -> bool {
    let unix = matches!(letters.len(), 9..=11)
        && letters[..9].iter().all(|letter| b"rwxsStTlL-".contains(letter))
        && letters[9..].iter().all(|letter| b"+.@".contains(letter));
    let capitals = letters.len() == 12
        && letters.iter().all(|letter| letter.is_ascii_uppercase() || *letter == b'-');
    unix || capitals
}

/// The size before the first date, and the name after it. An unambiguous date wins over an ambiguous one
/// before it.
fn size_and_name<'a>(line: &'a [u8], kind: &Kind) -> Option<(Option<u64>, &'a [u8])> {
    let all: Vec<_> = fields(line).take(20).collect();
    let words: Vec<&[u8]> = all.iter().map(|(field, _)| *field).collect();
    let device = matches!(
        kind,
        Kind::Plain(EntryKind::Special(SpecialKind::BlockDevice | SpecialKind::CharDevice))
    );
    for certainty in [Certainty::Sure, Certainty::Numbers, Certainty::GluedSize] {
        for at in 2..words.len() {
            let before = words[at - 1];
            let size = match certainty {
                Certainty::GluedSize => glued(before, at),
                _ => size(before, device),
            };
            let Some(size) = size else { continue };
            // In the first fields, a word that is a month in some language may be an owner's name.
            let Some(date) = date::read(&words[at..], certainty, at > 2) else { continue };
            let end = all[at + date.fields - 1].1;
            let name = line.get(end..)?.strip_prefix(b" ")?;
            let name = if date.padded { name.trim_ascii_start() } else { name };
            return Some((size, name));
        }
    }
    None
}

/// `5000`, `1,234`, `33.5k`, or the numbers of a device. The last two give no exact size: the inner value is `None`.
fn size(field: &[u8], device: bool) -> Option<Option<u64>> {
    if device {
        let are_numbers = field.iter().all(|byte| byte.is_ascii_digit() || *byte == b',');
        return are_numbers.then_some(None);
    }
    if let Some(size) = number(field).or_else(|| grouped(field)) {
        return Some(Some(size));
    }
    let (unit, digits) = field.split_last()?;
    let rough = b"kKmMgGtT".contains(unit)
        && digits.first()?.is_ascii_digit()
        && digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    rough.then_some(None)
}

/// `longgroup123456`: columns that ran into each other. Where the size begins is unknown.
fn glued(field: &[u8], at: usize) -> Option<Option<u64>> {
    let both = field.first()?.is_ascii_alphabetic() && field.last()?.is_ascii_digit();
    (both && at > 2).then_some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> (String, EntryKind, Option<u64>) {
        let Line { name, found } = line(text).unwrap_or_else(|| panic!("{}", text.escape_ascii()));
        (String::from_utf8_lossy(name).into_owned(), found.kind, found.size)
    }

    #[test]
    fn files_of_many_servers_are_read() {
        for (text, name, size) in [
            ("-rw-r--r--    1 0        0            5000 Nov 22 13:50 name", "name", Some(5000)),
            ("-rw-r--r--   1 some body group 12 Feb  3  2024  lead  ing", " lead  ing", Some(12)),
            ("-rw-r--r-- 1 owner 12 Feb 3 2024 x", "x", Some(12)),
            ("-rw-r--r-- 12 Feb 3 2024 x", "x", Some(12)),
            ("-rw-rw-rw-+ 1 o g 7 2024-02-03 10:11 iso", "iso", Some(7)),
            ("-rw-r--r--. 1 o g 7 2024-02-03 10:11:12.123456789 +0100 full", "full", Some(7)),
            ("-rw-r--r-- 1 o g 9 Mar 10 10:10 1 Jan 1 2001 x", "1 Jan 1 2001 x", Some(9)),
            (
                "-rw-r--r-- 1 500 500 7 Feb 3 10:11:12 2024 seconds and year",
                "seconds and year",
                Some(7),
            ),
            ("-rw-r--r-- 1 500 500 7 Jul 29 02:27 2014 Invoices", "2014 Invoices", Some(7)),
            ("-rwxr-xr-x    1 user group        9 Oct 08, 2002 09:47 vshell", "vshell", Some(9)),
            ("-rw-r--r--   1 root     other        531 3 29 03:26 numbers", "numbers", Some(531)),
            ("-rw-r--r--   1 root     other        531 09-26 2000 dashes", "dashes", Some(531)),
            ("-rw-r--r--   1 root     other        531 09-26 13:45 dashes", "dashes", Some(531)),
            ("-rw-r--r--   1 root     other  33.5k Oct 5 21:22 rough", "rough", None),
            ("-rw-r--r--   1 o g 1,234 Oct 5 21:22 grouped", "grouped", Some(1234)),
            (
                "-------r--         326  1391972  1392298 Nov 22  1995 NetPresenz",
                "NetPresenz",
                Some(1_392_298),
            ),
            ("-rw-r--r--   1 group domain user 531 Jan 29 03:26 domain", "domain", Some(531)),
            (
                "-r-xr-xr-x   2 root     other      2235 1999/10/12 17:12 slashes",
                "slashes",
                Some(2235),
            ),
            (
                "-r-xr-xr-x   2 root     other      2235 24-04-2003 17:12 day first",
                "day first",
                Some(2235),
            ),
            ("-r-xr-xr-x   2 root  root  96 2004.07.15   dots", "dots", Some(96)),
            ("-r-xr-xr-x 2 owner group 4512 01-jun-99 short", "short", Some(4512)),
            ("-r-xr-xr-x longowner longgroup123456 Feb 12 17:20 glued", "glued", None),
            (
                "-C--E-----FTP B BCC3I1       7670  1294495 Jan 13 07:42 conent",
                "conent",
                Some(1_294_495),
            ),
            ("-r--r--r-- 0125039 12 Nov 11 2005 no owner", "no owner", Some(12)),
            (
                "-rw-------      1  99999999 0              3 Apr   4 24:00 midnight",
                "midnight",
                Some(3),
            ),
            (
                "- [R----F--] rhesus             214059       Oct 20 15:27    cx.exe",
                "cx.exe",
                Some(214_059),
            ),
            (
                "-[RWCEMFA] rhesus             214059       Oct 20 15:27    cx.exe",
                "cx.exe",
                Some(214_059),
            ),
            ("0100644   500  101   12345    123456789       numerical", "numerical", Some(12345)),
            // Owners and groups that could be months, days and years.
            ("-rw-r--r-- 1 gen 10 2024 Nov 22 13:50 x", "x", Some(2024)),
            ("-rw-r--r-- 1 ftp 10 2024 Nov 22 13:50 x", "x", Some(2024)),
        ] {
            assert_eq!(read(text.as_bytes()), (name.to_owned(), EntryKind::File, size), "{text}");
        }
    }

    #[test]
    fn dates_in_other_languages_are_read() {
        for (date, name) in [
            ("Mär 03 10:11", "x"),
            ("mars 03 10:11", "x"),
            ("févr.  3  2024", "x"),
            ("26. Juli, 20:10", "x"),
            ("2.   Okt.  2003", "x"),
            ("30. Jan., 12:40", "x"),
            ("3 Feb 2024", "x"),
            ("29 Jul 02:27", "2014 Invoices"),
            ("01 oct 2004", "x"),
            ("szept 26 20:10", "x"),
            ("мая  3 10:11", "x"),
            ("3 янв 2024", "x"),
            ("6月 3 2003", "x"),
            ("4月 18日 2003年", "x"),
            ("2005년  1월  6일", "x"),
            ("8月 17 08:52", "x"),
            ("12月 31 23:59", "1 2 3"),
            ("dez 31 23:59", "x"),
            ("ott 31 23:59", "x"),
        ] {
            let text = format!("-rw-r--r--   1 500 500 7 {date} {name}");
            assert_eq!(
                read(text.as_bytes()),
                (name.to_owned(), EntryKind::File, Some(7)),
                "{text}"
            );
        }
        // The encodings of old systems.
        for date in
            [&b"4\x8c\x8e 18\x93\xfa 2003\x94\x4e"[..], b"2003   3\xed\xef 20", b"8\xed 17 08:52"]
        {
            let text = [b"-rw-r--r--   1 root sys 8473  ", date, b" x"].concat();
            assert_eq!(read(&text), ("x".to_owned(), EntryKind::File, Some(8473)));
        }
    }

    #[test]
    fn directories_links_and_special_files_are_read() {
        let special = EntryKind::Special;
        for (text, name, kind) in [
            ("drwxr-sr-t 2 o g 4096 Feb  3 10:11 dir", "dir", EntryKind::Directory),
            (
                "drwxrwxr-x               folder        2 May 10  1996 network",
                "network",
                EntryKind::Directory,
            ),
            (
                "d [R----F--] supervisor            512       Jan 16 18:53    login",
                "login",
                EntryKind::Directory,
            ),
            ("040755 500 101 4096 123456789 numerical", "numerical", EntryKind::Directory),
            (
                "lrwxrwxrwx 1 o g 3 Feb  3 10:11 a -> b -> c",
                "a",
                EntryKind::Symlink(b"b -> c".to_vec()),
            ),
            (
                "crw-rw-rw- 1 root root 1, 3 Feb  3 10:11 null",
                "null",
                special(SpecialKind::CharDevice),
            ),
            (
                "crw-------   1 root sys 109,767 Jul  2  2004 solaris",
                "solaris",
                special(SpecialKind::CharDevice),
            ),
            (
                "brw-rw---- 1 root disk 8,0 2024-02-03 10:11 sda",
                "sda",
                special(SpecialKind::BlockDevice),
            ),
            ("Drw-r--r-- 1 root root 0 Feb  3 10:11 door", "door", special(SpecialKind::Unknown)),
        ] {
            assert_eq!(read(text.as_bytes()), (name.to_owned(), kind, None), "{text}");
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
            "-rw-r--r-- 1 o g 5 x",
            "lrwxrwxrwx 1 o g 3 Feb  3 10:11 nowhere",
            "- rhesus 214059 Oct 20 15:27 cx.exe",
            "hello world",
        ] {
            assert_eq!(line(text.as_bytes()), None, "{text}");
        }
    }
}
