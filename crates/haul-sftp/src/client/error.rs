//! Converts statuses to haul's errors.

use haul_storage::{Error, ErrorKind, Result};

use crate::codec::{Attrs, Handle, Name, Response, Status};

/// The error kind of a status.
pub(super) const fn kind_of(status: Status) -> ErrorKind {
    match status {
        Status::NoSuchFile => ErrorKind::NotFound,
        Status::PermissionDenied => ErrorKind::PermissionDenied,
        Status::NoConnection | Status::ConnectionLost => ErrorKind::Unreachable,
        Status::Unsupported => ErrorKind::Unsupported,
        // Codes of versions 4 to 6, which some servers send regardless of the version
        // (draft-ietf-secsh-filexfer-13, section 9.1).
        Status::Other(11) => ErrorKind::AlreadyExists,
        Status::Other(12) => ErrorKind::PermissionDenied,
        Status::Other(10) => ErrorKind::NotFound,
        Status::Other(14 | 15) => ErrorKind::NoSpace,
        Status::Other(18) => ErrorKind::NotEmpty,
        Status::Other(19) => ErrorKind::NotADirectory,
        Status::Other(24) => ErrorKind::IsADirectory,
        Status::BadMessage | Status::Ok | Status::Eof => ErrorKind::Protocol,
        Status::Failure | Status::Other(_) => ErrorKind::Other,
    }
}

/// The error for a status, with the server's message if it differs from the name of the code.
pub(super) fn failure(operation: &'static str, status: Status, message: &[u8]) -> Error {
    let words = String::from_utf8_lossy(message);
    let words: String = words.chars().filter(|c| !c.is_control()).take(200).collect();
    let error = Error::new(kind_of(status), operation);
    if words.is_empty() || words.eq_ignore_ascii_case(&status.to_string()) {
        error.because(format!("the server returned: {status}"))
    } else {
        error.because(format!("the server returned: {words}"))
    }
}

/// Checks for `Status::Ok`.
pub(super) fn done(operation: &'static str, response: Response) -> Result<()> {
    match response {
        Response::Status { status: Status::Ok, .. } => Ok(()),
        other => Err(unexpected(operation, other)),
    }
}

/// Expects a handle.
pub(super) fn handle(operation: &'static str, response: Response) -> Result<Handle> {
    match response {
        Response::Handle(handle) => Ok(handle),
        other => Err(unexpected(operation, other)),
    }
}

/// Expects attributes.
pub(super) fn attrs(operation: &'static str, response: Response) -> Result<Attrs> {
    match response {
        Response::Attrs(attrs) => Ok(attrs),
        other => Err(unexpected(operation, other)),
    }
}

/// Expects one name.
pub(super) fn one_name(operation: &'static str, response: Response) -> Result<Name> {
    match response {
        Response::Names(mut names) if names.len() == 1 => Ok(names.remove(0)),
        other => Err(unexpected(operation, other)),
    }
}

/// The error for a response of another type than expected.
pub(super) fn unexpected(operation: &'static str, response: Response) -> Error {
    let what = match response {
        Response::Status { status, message } => return failure(operation, status, &message),
        Response::Version { .. } => "a greeting",
        Response::Handle(_) => "a handle",
        Response::Data(_) => "data",
        Response::Names(_) | Response::ManyNames(_) => "names",
        Response::Attrs(_) => "attributes",
        Response::Extended(_) => "an extended reply",
    };
    Error::new(ErrorKind::Protocol, operation).because(format!("the server responded with {what}"))
}
