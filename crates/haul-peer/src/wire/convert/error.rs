//! Errors, without their location: the client adds that of its request.

use haul_storage::{Error, ErrorKind, Retry, text};

use super::super::messages::{self, code};
use super::TEXT_MAX;

/// Operations as the errors of storages name them. Not all are listed.
const OPERATIONS: &[&str] = &[
    "access",
    "access the file",
    "access the journal",
    "authenticate",
    "back up",
    "change",
    "change the share",
    "check",
    "commit",
    "compare",
    "connect",
    "copy",
    "create",
    "create directory",
    "create link",
    "delete",
    "execute the request",
    "find",
    "find data",
    "find room",
    "hash",
    "keep space free",
    "list",
    "listen",
    "lock",
    "log in",
    "move",
    "name the part file",
    "negotiate TLS",
    "open",
    "read",
    "read a response",
    "read back",
    "read extended attributes",
    "read metadata",
    "read the digest",
    "read the free space",
    "remove",
    "remove part file",
    "remove the journal",
    "rename",
    "replace",
    "reserve space",
    "resolve",
    "serve",
    "set attributes",
    "set extended attributes",
    "set metadata",
    "set mode",
    "set owner",
    "set time",
    "start a thread",
    "start the journal",
    "stat",
    "sync",
    "sync directory",
    "sync the journal",
    "understand the peer",
    "verify",
    "wait",
    "write",
    "write the journal",
];

/// The operation with this name. Errors hold static text, so a name that is not listed becomes a general one.
pub fn operation(name: &str) -> &'static str {
    OPERATIONS.iter().copied().find(|known| *known == name).unwrap_or("complete the request")
}

/// At most [`TEXT_MAX`] bytes of a text; a longer one is cut at a character and ends with an ellipsis.
pub fn clipped(text: &str) -> String {
    if text.len() <= TEXT_MAX {
        return text.to_owned();
    }
    let ellipsis = '…';
    let mut end = TEXT_MAX - ellipsis.len_utf8();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ellipsis}", &text[..end])
}

/// Cause and hint are truncated by [`clipped`].
impl From<&Error> for messages::Error {
    fn from(error: &Error) -> Self {
        Self {
            kind: kind_to(error.kind()).number(),
            retry: retry_to(error.retry()).number(),
            operation: error.operation().to_owned(),
            cause: clipped(&error.cause()),
            hint: error.hint().map(clipped),
        }
    }
}

/// Never fails: unknown values become general ones, and long texts are truncated. The hint is escaped here,
/// the cause where it is shown.
impl From<messages::Error> for Error {
    fn from(error: messages::Error) -> Self {
        let kind = code::ErrorKind::of(error.kind).map_or(ErrorKind::Other, kind_from);
        let mut result = Self::new(kind, operation(&error.operation));
        if let Some(retry) = code::Retry::of(error.retry) {
            result = result.with_retry(retry_from(retry));
        }
        if !error.cause.is_empty() {
            result = result.because(clipped(&error.cause));
        }
        match error.hint {
            Some(hint) => result.hinting(text::line(&clipped(&hint))),
            None => result,
        }
    }
}

const fn kind_to(kind: ErrorKind) -> code::ErrorKind {
    match kind {
        ErrorKind::NotFound => code::ErrorKind::NotFound,
        ErrorKind::PermissionDenied => code::ErrorKind::PermissionDenied,
        ErrorKind::AlreadyExists => code::ErrorKind::AlreadyExists,
        ErrorKind::IsADirectory => code::ErrorKind::IsADirectory,
        ErrorKind::NotADirectory => code::ErrorKind::NotADirectory,
        ErrorKind::NotEmpty => code::ErrorKind::NotEmpty,
        ErrorKind::NoSpace => code::ErrorKind::NoSpace,
        ErrorKind::Changed => code::ErrorKind::Changed,
        ErrorKind::Corrupt => code::ErrorKind::Corrupt,
        ErrorKind::Unsupported => code::ErrorKind::Unsupported,
        ErrorKind::Unauthenticated => code::ErrorKind::Unauthenticated,
        ErrorKind::Unreachable => code::ErrorKind::Unreachable,
        ErrorKind::Busy => code::ErrorKind::Busy,
        ErrorKind::Protocol => code::ErrorKind::Protocol,
        ErrorKind::Interrupted => code::ErrorKind::Interrupted,
        ErrorKind::InvalidInput => code::ErrorKind::InvalidInput,
        ErrorKind::Io => code::ErrorKind::Io,
        _ => code::ErrorKind::Other,
    }
}

const fn kind_from(kind: code::ErrorKind) -> ErrorKind {
    match kind {
        code::ErrorKind::NotFound => ErrorKind::NotFound,
        code::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        code::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        code::ErrorKind::IsADirectory => ErrorKind::IsADirectory,
        code::ErrorKind::NotADirectory => ErrorKind::NotADirectory,
        code::ErrorKind::NotEmpty => ErrorKind::NotEmpty,
        code::ErrorKind::NoSpace => ErrorKind::NoSpace,
        code::ErrorKind::Changed => ErrorKind::Changed,
        code::ErrorKind::Corrupt => ErrorKind::Corrupt,
        code::ErrorKind::Unsupported => ErrorKind::Unsupported,
        code::ErrorKind::Unauthenticated => ErrorKind::Unauthenticated,
        code::ErrorKind::Unreachable => ErrorKind::Unreachable,
        code::ErrorKind::Busy => ErrorKind::Busy,
        code::ErrorKind::Protocol => ErrorKind::Protocol,
        code::ErrorKind::Interrupted => ErrorKind::Interrupted,
        code::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
        code::ErrorKind::Io => ErrorKind::Io,
        code::ErrorKind::Other => ErrorKind::Other,
    }
}

const fn retry_to(retry: Retry) -> code::Retry {
    match retry {
        Retry::Never => code::Retry::Never,
        Retry::Later => code::Retry::Later,
        Retry::FromStart => code::Retry::FromStart,
    }
}

const fn retry_from(retry: code::Retry) -> Retry {
    match retry {
        code::Retry::Never => Retry::Never,
        code::Retry::Later => Retry::Later,
        code::Retry::FromStart => Retry::FromStart,
    }
}
