//! From statuses to haul's error.

use haul_storage::{Error, ErrorKind, Result};

use crate::codec::{Attrs, Handle, Name, Response, Status};

/// The kind of error that a status stands for.
pub(super) const fn kind_of(status: Status) -> ErrorKind {
    match status {
        Status::NoSuchFile => ErrorKind::NotFound,
        Status::PermissionDenied => ErrorKind::PermissionDenied,
        Status::NoConnection | Status::ConnectionLost => ErrorKind::Unreachable,
        Status::Unsupported => ErrorKind::Unsupported,
        // The numbers of versions 4 to 6, which some servers send to everybody
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

/// The error that a status is, with the server's words if they say more than its number.
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

/// That everything went well.
pub(super) fn done(operation: &'static str, response: Response) -> Result<()> {
    match response {
        Response::Status { status: Status::Ok, .. } => Ok(()),
        other => Err(unexpected(operation, other)),
    }
}

/// The handle that was asked for.
pub(super) fn handle(operation: &'static str, response: Response) -> Result<Handle> {
    match response {
        Response::Handle(handle) => Ok(handle),
        other => Err(unexpected(operation, other)),
    }
}

/// The attributes that were asked for.
pub(super) fn attrs(operation: &'static str, response: Response) -> Result<Attrs> {
    match response {
        Response::Attrs(attrs) => Ok(attrs),
        other => Err(unexpected(operation, other)),
    }
}

/// The one name that was asked for.
pub(super) fn one_name(operation: &'static str, response: Response) -> Result<Name> {
    match response {
        Response::Names(mut names) if names.len() == 1 => Ok(names.remove(0)),
        other => Err(unexpected(operation, other)),
    }
}

/// What an answer that is not the wanted one means.
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
