//! Lines of VMS, MVS, OS/400 and HP NonStop.
//!
//! Most of them count blocks or records, which give no length in bytes: the size is left out.

use haul_storage::{EntryKind, SpecialKind};

use super::line::{Found, Line, fields, is_digits, number};

/// Reads a line; `None` if it is not one of these.
pub(super) fn line(line: &[u8]) -> Option<Line<'_>> {
    let all: Vec<_> = fields(line).take(16).collect();
    let words: Vec<&[u8]> = all.iter().map(|(field, _)| *field).collect();
    if let Some(line) = os400(line, &all) {
        return Some(line);
    }
    let (name, found) = vms(&words)
        .or_else(|| non_stop(&words))
        .or_else(|| data_set(&words))
        .or_else(|| member(&words))?;
    (!name.is_empty()).then_some(Line { name, found })
}

/// Whether a line is a heading and describes no entry.
pub(super) fn is_heading(line: &[u8]) -> bool {
    let words: Vec<_> = fields(line).take(3).map(|(field, _)| field).collect();
    match words[..] {
        [b"Volume", b"Unit", _] | [b"Name", b"VV.MM", _] | [b"Name", b"Size", b"TTR"] => true,
        [b"File", b"Code", b"EOF"] => true,
        [b"Total", b"of", count] => is_digits(count),
        [b"Directory", path] => path.ends_with(b"]"),
        _ => false,
    }
}

/// Whether the line is only a VMS name with a version.
pub(super) fn is_name_only(line: &[u8]) -> bool {
    let line = line.trim_ascii_end();
    versioned(line).is_some() && !line.contains(&b' ')
}

/// `NAME.EXT;1  2/8  7-JAN-2000 10:30:13  [OWNER]  (RWED,RWED,RE,)`; the order of the fields varies.
fn vms<'a>(words: &[&'a [u8]]) -> Option<(&'a [u8], Found)> {
    let name = versioned(words.first()?)?;
    words[1..].iter().find(|word| is_named_date(word))?;
    let ending = name.len().checked_sub(4).map(|at| &name[at..]);
    Some(match ending.is_some_and(|ending| ending.eq_ignore_ascii_case(b".DIR")) {
        true => (&name[..name.len() - 4], Found::of(EntryKind::Directory)),
        false => (name, Found::of(EntryKind::File)),
    })
}

/// The name before `;1`. A name without a version denotes the newest one.
fn versioned(word: &[u8]) -> Option<&[u8]> {
    let semicolon = word.iter().rposition(|byte| *byte == b';')?;
    (semicolon > 0 && is_digits(&word[semicolon + 1..])).then(|| &word[..semicolon])
}

/// `7-JAN-2000`, `6-Apr-07`.
fn is_named_date(word: &[u8]) -> bool {
    let parts: Vec<_> = word.split(|byte| *byte == b'-').collect();
    let [day, month, year] = parts[..] else { return false };
    let letters = month.iter().all(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii());
    is_digits(day) && day.len() <= 2 && month.len() >= 3 && letters && is_digits(year)
}

/// `NAME 101 528 6-Apr-07 14:21:18 255,255 "oooo"`: name, code, length.
fn non_stop<'a>(words: &[&'a [u8]]) -> Option<(&'a [u8], Found)> {
    let [name, code, size, date, time, ..] = words else { return None };
    let rights = words.last()?;
    let is_one = code.first()?.is_ascii_digit()
        && is_named_date(date)
        && time.contains(&b':')
        && rights.starts_with(b"\"");
    let size = number(size)?;
    is_one.then(|| (*name, Found { size: Some(size), ..Found::of(EntryKind::File) }))
}

/// A data set: `VOLUME UNIT REFERRED EXT USED RECFM LRECL BLKSZ DSORG NAME`, most of which may be missing.
fn data_set<'a>(words: &[&'a [u8]]) -> Option<(&'a [u8], Found)> {
    let file = || Found::of(EntryKind::File);
    match words {
        [state, name] if state.eq_ignore_ascii_case(b"Migrated") => Some((name, file())),
        [volume, unit, name] if unit.eq_ignore_ascii_case(b"Tape") && is_volume(volume) => {
            Some((name, file()))
        }
        // A database, which cannot be downloaded.
        [_, unit, b"VSAM", name] if is_digits(unit) => {
            Some((name, Found::of(EntryKind::Special(SpecialKind::Unknown))))
        }
        [_, _, referred, .., organisation, name] if words.len() >= 7 => {
            let dated = is_numbered_date(referred) || *referred == b"**NONE**";
            let found = match *organisation {
                b"PO" | b"PO-E" => Found::of(EntryKind::Directory),
                b"PS" | b"PS-E" | b"PS-L" | b"DA" => file(),
                _ => return None,
            };
            dated.then_some((name, found))
        }
        _ => None,
    }
}

/// Up to six capitals and digits.
fn is_volume(word: &[u8]) -> bool {
    word.len() <= 6 && word.iter().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// A member of a data set: `NAME 01.01 2004/06/22 2004/06/22 16:32   128   128    0 ID`, or of a load library (size,
/// position as TTR, authorization code): `NAME 00B308 000411  00 FO                31    ANY`.
fn member<'a>(words: &[&'a [u8]]) -> Option<(&'a [u8], Found)> {
    let is_version = |word: &[u8]| word.len() == 5 && word[2] == b'.' && is_digits(&word[..2]);
    let is_hex = |word: &[u8]| word.len() == 6 && word.iter().all(u8::is_ascii_hexdigit);
    let is_one = match words {
        [_, version, created, changed, time, ..] => {
            is_version(version)
                && is_numbered_date(created)
                && is_numbered_date(changed)
                && time.contains(&b':')
        }
        _ => false,
    };
    let is_program = match words {
        [_, size, ttr, code, ..] => {
            words.len() >= 5 && is_hex(size) && is_hex(ttr) && code.len() == 2 && is_digits(code)
        }
        _ => false,
    };
    (is_one || is_program).then(|| (words[0], Found::of(EntryKind::File)))
}

/// `2003/05/21`.
fn is_numbered_date(word: &[u8]) -> bool {
    word.len() == 10
        && word.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'/',
            _ => byte.is_ascii_digit(),
        })
}

/// `QSYS   77824 02/23/00 15:09:55 *DIR   name/`: owner, size, date, time, kind. Members of a file (`*MEM`) have
/// only owner and kind.
fn os400<'a>(line: &'a [u8], all: &[(&'a [u8], usize)]) -> Option<Line<'a>> {
    let at = all.iter().position(|(field, _)| {
        field.len() > 2 && field[0] == b'*' && field[1..].iter().all(u8::is_ascii_uppercase)
    })?;
    if at != 4 && (at, all[at].0) != (1, b"*MEM") {
        return None;
    }
    let size = all.get(1).filter(|_| at == 4).and_then(|(field, _)| number(field));
    if at == 4 && (size.is_none() || !all[3].0.contains(&b':')) {
        return None;
    }
    let name = line[all[at].1..].trim_ascii();
    let found = match all[at].0 {
        b"*DIR" | b"*DDIR" | b"*LIB" | b"*FLR" => Found::of(EntryKind::Directory),
        // For other objects than stream files the number is the space allocated.
        b"*STMF" | b"*DSTMF" => Found { size, ..Found::of(EntryKind::File) },
        _ if name.ends_with(b"/") => Found::of(EntryKind::Directory),
        _ => Found::of(EntryKind::File),
    };
    (!name.is_empty()).then_some(Line { name, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (&str, EntryKind, Option<u64>) {
        let Line { name, found } = line(text.as_bytes()).unwrap_or_else(|| panic!("{text}"));
        (std::str::from_utf8(name).unwrap(), found.kind, found.size)
    }

    #[test]
    fn lines_of_vms_are_read() {
        for (text, name) in [
            ("file;1       155   2-JUL-2003 10:30:13.64", "file"),
            ("NO.TIME;1    2/8    7-JAN-2000    [IV2_ABC]   (RWED,RWED,RE,)", "NO.TIME"),
            ("MONTH.TXT;12    6/8    15-JUI-2002    PRONAS   (RWED,RWED,RE,)", "MONTH.TXT"),
            ("ORDER;1   [SUMMARY]    1/3     2-AUG-2006 13:05  (RWE,RWE,RE,)", "ORDER"),
            ("ORDER;1       17-JUN-1994 17:25:37     6308/13     (RWED,RWED,R,)", "ORDER"),
            ("A;B;1 2KB 23-SEP-2005 14:57:07.27", "A;B"),
        ] {
            assert_eq!(read(text), (name, EntryKind::File, None), "{text}");
        }
        let directory = "CORE.DIR;1          1  8-SEP-1996 16:09 [SYSTEM] (RWE,RWE,RE,RE)";
        assert_eq!(read(directory), ("CORE", EntryKind::Directory, None));
    }

    #[test]
    fn lines_of_mvs_are_read() {
        for (text, kind) in [
            ("WYOSPT 3420   2003/05/21  1  200  FB      80  8053  PS  A.B", EntryKind::File),
            ("WYOSPT 3420   2003/05/21  1 ????  FB      80  8053  PS  A.B", EntryKind::File),
            ("WPTA01 3290   2004/03/04  1    3  FB      80  3125  PO  A.B", EntryKind::Directory),
            ("NRP004 3390   **NONE**    1   15  NONE     0     0  PO  A.B", EntryKind::Directory),
            ("TSO005 3390   2005/06/06 213000 U 0 27998 PO A.B", EntryKind::Directory),
            ("WYOSPT 3420   2003/05/21  1 3 U 6447    6447  PO-E A.B", EntryKind::Directory),
            ("TSO004 3390   VSAM A.B", EntryKind::Special(SpecialKind::Unknown)),
            ("Migrated                                 A.B", EntryKind::File),
            ("V43525 Tape                              A.B", EntryKind::File),
            ("A.B 01.01 2004/06/22 2004/06/22 16:32   128   128    0 BOBY12", EntryKind::File),
            ("A.B 00B308 000411  00 FO                31    ANY", EntryKind::File),
        ] {
            assert_eq!(read(text), ("A.B", kind, None), "{text}");
        }
    }

    #[test]
    fn lines_of_os_400_and_non_stop_are_read() {
        for (text, name, kind, size) in [
            (
                "QSYS            77824 02/23/00 15:09:55 *DIR name/",
                "name/",
                EntryKind::Directory,
                None,
            ),
            (
                "QSYS            77824 23/02/00 15:09:55 *STMF a name",
                "a name",
                EntryKind::File,
                Some(77824),
            ),
            (
                "QPGMR           36864 18.09.06 14:21:26 *FILE      A.FILE",
                "A.FILE",
                EntryKind::File,
                None,
            ),
            (
                "QPGMR                                   *MEM       A.FILE/B.MBR",
                "A.FILE/B.MBR",
                EntryKind::File,
                None,
            ),
            ("NAME 101 528 6-Apr-07 14:21:18 255, 0 \"oooo\"", "NAME", EntryKind::File, Some(528)),
            ("NAME 101 528 6-Apr-07 14:21:18 255,255 \"oooo\"", "NAME", EntryKind::File, Some(528)),
        ] {
            assert_eq!(read(text), (name, kind, size), "{text}");
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for text in [
            "",
            "a",
            "a b",
            "a b c",
            "a;1",
            "a;x 1 2-JUL-2003",
            "ls: -a: No such file",
            "a * b c *X d",
            "hello *FILE x",
            "Insert Tape now",
        ] {
            assert_eq!(line(text.as_bytes()), None, "{text}");
        }
    }
}
