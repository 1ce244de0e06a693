//! Paths as clients write them, and as links.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// What is escaped in a component of a link: every byte but the unreserved characters of RFC 3986 (letters, digits and
/// `-._~`).
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same in a path.
const ENCODED_IN_PATH: &AsciiSet = &ENCODED.remove(b'/');

/// A name as a component of a link.
pub(super) fn encoded_name(name: &[u8]) -> String {
    percent_encode(name, ENCODED).to_string()
}

/// A path as a link, with every byte of it; directories end with a slash.
pub(super) fn link(path: &[u8], is_directory: bool) -> String {
    let mut link = percent_encode(path, ENCODED_IN_PATH).to_string();
    if is_directory && !link.ends_with('/') {
        link.push('/');
    }
    link
}

/// Whether a path equals another one or is below it; neither ends with a slash, except for `/` itself.
pub(super) fn is_within(path: &[u8], directory: &[u8]) -> bool {
    directory == b"/"
        || path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// A path without its trailing slashes.
pub(super) fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    if end == 0 { b"/" } else { &path[..end] }
}
