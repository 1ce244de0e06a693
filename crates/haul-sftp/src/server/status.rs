//! Converts errors of the operating system to statuses of version 3. The codes are OpenSSH's
//! (`errno_to_portable`), the messages the system's.

use bytes::Bytes;
use rustix::io::Errno;

use crate::codec::{Response, Status};

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The system returned an error.
    System(Errno),
    /// The server refused.
    Server(Status, &'static str),
}

impl Refusal {
    /// A change on a read-only server.
    pub(super) const READ_ONLY: Self =
        Self::Server(Status::PermissionDenied, "this server is read-only");
    /// No such handle, or one of the other kind.
    pub(super) const NO_HANDLE: Self = Self::Server(Status::Failure, "no such handle");

    /// The client has disconnected; its request is abandoned.
    pub(super) const GONE: Self = Self::Server(Status::Failure, "the client has disconnected");

    /// The limit of open handles is reached.
    pub(super) const TOO_MANY: Self = Self::Server(Status::Failure, "too many open handles");

    /// The response to the refused request.
    pub(super) fn response(&self) -> Response {
        match self {
            Self::System(errno) => {
                let words = std::io::Error::from(*errno).to_string();
                // "No space left on device (os error 28)": the number means nothing to the client.
                let words = words.split(" (os error").next().unwrap_or(&words).to_owned();
                Response::Status { status: of(*errno), message: words.into() }
            }
            Self::Server(status, words) => status_response(*status, words),
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

/// Success.
pub(super) fn ok() -> Response {
    status_response(Status::Ok, "Success")
}

/// A status with a message.
pub(super) fn status_response(status: Status, words: &'static str) -> Response {
    Response::Status { status, message: Bytes::from_static(words.as_bytes()) }
}

/// End of a file or listing.
pub(super) fn at_end(words: &'static str) -> Response {
    status_response(Status::Eof, words)
}

fn of(errno: Errno) -> Status {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::BADF | Errno::LOOP => Status::NoSuchFile,
        Errno::PERM | Errno::ACCESS | Errno::FAULT => Status::PermissionDenied,
        Errno::NAMETOOLONG | Errno::INVAL => Status::BadMessage,
        Errno::NOSYS => Status::Unsupported,
        _ => Status::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(errno: Errno) -> (Status, String) {
        match Refusal::from(errno).response() {
            Response::Status { status, message } => {
                (status, String::from_utf8(message.to_vec()).unwrap())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_have_openssh_codes_and_system_messages() {
        assert_eq!(mapped(Errno::NOENT).0, Status::NoSuchFile);
        assert_eq!(mapped(Errno::LOOP).0, Status::NoSuchFile);
        assert_eq!(mapped(Errno::ACCESS).0, Status::PermissionDenied);
        assert_eq!(mapped(Errno::NAMETOOLONG).0, Status::BadMessage);
        assert_eq!(mapped(Errno::EXIST).0, Status::Failure);
        assert_eq!(mapped(Errno::NOSPC), (Status::Failure, "No space left on device".to_owned()));
    }
}
