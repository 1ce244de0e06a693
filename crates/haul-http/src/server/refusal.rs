//! Maps errors to statuses, and creates the responses that several modules return.

use std::io;

use dav_server::fs::FsError;
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use rustix::io::Errno;

use super::body::Body;

/// A response with a status and its reason phrase as text.
pub(super) fn status(status: StatusCode) -> Response<Body> {
    let words = status.canonical_reason().unwrap_or("refused");
    text(status, &format!("{} {words}\n", status.as_u16()))
}

/// A response with a status and a text for people.
pub(super) fn text(status: StatusCode, words: &str) -> Response<Body> {
    let mut response = Response::new(Body::text(words.to_owned()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

/// A response that names a violated condition of RFC 4918 (section 16).
pub(super) fn condition(status: StatusCode, name: &str) -> Response<Body> {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\"><D:{name}/></D:error>\n"
    );
    let mut response = text(status, &body);
    let xml = HeaderValue::from_static("application/xml; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, xml);
    response
}

/// The status for a system error.
pub(super) fn of(errno: Errno) -> StatusCode {
    match errno {
        Errno::NOENT | Errno::NOTDIR => StatusCode::NOT_FOUND,
        Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::BUSY | Errno::TXTBSY => {
            StatusCode::FORBIDDEN
        }
        Errno::NAMETOOLONG => StatusCode::URI_TOO_LONG,
        Errno::LOOP => StatusCode::NOT_FOUND,
        Errno::NOSPC | Errno::DQUOT => StatusCode::INSUFFICIENT_STORAGE,
        Errno::FBIG => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The error of `dav-server` for a system error.
pub(super) fn fs_error(errno: Errno) -> FsError {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => FsError::NotFound,
        Errno::EXIST | Errno::NOTEMPTY | Errno::ISDIR => FsError::Exists,
        Errno::NOSPC | Errno::DQUOT => FsError::InsufficientStorage,
        Errno::FBIG => FsError::TooLarge,
        Errno::NAMETOOLONG => FsError::PathTooLong,
        Errno::XDEV => FsError::IsRemote,
        Errno::PERM | Errno::ACCESS | Errno::ROFS | Errno::BUSY | Errno::TXTBSY | Errno::INVAL => {
            FsError::Forbidden
        }
        _ => FsError::GeneralFailure,
    }
}

/// The error of `dav-server` for a failed read or write.
pub(super) fn io_error(error: &io::Error) -> FsError {
    Errno::from_io_error(error).map_or(FsError::GeneralFailure, fs_error)
}
