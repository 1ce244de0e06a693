//! How a connection ends, and the error that its users get.

use std::io;

use haul_storage::{Error, ErrorKind, Retry};

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    /// The host key was refused.
    Refused(Error),
    /// The server sent DISCONNECT.
    Disconnected {
        /// Its description.
        text: String,
        /// Whether the two ends are incompatible, so that retrying is pointless.
        fatal: bool,
    },
    /// The far end closed the stream.
    Closed,
    /// The stream broke.
    Broken(io::Error),
    /// The far end is not an SSH server.
    NotSsh,
    /// The two ends have no common algorithm of some kind.
    NoCommon {
        /// The kind of algorithm.
        kind: &'static str,
        /// What haul offers.
        ours: String,
        /// What the server has.
        theirs: String,
    },
    /// Our half of a key exchange was sent early, for the method of an earlier connection, and another
    /// method was negotiated.
    Unexpected,
    /// The server does not hold the private half of its host key.
    WrongSignature,
    /// The server violated the protocol; the text says how.
    Violation(String),
    /// Nothing was received for longer than the keepalive settings allow.
    Silent,
    /// It was closed at this end.
    ClosedHere,
}

/// The end of a connection whose far end violates the protocol.
pub fn violation(what: impl Into<String>) -> End {
    End::Violation(what.into())
}

impl End {
    /// The reason as text for users.
    pub fn reason(&self) -> String {
        match self {
            Self::Refused(error) => error.to_string(),
            Self::Disconnected { text, .. } => format!("the server disconnected: {text}"),
            Self::Closed => "the server closed the connection".to_owned(),
            Self::Broken(error) => format!("the connection was lost: {error}"),
            Self::NotSsh => "not an SSH server".to_owned(),
            Self::NoCommon { kind, ours, theirs } => {
                format!("no common {kind} algorithm: haul offers {ours}, the server has {theirs}")
            }
            Self::WrongSignature => {
                "the server does not hold the private key of the host key that it \
                 presented"
                    .to_owned()
            }
            Self::Violation(what) => format!("the server violated the SSH protocol: {what}"),
            Self::Silent => "the server has not responded for longer than ServerAliveInterval \
                             and ServerAliveCountMax allow"
                .to_owned(),
            Self::Unexpected => {
                "the server agreed on another key exchange method than before".to_owned()
            }
            Self::ClosedHere => "the connection is closed".to_owned(),
        }
    }

    /// The error of a connection to `location` that ended before keys were exchanged.
    pub fn before_keys(&self, location: &str) -> Error {
        let of = |kind, operation| Error::new(kind, operation).at(location);
        let error = |kind| of(kind, "connect").because(self.reason());
        match self {
            // Not transient: a server that cannot negotiate now never will.
            Self::Disconnected { fatal: true, .. }
            | Self::NotSsh
            | Self::NoCommon { .. }
            | Self::Violation(_) => error(ErrorKind::Protocol),
            Self::Disconnected { .. } => error(ErrorKind::Busy),
            Self::Closed => of(ErrorKind::Busy, "connect").because(
                "the server closed the connection before the key exchange; it may have too many \
                 unauthenticated connections (MaxStartups)",
            ),
            Self::Broken(cause) if was_cut(cause) => of(ErrorKind::Busy, "connect").because(
                format!("the server closed the connection before the key exchange ({cause})"),
            ),
            Self::Broken(cause) => of(ErrorKind::Unreachable, "connect").because(cause.to_string()),
            Self::Refused(error) => error.again(),
            Self::WrongSignature => of(ErrorKind::Unauthenticated, "verify the host key")
                .because(self.reason())
                .with_retry(Retry::Never),
            Self::Silent | Self::Unexpected | Self::ClosedHere => error(ErrorKind::Unreachable),
        }
    }

    /// The error of an operation during which the connection to `location` ended.
    pub fn during(&self, location: &str, operation: &'static str) -> Error {
        let of = |kind| Error::new(kind, operation).at(location);
        match self {
            Self::Disconnected { .. } if operation == "authenticate" => {
                of(ErrorKind::Unauthenticated).because(self.reason()).with_retry(Retry::Never)
            }
            Self::Violation(_) | Self::NoCommon { .. } => {
                of(ErrorKind::Protocol).because(self.reason())
            }
            Self::Refused(error) => error.again(),
            Self::WrongSignature => {
                of(ErrorKind::Unauthenticated).because(self.reason()).with_retry(Retry::Never)
            }
            _ => of(ErrorKind::Unreachable).because(self.reason()),
        }
    }
}

fn was_cut(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionReset | Kind::ConnectionAborted | Kind::BrokenPipe | Kind::UnexpectedEof
    )
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// aws-lc reports failures without a reason. Unless the random generator failed, the cause is invalid input.
impl From<aws_lc_rs::error::Unspecified> for End {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        violation("an invalid cryptographic value")
    }
}
