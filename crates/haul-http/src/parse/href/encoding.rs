//! Percent-encoding (RFC 3986, section 2.1) of paths.

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

/// The characters to encode in a path: all but `pchar` and `/` (RFC 3986, section 3.3).
const NOT_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The same for a target (path and query) that is encoded already: only characters that a request line must
/// not contain.
const NOT_TARGET: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Encodes a path for a request; `/` stays.
pub fn encode_path(path: &[u8]) -> String {
    percent_encode(path, NOT_PATH).to_string()
}

/// Encodes only what a target must not contain; existing escapes stay.
pub(super) fn encode_target(target: &str) -> String {
    percent_encode(target.as_bytes(), NOT_TARGET).to_string()
}

/// Decodes percent-encoding; `None` if a `%` has no two hexadecimal digits. A `+` stays a `+`.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first == b'%' {
            let digits = tail.first_chunk::<2>()?;
            decoded.push(hex(digits[0])? << 4 | hex(digits[1])?);
            rest = &tail[2..];
        } else {
            decoded.push(*first);
        }
    }
    Some(decoded)
}

/// The same for one path component as a name: `/` and NUL, which no name can contain, stay encoded.
pub fn decode_name(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(3).position(stays_encoded) {
        name.extend(decode(&rest[..at])?);
        name.extend_from_slice(&rest[at..at + 3]);
        rest = &rest[at + 3..];
    }
    name.extend(decode(rest)?);
    Some(name)
}

fn stays_encoded(escape: &[u8]) -> bool {
    escape.eq_ignore_ascii_case(b"%2f") || escape == b"%00"
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
