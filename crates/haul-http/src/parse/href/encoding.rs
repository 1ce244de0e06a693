//! Percent-encoding (RFC 3986, section 2.1) of paths.

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

/// What is encoded in a path: all but `pchar` and `/` (RFC 3986, section 3.3).
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

/// The same for a target that is encoded already, with its query: only what must not be in a
/// request line at all.
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

/// A path as it stands in a request; `/` stays.
pub fn encode_path(path: &[u8]) -> String {
    percent_encode(path, NOT_PATH).to_string()
}

/// What was encoded stays, what should have been is encoded now.
pub(super) fn encode_target(target: &str) -> String {
    percent_encode(target.as_bytes(), NOT_TARGET).to_string()
}

/// The bytes; `None` if there is a `%` without two hexadecimal digits. A `+` is a `+`.
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

/// The same for one component of a path, as a name: what no name can have (`/` and NUL) stays encoded.
pub fn decode_name(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(3).position(is_kept) {
        name.extend(decode(&rest[..at])?);
        name.extend_from_slice(&rest[at..at + 3]);
        rest = &rest[at + 3..];
    }
    name.extend(decode(rest)?);
    Some(name)
}

fn is_kept(escape: &[u8]) -> bool {
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
