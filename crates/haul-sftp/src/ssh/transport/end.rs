//! How a connection ends, and what error that is for whoever was using it.

use std::io;

use haul_storage::{Error, ErrorKind, Retry};

/// How a connection ended.
#[derive(Debug)]
pub enum End {
    /// The judge refused the host key.
    Refused(Error),
    /// The server said goodbye in these words. `fatal`: it will say the same next time.
    Farewell {
        /// What it said.
        text: String,
        /// Whether the two cannot understand each other.
        fatal: bool,
    },
    /// The far end closed the stream.
    Closed,
    /// The stream broke.
    Broken(io::Error),
    /// What answers is no SSH server.
    NotSsh,
    /// No algorithm of a kind is common.
    NoCommon {
        /// Of which kind.
        kind: &'static str,
        /// What haul offers.
        ours: String,
        /// What the server has.
        theirs: String,
    },
    /// The server agrees on another key exchange than it did before, for which our half was sent.
    Unexpected,
    /// The server does not hold the private half of its host key.
    WrongSignature,
    /// The server did what the protocol does not allow, in words.
    Violation(String),
    /// Nothing came for longer than keepalives allow.
    Silent,
    /// It was ended here.
    GivenUp,
}

/// The end of a connection whose far end breaks the protocol.
pub fn violation(what: impl Into<String>) -> End {
    End::Violation(what.into())
}

impl End {
    /// What there is to say to people.
    pub fn reason(&self) -> String {
        match self {
            Self::Refused(error) => error.to_string(),
            Self::Farewell { text, .. } => format!("the server disconnected: {text}"),
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
            Self::Unexpected => "the server has changed its key exchange".to_owned(),
            Self::GivenUp => "the connection is closed".to_owned(),
        }
    }

    /// The error of a connection to `location` that ended before keys were exchanged.
    pub fn before_keys(&self, location: &str) -> Error {
        let of = |kind, operation| Error::new(kind, operation).at(location);
        let error = |kind| of(kind, "connect").because(self.reason());
        match self {
            // The server said why: what it cannot negotiate, it never will.
            Self::Farewell { fatal: true, .. }
            | Self::NotSsh
            | Self::NoCommon { .. }
            | Self::Violation(_) => error(ErrorKind::Protocol),
            Self::Farewell { .. } => error(ErrorKind::Busy),
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
            Self::Silent | Self::Unexpected | Self::GivenUp => error(ErrorKind::Unreachable),
        }
    }

    /// The error of a connection to `location` that ended in the midst of something.
    pub fn during(&self, location: &str, operation: &'static str) -> Error {
        let of = |kind| Error::new(kind, operation).at(location);
        match self {
            Self::Farewell { .. } if operation == "authenticate" => {
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

/// Cryptography fails without a reason, and only for input that is wrong.
impl From<aws_lc_rs::error::Unspecified> for End {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        violation("a value that its algorithm does not take")
    }
}
