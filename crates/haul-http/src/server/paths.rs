//! Paths as clients name them, compared.

/// Whether a path is another one or below it; neither has a slash at its end.
pub(super) fn is_within(path: &[u8], directory: &[u8]) -> bool {
    directory == b"/"
        || path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// A path without slashes at its end.
pub(super) fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    if end == 0 { b"/" } else { &path[..end] }
}
