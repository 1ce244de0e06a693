//! One line of a manifest, read and written.
//!
//! | form | written by |
//! |---|---|
//! | `HEX  NAME` | `sha256sum`, `b3sum` |
//! | `HEX *NAME` | `sha256sum --binary` |
//! | `HEX NAME` | `md5 -r` and the like on the BSDs |
//! | `SHA256 (NAME) = HEX`, `BLAKE3 (NAME) = HEX` | `sha256sum --tag`, `b3sum --tag`, the BSDs |
//! | `SHA256(NAME)= HEX`, `SHA2-256(NAME)= HEX` | `openssl dgst` before 3.0, and since |
//!
//! Lines of the tagged forms may have other digests, or sizes (`SIZE (NAME) = 4`, distinfo of the BSDs).
//! haul cannot check those; `sha256sum -c` skips them as well.
//!
//! In GNU coreutils and `b3sum` a line that starts with `\` has `\n`, `\r` and `\\` in its name for
//! line feed, carriage return and backslash (GNU coreutils manual, "md5sum invocation"). Lines that
//! start with `#` are comments, to GNU at least.

use std::fmt;

use haul_storage::{DigestKind, RelPath, RelPathError};

use crate::digest::Digest;

const HEX_LENGTH: usize = 64;

/// The content of a line: a name as written (escapes resolved), and a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Bytes, not text, and not to be trusted yet: see [`listed_path`].
    pub name: Vec<u8>,
    /// The digest that the file should have.
    pub digest: Digest,
}

/// Why a line has no digest that haul can check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineError {
    /// It has none of the forms of a manifest line.
    Form,
    /// Its escaped name has an invalid `\` sequence.
    Escape,
    /// It is longer than any valid line.
    TooLong,
    /// It has a digest that haul does not compute, or something else, such as a size.
    Other,
    /// It belongs to the frame of a PGP signature, not to the list.
    Signature,
    /// A PGP signature begins there and does not end.
    UnendedSignature,
    /// Its digest is of a kind that this manifest does not list.
    Kind(DigestKind),
    /// Its name is no path below the directory that the manifest is about.
    Name(RelPathError),
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form => f.write_str("is not a digest and a name"),
            Self::Escape => f.write_str("has an invalid '\\' escape in its name"),
            Self::TooLong => f.write_str("is too long"),
            Self::Other => f.write_str("has neither a SHA-256 nor a BLAKE3 digest"),
            Self::Signature => f.write_str("belongs to a PGP signature"),
            Self::UnendedSignature => f.write_str("begins a PGP signature that does not end"),
            Self::Kind(kind) => write!(f, "has a {} digest", kind.name()),
            Self::Name(RelPathError::EmptyComponent) => {
                f.write_str("has a name that is absolute or ends with '/'")
            }
            Self::Name(error) => write!(f, "has a name that {error}"),
        }
    }
}

impl std::error::Error for LineError {}

/// Parses one line, without its line feed. `Ok(None)` for an empty line or a comment. A digest without
/// a tag is taken to be of `kind`.
///
/// # Errors
/// If it is not a digest and a name.
pub fn parse_line(line: &[u8], kind: DigestKind) -> Result<Option<Listed>, LineError> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let line = line.trim_ascii_start();
    let (escaped, line) = match line.strip_prefix(b"\\") {
        Some(line) => (true, line),
        None => (false, line),
    };
    let found = parse_plain(line, kind).or_else(|| parse_tagged(line));
    let Some((name, digest)) = found else {
        return Err(if is_of_something_else(line) { LineError::Other } else { LineError::Form });
    };
    if name.is_empty() {
        return Err(LineError::Form);
    }
    let name = if escaped { unescaped(name)? } else { name.to_vec() };
    Ok(Some(Listed { name, digest }))
}

/// The line for a file, with its line feed, as `sha256sum` and `b3sum` would write it. A file called `-` is `./-`,
/// since their `--check` reads standard input for `-`.
pub fn format_line(path: &RelPath, digest: &Digest) -> Vec<u8> {
    let name = path.as_bytes();
    let mut line = Vec::with_capacity(HEX_LENGTH + 4 + name.len());
    let escape = name.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b'\\'));
    if escape {
        line.push(b'\\');
    }
    line.extend_from_slice(digest.to_string().as_bytes());
    line.extend_from_slice(if name == b"-" { b"  ./" } else { b"  " });
    for byte in name {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\\' => line.extend_from_slice(b"\\\\"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

/// The path that a listed name stands for, without `./` and doubled slashes.
///
/// # Errors
/// If the name is absolute or contains `..`, which could lead anywhere, or cannot be a file's (`.`, `a/`, NUL).
pub fn listed_path(name: &[u8]) -> Result<RelPath, LineError> {
    if name.starts_with(b"/") || name.ends_with(b"/") {
        return Err(LineError::Name(RelPathError::EmptyComponent));
    }
    let mut path = Vec::with_capacity(name.len());
    for component in name.split(|byte| *byte == b'/') {
        if component.is_empty() || component == b"." {
            continue;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(component);
    }
    if path.is_empty() {
        return Err(LineError::Name(RelPathError::DotComponent));
    }
    RelPath::parse(path).map_err(LineError::Name)
}

/// `HEX  NAME` and its variants. After one blank, a second one or a `*` is a marker, not part of the
/// name.
fn parse_plain(line: &[u8], kind: DigestKind) -> Option<(&[u8], Digest)> {
    let (hex, rest) = line.split_at_checked(HEX_LENGTH)?;
    let digest = Digest::from_hex(kind, hex)?;
    let rest = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"\t"))?;
    let name = match rest {
        [b' ' | b'*', name @ ..] if !name.is_empty() => name,
        name => name,
    };
    Some((name, digest))
}

/// `KIND (NAME) = HEX`. The name may contain `) = `, so its end is searched for from the right.
fn parse_tagged(line: &[u8]) -> Option<(&[u8], Digest)> {
    let (kind, rest) = split_tag(line)?;
    let kind = kind?;
    let rest = rest.trim_ascii_end();
    let (rest, hex) = rest.split_at_checked(rest.len().checked_sub(HEX_LENGTH)?)?;
    let name = rest.trim_ascii_end().strip_suffix(b"=")?.trim_ascii_end().strip_suffix(b")")?;
    Some((name, Digest::from_hex(kind, hex)?))
}

/// The digest of a tag (`None` if haul does not compute it), and what follows the parenthesis after it.
fn split_tag(line: &[u8]) -> Option<(Option<DigestKind>, &[u8])> {
    let is_of_tag = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'/');
    let end = line.iter().position(|byte| !is_of_tag(byte)).filter(|end| *end > 0)?;
    let (tag, rest) = line.split_at(end);
    let kind = match tag.to_ascii_uppercase().as_slice() {
        b"SHA256" | b"SHA2-256" => Some(DigestKind::Sha256),
        b"BLAKE3" => Some(DigestKind::Blake3),
        _ => None,
    };
    let rest = rest.strip_prefix(b" ").unwrap_or(rest).strip_prefix(b"(")?;
    Some((kind, rest))
}

/// Whether a line is `TAG (NAME) = VALUE` of a tag that haul does not know, or the `TIMESTAMP = N` of a distinfo.
fn is_of_something_else(line: &[u8]) -> bool {
    if let Some(number) = line.strip_prefix(b"TIMESTAMP = ") {
        return !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    }
    let Some((None, rest)) = split_tag(line) else { return false };
    // Numbers, hex and base64.
    let is_of_value =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let rest = rest.trim_ascii_end();
    let value = rest.iter().rev().take_while(|byte| is_of_value(byte)).count();
    let name = rest[..rest.len() - value].trim_ascii_end();
    let name = name.strip_suffix(b"=").unwrap_or(name).trim_ascii_end();
    let has_value = rest[rest.len() - value..].iter().any(u8::is_ascii_alphanumeric);
    has_value && name.strip_suffix(b")").is_some_and(|name| !name.is_empty())
}

fn unescaped(name: &[u8]) -> Result<Vec<u8>, LineError> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        plain.push(match (byte, *byte == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(b'\\') => b'\\',
                _ => return Err(LineError::Escape),
            },
            (byte, false) => *byte,
        });
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEX: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn name_of(line: &str) -> Result<Option<Vec<u8>>, LineError> {
        let line = line.replace("HEX", HEX);
        let listed = parse_line(line.as_bytes(), DigestKind::Sha256)?;
        Ok(listed.map(|listed| {
            assert_eq!(listed.digest.to_string(), HEX);
            listed.name
        }))
    }

    fn reads(line: &str, name: &str) {
        assert_eq!(name_of(line), Ok(Some(name.as_bytes().to_vec())), "{line:?}");
    }

    #[test]
    fn every_form_is_read() {
        reads("HEX  a", "a");
        reads("HEX *a", "a");
        reads("HEX a", "a");
        reads("HEX  a\r", "a");
        reads("SHA256 (a) = HEX", "a");
        reads("SHA256(a)= HEX", "a");
        reads("SHA2-256(a)= HEX", "a");
        reads("sha256 (a) = HEX", "a");
        reads("SHA256 (a (1).iso) = HEX", "a (1).iso");
        reads("BLAKE3 (a) = HEX\r", "a");
        assert_eq!(name_of(&format!("{}  a", HEX.to_uppercase())), Ok(Some(b"a".to_vec())));
    }

    #[test]
    fn characters_that_look_like_markers_stay_in_names() {
        reads("HEX   a", " a");
        reads("HEX  *a", "*a");
        reads("HEX **a", "*a");
        reads("HEX  -a", "-a");
        reads("HEX  a ", "a ");
        reads("HEX  a) = HEX", &format!("a) = {HEX}"));
        reads("SHA256 (a) = b) = HEX", "a) = b");
        reads("SHA256 ( a ) = HEX", " a ");
    }

    /// `sha256sum --check` reads standard input for a file called `-`, and would report that file as changed.
    #[test]
    fn a_file_called_like_standard_input_is_written_as_a_path() {
        let digest = Digest::of(DigestKind::Sha256, b"x");
        let line = |name: &str| format_line(&RelPath::parse(name).unwrap(), &digest);
        assert_eq!(line("-"), format!("{digest}  ./-\n").into_bytes());
        assert_eq!(line("a/-"), format!("{digest}  a/-\n").into_bytes());
        assert_eq!(line("-a"), format!("{digest}  -a\n").into_bytes());
    }

    #[test]
    fn escapes_are_resolved_only_in_lines_that_start_with_a_backslash() {
        reads("\\HEX  a\\nb\\\\c\\rd", "a\nb\\c\rd");
        reads("HEX  a\\nb", "a\\nb");
        reads("\\SHA256 (a\\nb) = HEX", "a\nb");
        assert_eq!(name_of("\\HEX  a\\tb"), Err(LineError::Escape));
        assert_eq!(name_of("\\HEX  a\\"), Err(LineError::Escape));
    }

    #[test]
    fn empty_lines_and_comments_list_nothing() {
        for line in ["", "\r", "# made by hand", "#"] {
            assert_eq!(name_of(line), Ok(None), "{line:?}");
        }
    }

    #[test]
    fn a_line_without_a_digest_and_a_name_is_an_error() {
        let short = &HEX[1..];
        let lines = [
            "a",
            "HEX",
            "HEX ",
            "HEXa",
            "HEXa  b",
            "MD5 (a) =",
            "SHA256 () = HEX",
            "a (b)",
            "MD5 () = 00",
        ];
        for line in lines {
            assert_eq!(name_of(line), Err(LineError::Form), "{line:?}");
        }
        assert_eq!(name_of(&format!("{short}  a")), Err(LineError::Form));
        assert_eq!(name_of(&format!("g{short}  a")), Err(LineError::Form));
        assert_eq!(name_of(&format!("SHA256 (a) = {short}")), Err(LineError::Form));
    }

    #[test]
    fn lines_with_other_digests_or_sizes_are_distinguished_from_invalid_ones() {
        for line in [
            "MD5 (a) = 00",
            "SHA512(a)= HEXHEX",
            "SHA2-512/256(a)= HEX",
            "SHA3-256(a)= HEX",
            "BLAKE2b-256 (a (1)) = HEX",
            "SIZE (a) = 4",
            "TIMESTAMP = 1700000000",
            "SHA1 (a) = 2jmj7l5rSw0yVb/vlWAYkK/YBwk=\r",
            "\\MD5 (a\\nb) = 00",
        ] {
            assert_eq!(name_of(line), Err(LineError::Other), "{line:?}");
        }
    }

    #[test]
    fn a_tag_determines_the_kind() {
        let line = format!("BLAKE3 (a) = {HEX}");
        let listed = parse_line(line.as_bytes(), DigestKind::Sha256).unwrap().unwrap();
        assert_eq!(listed.digest.kind, DigestKind::Blake3);
    }

    #[test]
    fn a_name_cannot_lead_out_of_the_directory() {
        let path = |name: &str| listed_path(name.as_bytes()).map(|path| path.to_string());
        assert_eq!(path("./a/b"), Ok("a/b".to_owned()));
        assert_eq!(path("a/./b//c"), Ok("a/b/c".to_owned()));
        for name in ["/etc/passwd", "../a", "a/../b", "..", ".", "a/", "", "./", "a\0b"] {
            assert!(matches!(path(name), Err(LineError::Name(_))), "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(line in prop::collection::vec(any::<u8>(), 0..200)) {
            for start in ["", HEX, "\\", "SHA256 ("] {
                let line = [start.as_bytes(), &line].concat();
                if let Ok(Some(listed)) = parse_line(&line, DigestKind::Blake3) {
                    drop(listed_path(&listed.name));
                }
            }
        }

        #[test]
        fn written_lines_are_parsed_back(name in prop::collection::vec(
            prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\\'), Just(b'\r'), Just(b' ')], 1..30,
        )) {
            prop_assume!(RelPath::parse(&name).is_ok());
            let digest = Digest::of(DigestKind::Sha256, &name);
            let line = format_line(&RelPath::parse(&name).unwrap(), &digest);
            let line = line.strip_suffix(b"\n").unwrap();
            prop_assert!(!line.contains(&b'\n'));
            let listed = parse_line(line, DigestKind::Sha256).unwrap().unwrap();
            let path = listed_path(&listed.name).unwrap();
            prop_assert_eq!(path.as_bytes(), &name);
            prop_assert_eq!(listed.digest, digest);
        }
    }
}
