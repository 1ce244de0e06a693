//! What is fuzzed: everything that decodes bytes from outside. Each function takes any bytes and
//! panics if a promise about them is broken. The fuzz targets call them, and so does the test that
//! goes over the committed corpus.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use haul_engine::journal::Record;
use haul_engine::manifest::parse_line;
use haul_storage::{DigestKind, Location, RelPath};

/// Records of a journal: whatever decodes, encodes to the same bytes.
pub fn journal(data: &[u8]) {
    let mut rest = data;
    while let Some((record, length)) = Record::decode(rest) {
        let mut again = Vec::new();
        record.encode(&mut again);
        assert!(
            again == rest[..length] || matches!(record, Record::OtherVersion(_)),
            "a record does not encode to what it was decoded from"
        );
        rest = &rest[length..];
    }
}

/// Lines of a manifest: a name that is accepted never leaves the directory.
pub fn manifest(data: &[u8]) {
    for line in data.split(|byte| *byte == b'\n') {
        for kind in [DigestKind::Sha256, DigestKind::Blake3] {
            drop(parse_line(line, kind));
        }
    }
    if let Ok(path) = RelPath::parse(data) {
        assert!(path.components().all(|name| name != b".." && name != b"." && !name.contains(&0)));
    }
}

/// Arguments: what parses can be shown, and what is shown is safe for a terminal.
pub fn location(data: &[u8]) {
    if let Ok(location) = Location::parse(OsStr::from_bytes(data)) {
        let shown = location.to_string();
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
    }
}
