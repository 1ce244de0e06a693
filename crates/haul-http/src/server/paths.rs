//! Comparison of paths as clients write them.

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
