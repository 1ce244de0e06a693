//! Names that file systems, protocols and programs tend to mishandle.

use icu_normalizer::DecomposingNormalizerBorrowed;

use crate::chance::Chance;

/// The names that a file system can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// Any bytes but `/` and NUL.
    Bytes,
    /// Valid UTF-8, so short that two names of one file, one of them haul's own, fit into one NTFS record. A
    /// rename between longer ones makes ntfs-3g 2022.10.3 lose the end of the name, or all of it (two plain
    /// renames in a row are enough).
    ShortText,
    /// Names that exfat-fuse accepts: no control characters, none of `"*/:<>?\|`, no trailing blank.
    Fat,
}

/// A few short names, so that different steps use the same ones.
const PLAIN: &[&str] = &[
    "a", "b", "c", "d", "e", "f", "data", "x.tmp", "y.tmp", "z.o", "build", "doc", "m.txt", "n.txt",
];

const TEXT: &[&str] = &[
    // Composed and decomposed forms of the same text.
    "\u{e4}",
    "a\u{308}",
    "\u{e9}t\u{e9}",
    "e\u{301}te\u{301}",
    "\u{ac00}",
    "\u{1100}\u{1161}",
    // Names that differ in case only; some fold to other lengths.
    "Readme",
    "README",
    "readme",
    "\u{c4}B",
    "\u{e4}b",
    "stra\u{df}e",
    "STRASSE",
    "\u{130}",
    "i\u{307}",
    // Other scripts, characters beyond the Basic Multilingual Plane, invisible ones.
    "\u{65e5}\u{672c}\u{8a9e}",
    "\u{1f600}",
    "\u{3a9}\u{3bc}",
    "\u{200f}rtl",
    "\u{feff}bom",
    // Options, globs, shells, URLs.
    "-rf",
    "--delete",
    "-",
    "~",
    "#a#",
    "%2F",
    "%",
    "a%20b",
    "a+b",
    "a&b=c",
    "[a]",
    "{x,y}",
    "$HOME",
    "'",
    "`id`",
    "!",
    "a;b",
    "a,b",
    "@x",
    "=",
    "^",
    "a b",
    "two  blanks",
    " lead",
    // Dots.
    ".hidden",
    "..a",
    "...",
    ".a.",
    "a.b.c",
    // Devices of DOS.
    "con",
    "NUL",
    "aux.txt",
    "lpt1",
];

/// Names that are not used with [`Alphabet::Fat`].
const ODD: &[&str] = &[
    "a.",
    "a..",
    "a ",
    "trail ",
    "*",
    "?",
    "\\",
    "a\\b",
    "a:b",
    "host:path",
    "\"",
    "<",
    ">",
    "|",
    "tab\t",
    "new\nline",
    "\nfirst",
    "cr\r",
    "\u{1}",
    "\u{7f}",
    "\u{1b}[31m",
    "\u{85}",
];

const BYTES: &[&[u8]] = &[
    b"\xff",
    b"caf\xe9",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\xf8\x88\x80\x80\x80",
    b"ok\xc3",
    b"\x80",
];

/// Names that haul uses or once used for part files, journals and old versions, and names that resemble them.
const LIKE_OWN: &[&str] = &[
    ".a.haul-part",
    ".b.haul-journal",
    ".c.haul-journa~",
    ".old-a.haul-part",
    "old-a",
    "old-b",
    "x.haul-part",
    ".haul-part",
    ".haul-journal",
    "..haul-part",
    ".1-0.a.haul-part",
    ".~tmp~",
    ".a.haul-part.haul-part",
];

/// Lengths around the limit of a name, and around the length from which the names of part files and
/// journals cannot contain the whole name (255 bytes less a dot and `.haul-part` or `.haul-journal`).
const LONG: &[usize] = &[128, 240, 241, 242, 243, 244, 245, 246, 254, 255];

/// A random name. `like_own` allows names that look like haul's own.
pub fn name(chance: &mut Chance, alphabet: Alphabet, like_own: bool) -> Vec<u8> {
    match chance.below(20) {
        0..8 => chance.pick(PLAIN).as_bytes().to_vec(),
        // FAT does not distinguish names that differ only in case.
        8..12 if alphabet == Alphabet::Fat => chance.pick(TEXT).to_lowercase().into_bytes(),
        8..12 => chance.pick(TEXT).as_bytes().to_vec(),
        12..14 if alphabet != Alphabet::Fat => chance.pick(ODD).as_bytes().to_vec(),
        14 if alphabet == Alphabet::Bytes => chance.pick(BYTES).to_vec(),
        15 if like_own => chance.pick(LIKE_OWN).as_bytes().to_vec(),
        16 => long(chance, alphabet),
        _ => format!("f{}", chance.below(40)).into_bytes(),
    }
}

/// The path under which a name-changing file system (`fuse/renaming.py`) finds an entry created as `path`.
pub fn canonical(path: &[u8]) -> Vec<u8> {
    let normalizer = const { DecomposingNormalizerBorrowed::new_nfd() };
    let component = |name: &[u8]| {
        let end =
            name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
        let name = if end == 0 { name } else { &name[..end] };
        let text = String::from_utf8_lossy(name);
        let small = normalizer.normalize(&text).to_lowercase();
        normalizer.normalize(&small).into_owned().into_bytes()
    };
    let components: Vec<Vec<u8>> = path.split(|byte| *byte == b'/').map(component).collect();
    components.join(&b'/')
}

/// A long name: a letter of one, two or three bytes, repeated. If it has one byte, the last letter may be another one.
fn long(chance: &mut Chance, alphabet: Alphabet) -> Vec<u8> {
    let length = if alphabet == Alphabet::ShortText { 100 } else { *chance.pick(LONG) };
    let letter = *chance.pick(&["l", "\u{e9}", "\u{65e5}"]);
    // FAT allows 255 UTF-16 units, others 255 bytes; these names stay within both limits.
    let mut name = letter.repeat(length / letter.len()).into_bytes();
    while name.len() < length {
        name.push(b'x');
    }
    // Only the end differs: truncated to the same head, two names would collide.
    if chance.one_in(2) && alphabet != Alphabet::Fat && letter == "l" {
        name[length - 1] = b'm';
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_names_have_one_canonical_form() {
        for (made, found) in [("A. .", "a"), ("\u{c4}b/X", "a\u{308}b/x"), ("...", "..."), ("", "")]
        {
            assert_eq!(canonical(made.as_bytes()), found.as_bytes());
        }
    }

    #[test]
    fn random_names_are_valid_in_every_alphabet() {
        let mut chance = Chance::new(1);
        for _ in 0..10_000 {
            for alphabet in [Alphabet::Bytes, Alphabet::ShortText, Alphabet::Fat] {
                let name = name(&mut chance, alphabet, true);
                assert!(!name.is_empty() && name.len() <= 255, "{name:?}");
                assert!(!name.contains(&b'/') && !name.contains(&0), "{name:?}");
                assert!(name != b"." && name != b"..");
                assert!(alphabet == Alphabet::Bytes || std::str::from_utf8(&name).is_ok());
                let is_refused =
                    |byte: &u8| byte.is_ascii_control() || b"\"*/:<>?\\|".contains(byte);
                let fits_fat = !name.iter().any(is_refused) && !name.ends_with(b" ");
                assert!(alphabet != Alphabet::Fat || fits_fat, "{name:?}");
            }
        }
    }
}
