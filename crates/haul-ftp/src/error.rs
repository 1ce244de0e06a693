//! Maps refusals by the server to an [`Error`].
//!
//! FTP has few codes: 550 is "no such file" as well as "permission denied" and "directory not empty".
//! On many servers the text tells them apart; otherwise the caller stats the path
//! ([`Inner::explain`](crate::inner::Inner::explain)). Words in names that the server quotes do not
//! count ([`Reply::mentions`]).

use std::io;

use haul_storage::{Error, ErrorKind, Result, Retry};

use crate::wire::Reply;

/// The error that a reply stands for.
pub(crate) fn refused(operation: &'static str, reply: &Reply) -> Error {
    let (kind, retry) = kind_of(reply);
    Error::new(kind, operation).because(format!("the server replied: {reply}")).with_retry(retry)
}

/// Fails unless the reply reports success.
pub(crate) fn done(operation: &'static str, reply: &Reply) -> Result<()> {
    if reply.is_done() { Ok(()) } else { Err(refused(operation, reply)) }
}

/// The server violates the protocol.
pub(crate) fn protocol(operation: &'static str, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, operation).because(cause)
}

/// The connection was lost: a retry on another one may succeed.
pub(crate) fn lost(operation: &'static str, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unreachable, operation).because(cause)
}

/// An I/O error of a connection. Whatever it is, a retry on another connection may succeed.
pub(crate) fn broken(operation: &'static str, error: io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, operation).with_source(error)
}

/// Whether the server refuses because it has too many connections.
pub(crate) fn is_too_many(reply: &Reply) -> bool {
    const WORDS: [&str; 4] = ["too many", "maximum number", "connection limit", "max clients"];
    let has_words = || WORDS.iter().any(|words| reply.mentions(words));
    match reply.code() {
        421 => true,
        // A full disk or a quota.
        452 | 552 => false,
        // About a file, whose size may be more than the maximum allowed.
        450 | 451 | 550 | 551 | 553 => has_words(),
        _ => !reply.is_done() && (has_words() || reply.mentions("maximum allowed")),
    }
}

/// Whether a data connection was refused because it did not resume the control connection's TLS
/// session. A new lane has a new session.
pub(crate) fn wants_resumption(reply: &Reply) -> bool {
    reply.code() == 522 && reply.mentions("reuse")
}

/// Whether the server's process for this connection has crashed: vsftpd sends `500 OOPS` before it exits,
/// whatever the command was. Another connection has another process.
/// During login it reports mistakes in its configuration this way, which every connection runs into.
pub(crate) fn has_crashed(reply: &Reply) -> bool {
    reply.code() == 500 && reply.text().starts_with("OOPS")
}

fn kind_of(reply: &Reply) -> (ErrorKind, Retry) {
    if let Some(kind) = by_words(reply) {
        return (kind, Retry::Never);
    }
    if is_too_many(reply) {
        return (ErrorKind::Busy, Retry::Later);
    }
    if wants_resumption(reply) {
        return (ErrorKind::Unreachable, Retry::Later);
    }
    match reply.code() {
        425 | 426 => (ErrorKind::Unreachable, Retry::Later),
        430 | 530 | 331 | 332 | 532 => (ErrorKind::Unauthenticated, Retry::Never),
        452 | 552 => (ErrorKind::NoSpace, Retry::Never),
        451 => (ErrorKind::Io, Retry::Later),
        400..=499 => (ErrorKind::Busy, Retry::Later),
        553 => (ErrorKind::PermissionDenied, Retry::Never),
        521 => (ErrorKind::AlreadyExists, Retry::Never),
        500 | 502..=504 | 522 | 533..=536 => (ErrorKind::Unsupported, Retry::Never),
        501 => (ErrorKind::InvalidInput, Retry::Never),
        500..=599 => (ErrorKind::Other, Retry::Never),
        _ => (ErrorKind::Protocol, Retry::Never),
    }
}

/// The kind by the texts of strerror(3) and of Windows, which most servers pass on.
fn by_words(reply: &Reply) -> Option<ErrorKind> {
    const WORDS: [(&str, ErrorKind); 17] = [
        ("no such file", ErrorKind::NotFound),
        ("cannot find", ErrorKind::NotFound),
        ("not found", ErrorKind::NotFound),
        ("permission denied", ErrorKind::PermissionDenied),
        ("access is denied", ErrorKind::PermissionDenied),
        ("not enough privileges", ErrorKind::PermissionDenied),
        ("read-only file system", ErrorKind::PermissionDenied),
        ("file exists", ErrorKind::AlreadyExists),
        ("already exists", ErrorKind::AlreadyExists),
        ("not empty", ErrorKind::NotEmpty),
        ("not a directory", ErrorKind::NotADirectory),
        ("is a directory", ErrorKind::IsADirectory),
        ("no space left", ErrorKind::NoSpace),
        ("quota exceeded", ErrorKind::NoSpace),
        ("file name too long", ErrorKind::InvalidInput),
        // Not too many connections.
        ("too many levels of symbolic links", ErrorKind::Io),
        ("too many links", ErrorKind::Io),
    ];
    if !matches!(reply.code(), 450..=452 | 550..=553) {
        return None;
    }
    WORDS.iter().find(|(words, _)| reply.mentions(words)).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ReplyParser;

    fn error(line: &str) -> Error {
        error_about("", line)
    }

    /// The error of a reply to a command with this argument.
    fn error_about(argument: &str, line: &str) -> Error {
        let reply = ReplyParser::default().line(line.as_bytes()).unwrap().unwrap();
        refused("store", &reply.about(argument.as_bytes().to_vec()))
    }

    #[test]
    fn replies_are_mapped_to_errors_by_code_and_text() {
        for (line, kind, retry) in [
            ("421 There are too many connections", ErrorKind::Busy, Retry::Later),
            ("425 Cannot open data connection", ErrorKind::Unreachable, Retry::Later),
            ("426 Failure writing network stream", ErrorKind::Unreachable, Retry::Later),
            ("450 file busy", ErrorKind::Busy, Retry::Later),
            ("451 local error", ErrorKind::Io, Retry::Later),
            ("451 No space left on device", ErrorKind::NoSpace, Retry::Never),
            ("452 full", ErrorKind::NoSpace, Retry::Never),
            ("552 quota", ErrorKind::NoSpace, Retry::Never),
            ("552 More than the maximum allowed.", ErrorKind::NoSpace, Retry::Never),
            ("552 Too many files: quota reached", ErrorKind::NoSpace, Retry::Never),
            ("550 Larger than the maximum allowed.", ErrorKind::Other, Retry::Never),
            ("550 /a: Too many levels of symbolic links", ErrorKind::Io, Retry::Never),
            ("550 /a: Too many open files", ErrorKind::Busy, Retry::Later),
            ("530 The maximum allowed connections are reached", ErrorKind::Busy, Retry::Later),
            ("530 Login incorrect.", ErrorKind::Unauthenticated, Retry::Never),
            ("530 Sorry, the maximum number of clients", ErrorKind::Busy, Retry::Later),
            ("522 SSL connection failed: session reuse", ErrorKind::Unreachable, Retry::Later),
            ("550 /a: No such file or directory", ErrorKind::NotFound, Retry::Never),
            ("550 Permission denied.", ErrorKind::PermissionDenied, Retry::Never),
            ("550 Failed to open file.", ErrorKind::Other, Retry::Never),
            ("553 Could not create file.", ErrorKind::PermissionDenied, Retry::Never),
            ("502 Unknown command.", ErrorKind::Unsupported, Retry::Never),
        ] {
            let error = error(line);
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{line}");
            assert!(error.to_string().contains(line), "{error}");
        }
    }

    #[test]
    fn a_quoted_name_does_not_decide_about_the_kind() {
        const DENIED: ErrorKind = ErrorKind::PermissionDenied;
        for (argument, line, kind) in [
            ("/up/not found.txt", "550 not found.txt: Permission denied", DENIED),
            ("/up/not found.txt", "550 /up/not found.txt: Permission denied", DENIED),
            ("/up/no such file", "550 \"/home/ada/up/no such file\": Access is denied.", DENIED),
            ("/file exists/x", "550 Can't open /file exists/x: No such file", ErrorKind::NotFound),
            ("/up/too many.txt", "550 too many.txt: Not a regular file", ErrorKind::Other),
            ("/up/max clients", "553 max clients: Operation not permitted", DENIED),
            ("/up/no space left", "550 no space left: Not permitted", ErrorKind::Other),
            ("/up/file", "550 No such file or directory", ErrorKind::NotFound),
        ] {
            let error = error_about(argument, line);
            assert_eq!(error.kind(), kind, "{argument}: {line}");
            assert!(error.to_string().contains("the server replied: 55"), "{error}");
        }
        // Display shows 300 characters of a reply, which a long path may fill.
        let path = format!("/{}", "a".repeat(400));
        let error = error_about(&path, &format!("550 {path}: Permission denied"));
        assert_eq!(error.kind(), DENIED, "{error}");
    }
}
