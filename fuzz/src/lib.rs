//! What is fuzzed: everything that decodes bytes from outside. Each function takes any bytes and
//! panics if a promise about them is broken. The fuzz targets call them, and so does the test that
//! goes over the committed corpus.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use haul_engine::journal::Record;
use haul_engine::manifest::parse_line;
use haul_sftp::codec::{Deframer, Frame, Request, Response};
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

/// What a client sends: whatever decodes, encodes to something that decodes to the same.
pub fn sftp_request(data: &[u8]) {
    for frame in frames(data) {
        if let Ok((id, request)) = Request::decode(frame) {
            let again = whole(&request.encode(id), request.payload());
            let again = frames(&again).pop().map(Request::decode);
            assert!(again == Some(Ok((id, request))), "a request does not survive its encoding");
        }
    }
}

/// What a server sends: whatever decodes, encodes to something that decodes to the same.
pub fn sftp_response(data: &[u8]) {
    for frame in frames(data) {
        if let Ok((id, response)) = Response::decode(frame) {
            let again = whole(&response.encode(id), response.payload());
            let again = frames(&again).pop().map(Response::decode);
            assert!(again == Some(Ok((id, response))), "an answer does not survive its encoding");
        }
    }
}

/// The packets in `data`, up to the first that is not one.
fn frames(data: &[u8]) -> Vec<Frame> {
    let mut deframer = Deframer::new(1 << 16);
    deframer.push(data.to_vec().into());
    std::iter::from_fn(|| deframer.next_frame().ok().flatten()).collect()
}

fn whole(head: &[u8], payload: Option<&haul_storage::Block>) -> Vec<u8> {
    let payload = payload.map(haul_storage::Block::pieces).unwrap_or_default();
    [head].into_iter().chain(payload.iter().map(|piece| &piece[..])).collect::<Vec<_>>().concat()
}
