//! A line of `MLSD` and `MLST` (RFC 3659, 7.2): `fact=value;fact=value; name`.

use haul_storage::{EntryKind, SpecialKind};

use super::line::{Found, Line, number};
use crate::wire::parse_time;

/// Parses a line with facts; `None` if it has none, one without `=`, or no type.
pub fn facts(line: &[u8]) -> Option<Line<'_>> {
    let (facts, name) = split(line)?;
    let mut found = Found::of(EntryKind::Special(SpecialKind::Unknown));
    let mut kind = None;
    for fact in facts.split(|byte| *byte == b';').filter(|fact| !fact.is_empty()) {
        let equals = fact.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (fact[..equals].to_ascii_lowercase(), &fact[equals + 1..]);
        match &key[..] {
            b"type" => kind = Some(kind_of(value)),
            b"size" => found.size = number(value),
            b"modify" => found.modified = parse_time(value),
            b"unix.mode" => found.mode = mode(value),
            _ => {}
        }
    }
    found.kind = kind?;
    Some(Line { name, found })
}

/// Splits facts from name. The name begins after the first `; `, since a value may contain a space (a group
/// called `domain users`). In drafts before the RFC the last fact had no semicolon; it is then one of those
/// whose values have no spaces.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    const WITHOUT_SPACES: [&[u8]; 5] = [b"type", b"size", b"modify", b"perm", b"unique"];
    let space = line.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
    let last = line[..space].rsplit(|byte| *byte == b';').next().unwrap_or_default();
    let key = last.split(|byte| *byte == b'=').next().unwrap_or_default();
    let ends =
        last.is_empty() || WITHOUT_SPACES.iter().any(|known| known.eq_ignore_ascii_case(key));
    if ends {
        return Some((&line[..space], &line[space + 1..]));
    }
    let end = line.windows(2).position(|part| part == b"; ")?;
    Some((&line[..end], &line[end + 2..]))
}

fn kind_of(value: &[u8]) -> EntryKind {
    let lower = value.to_ascii_lowercase();
    match &lower[..] {
        b"file" => EntryKind::File,
        // `cdir` is also the type in a reply to MLST for a directory.
        b"dir" | b"cdir" | b"pdir" => EntryKind::Directory,
        b"os.unix=socket" => EntryKind::Special(SpecialKind::Socket),
        b"os.unix=pipe" | b"os.unix=fifo" => EntryKind::Special(SpecialKind::Fifo),
        _ => link_target(value, &lower).unwrap_or(EntryKind::Special(SpecialKind::Unknown)),
    }
}

/// `OS.unix=slink:/target` (the RFC's own example). `OS.unix=symlink` has no target and cannot be copied.
fn link_target(value: &[u8], lower: &[u8]) -> Option<EntryKind> {
    let head = lower
        .strip_prefix(b"os.unix=slink:".as_slice())
        .or_else(|| lower.strip_prefix(b"os.unix=symlink:".as_slice()))?;
    let target = &value[value.len() - head.len()..];
    (!target.is_empty()).then(|| EntryKind::Symlink(target.to_vec()))
}

/// Permission bits in octal; some servers write them as Python does (`0o644`).
fn mode(value: &[u8]) -> Option<u32> {
    let digits = value.strip_prefix(b"0o").unwrap_or(value);
    let mode = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
    Some(mode & 0o7777)
}

#[cfg(test)]
mod tests {
    use haul_storage::Timestamp;

    use super::*;

    #[test]
    fn facts_are_read_in_any_case_and_order() {
        let line =
            b"Size=5000;Type=FILE;MODIFY=20010909014640.5;UNIX.mode=0o644;x=y;  two  spaces ";
        let Line { name, found } = facts(line).unwrap();
        assert_eq!(name, b" two  spaces ");
        assert_eq!(found.kind, EntryKind::File);
        assert_eq!(found.size, Some(5000));
        assert_eq!(found.modified, Some(Timestamp { seconds: 1_000_000_000, nanos: 0 }));
        assert_eq!(found.mode, Some(0o644));
    }

    #[test]
    fn a_value_may_contain_a_space_and_the_last_fact_may_lack_its_semicolon() {
        for (line, name) in [
            (
                "type=file;size=2;UNIX.groupname=domain users;modify=20240102030405; report; a.txt",
                "report; a.txt",
            ),
            ("UNIX.ownername=a b;type=file;size=2;  x", " x"),
            ("type=file no semicolon; x", "no semicolon; x"),
            ("modify=20090722092510;type=file;size=1365694195;\tadsl TV", "adsl TV"),
            ("type=file;size=2; =; x", "=; x"),
        ] {
            let read = facts(line.as_bytes()).unwrap();
            assert_eq!((read.name, read.found.kind), (name.as_bytes(), EntryKind::File), "{line}");
        }
    }

    #[test]
    fn a_link_is_a_link_only_with_a_target() {
        let kind = |line: &'static str| facts(line.as_bytes()).unwrap().found.kind;
        assert_eq!(kind("type=OS.unix=slink:/Etc; a"), EntryKind::Symlink(b"/Etc".to_vec()));
        let unknown = EntryKind::Special(SpecialKind::Unknown);
        assert_eq!(kind("type=OS.unix=symlink; a"), unknown);
        assert_eq!(kind("type=OS.unix=chr-1/3; a"), unknown);
    }

    #[test]
    fn a_line_without_facts_is_refused() {
        for line in ["", "name", "type=file;name", "size=5; name", "garbage here; x"] {
            assert_eq!(facts(line.as_bytes()), None, "{line}");
        }
    }
}
