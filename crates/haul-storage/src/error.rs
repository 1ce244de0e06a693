//! The one error of haul.
//!
//! Policy: a backend has private error enums and folds them into [`Error`] at its edge, naming the
//! kind, whether trying again can help, the operation and the location. Nobody above a backend looks
//! at its private types; the retry policy reads [`Error::retry`] and nothing else. An error is
//! reported once, by whoever decides not to go on.

use std::error::Error as StdError;
use std::{fmt, io};

use crate::text;

/// A result with haul's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong, in terms that do not depend on the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing is there under that name.
    NotFound,
    /// The far end or the operating system refuses.
    PermissionDenied,
    /// Something is there already that may not be replaced, or is of another type.
    AlreadyExists,
    /// A directory is where a file is needed.
    IsADirectory,
    /// Something that is no directory is where one is needed.
    NotADirectory,
    /// A directory that should be empty is not.
    NotEmpty,
    /// The device or quota is full.
    NoSpace,
    /// The source is not what it was when it was opened.
    Changed,
    /// Data does not have the digest that it should have.
    Corrupt,
    /// This storage cannot do that.
    Unsupported,
    /// No credentials, or wrong ones.
    Unauthenticated,
    /// The host or a server on it cannot be reached, or the connection is lost.
    Unreachable,
    /// Somebody else is using it, or the server asks to come back later.
    Busy,
    /// The far end answered something that its protocol does not allow.
    Protocol,
    /// The operation was stopped from this side.
    Interrupted,
    /// The request makes no sense.
    InvalidInput,
    /// An input or output error below the file system.
    Io,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// A few words for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::PermissionDenied => "permission denied",
            Self::AlreadyExists => "already exists",
            Self::IsADirectory => "is a directory",
            Self::NotADirectory => "not a directory",
            Self::NotEmpty => "directory not empty",
            Self::NoSpace => "no space left",
            Self::Changed => "changed while being read",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "not supported",
            Self::Unauthenticated => "not authenticated",
            Self::Unreachable => "unreachable",
            Self::Busy => "busy",
            Self::Protocol => "protocol error",
            Self::Interrupted => "interrupted",
            Self::InvalidInput => "invalid input",
            Self::Io => "input/output error",
            Self::Other => "failed",
        }
    }

    const fn default_retry(self) -> Retry {
        match self {
            Self::Unreachable | Self::Busy => Retry::Later,
            Self::Changed => Retry::FromStart,
            _ => Retry::Never,
        }
    }
}

/// Whether the same operation could succeed if tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It will fail the same way.
    Never,
    /// It may succeed after a pause.
    Later,
    /// The whole file has to be started anew; what was read so far belongs to another version.
    FromStart,
}

/// What went wrong, where, doing what, and whether a retry can help.
pub struct Error {
    inner: Box<Inner>,
}

struct Inner {
    kind: ErrorKind,
    retry: Retry,
    operation: &'static str,
    location: String,
    detail: Option<String>,
    hint: Option<String>,
    /// Attempts in a row that made no progress.
    attempts: Option<u32>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind` met while doing `operation` (a verb: "open", "read"). Its retry status is
    /// the usual one of the kind.
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        Self {
            inner: Box::new(Inner {
                kind,
                retry: kind.default_retry(),
                operation,
                location: String::new(),
                detail: None,
                hint: None,
                attempts: None,
                source: None,
            }),
        }
    }

    /// Folds an error of the operating system.
    pub fn from_io(operation: &'static str, error: io::Error) -> Self {
        Self::new(kind_of_io(&error), operation).with_source(error)
    }

    /// Says where. An inner location that is already known stays.
    #[must_use]
    pub fn at(mut self, location: impl fmt::Display) -> Self {
        if self.inner.location.is_empty() {
            self.inner.location = location.to_string();
        }
        self
    }

    /// Adds the cause in words.
    #[must_use]
    pub fn because(mut self, detail: impl Into<String>) -> Self {
        self.inner.detail = Some(detail.into());
        self
    }

    /// Adds what the user can do about it.
    #[must_use]
    pub fn hinting(mut self, hint: impl Into<String>) -> Self {
        self.inner.hint = Some(hint.into());
        self
    }

    /// The same error once more, for another one who waits for the outcome. The error underneath becomes words.
    #[must_use]
    pub fn again(&self) -> Self {
        let mut again = Self::new(self.kind(), self.operation());
        again.inner.location.clone_from(&self.inner.location);
        again.inner.hint.clone_from(&self.inner.hint);
        again.because(self.cause()).with_retry(self.retry())
    }

    /// Adds the error underneath.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Says that this was the last of so many attempts in a row, none of which made progress.
    #[must_use]
    pub fn after_attempts(mut self, attempts: u32) -> Self {
        self.inner.attempts = Some(attempts);
        self
    }

    /// Overrides the retry status.
    #[must_use]
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.inner.retry = retry;
        self
    }

    /// The kind.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Whether a retry can help.
    pub fn retry(&self) -> Retry {
        self.inner.retry
    }

    /// What was being done.
    pub fn operation(&self) -> &'static str {
        self.inner.operation
    }

    /// Where; empty if not yet known.
    pub fn location(&self) -> &str {
        &self.inner.location
    }

    /// What the user can do about it, if that is known.
    pub fn hint(&self) -> Option<&str> {
        match (&self.inner.hint, self.inner.kind) {
            (Some(hint), _) => Some(hint),
            (None, ErrorKind::NoSpace) => {
                Some("free space and run the same command again: it resumes")
            }
            (None, _) => None,
        }
    }

    /// The cause without operation and location: the words given, or the error underneath, or the
    /// kind. With the number of attempts, if there were several.
    pub fn cause(&self) -> String {
        let cause = match (&self.inner.detail, &self.inner.source) {
            (Some(detail), Some(source)) => format!("{detail}: {}", words(&**source)),
            (Some(detail), None) => detail.clone(),
            (None, Some(source)) => words(&**source),
            (None, None) => self.inner.kind.describe().to_owned(),
        };
        match self.inner.attempts {
            Some(attempts) if attempts > 1 => {
                format!("{cause}; {attempts} attempts in a row made no progress")
            }
            _ => cause,
        }
    }
}

/// The cause of an error of the system: in the words that are used for all backends, or in those of the system without
/// its number.
pub fn io_cause(error: &io::Error) -> String {
    let text = error.to_string();
    let Some(number) = error.raw_os_error() else { return text };
    match kind_of_io(error) {
        // A file system that is read-only has words of its own.
        ErrorKind::PermissionDenied if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
        kind @ (ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::AlreadyExists
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::NotEmpty) => return kind.describe().to_owned(),
        _ => {}
    }
    let number = format!(" (os error {number})");
    text.strip_suffix(&number).map_or_else(|| text.clone(), str::to_owned)
}

/// An error in words.
fn words(error: &(dyn StdError + 'static)) -> String {
    error.downcast_ref().map_or_else(|| error.to_string(), io_cause)
}

/// `LOCATION: cannot OPERATION (CAUSE)` in one line. Causes quote servers and peers, so what would steer
/// a terminal is escaped; [`Error::cause`] has it as it is.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.inner.location.is_empty() {
            write!(f, "{}: ", text::line(&self.inner.location))?;
        }
        write!(f, "cannot {} ({})", self.inner.operation, text::line(&self.cause()))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{:?}: {self}", self.inner.kind, self.inner.retry)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

fn kind_of_io(error: &io::Error) -> ErrorKind {
    use io::ErrorKind as Io;
    match error.kind() {
        Io::NotFound => ErrorKind::NotFound,
        Io::PermissionDenied | Io::ReadOnlyFilesystem => ErrorKind::PermissionDenied,
        Io::AlreadyExists => ErrorKind::AlreadyExists,
        Io::IsADirectory => ErrorKind::IsADirectory,
        Io::NotADirectory => ErrorKind::NotADirectory,
        Io::DirectoryNotEmpty => ErrorKind::NotEmpty,
        Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => ErrorKind::NoSpace,
        Io::Unsupported => ErrorKind::Unsupported,
        Io::ConnectionRefused
        | Io::ConnectionReset
        | Io::ConnectionAborted
        | Io::NotConnected
        | Io::BrokenPipe
        | Io::HostUnreachable
        | Io::NetworkUnreachable
        | Io::NetworkDown
        | Io::TimedOut => ErrorKind::Unreachable,
        Io::ResourceBusy | Io::ExecutableFileBusy | Io::WouldBlock => ErrorKind::Busy,
        Io::Interrupted => ErrorKind::Interrupted,
        Io::InvalidInput | Io::InvalidFilename => ErrorKind::InvalidInput,
        Io::UnexpectedEof => ErrorKind::Changed,
        _ => ErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_once_more_is_the_same() {
        let error = Error::new(ErrorKind::Busy, "open").at("x").because("c").hinting("wait");
        let error = error.with_retry(Retry::Never);
        let again = error.again();
        assert_eq!(again.to_string(), error.to_string());
        assert_eq!((again.hint(), again.retry()), (Some("wait"), Retry::Never));
    }

    #[test]
    fn an_error_reads_location_operation_cause() {
        let error = Error::new(ErrorKind::NoSpace, "write").at("/mnt/a").because("disk full");
        assert_eq!(error.to_string(), "/mnt/a: cannot write (disk full)");
    }

    #[test]
    fn an_error_is_one_line_and_steers_no_terminal_whatever_it_quotes() {
        let error =
            Error::new(ErrorKind::Protocol, "list").at("a\x1b[2J").because("500 \u{9b}31m\n0k");
        assert_eq!(error.to_string(), "a\\033[2J: cannot list (500 \\302\\23331m\\0120k)");
        assert_eq!(error.cause(), "500 \u{9b}31m\n0k");
    }

    #[test]
    fn the_last_of_several_attempts_says_how_many_there_were() {
        let error = |attempts| Error::new(ErrorKind::Busy, "read").after_attempts(attempts);
        assert_eq!(error(1).to_string(), "cannot read (busy)");
        let several = "cannot read (busy; 11 attempts in a row made no progress)";
        assert_eq!(error(11).to_string(), several);
    }

    #[test]
    fn the_innermost_location_stays() {
        let error = Error::new(ErrorKind::NotFound, "open").at("a").at("b");
        assert_eq!(error.location(), "a");
    }

    #[test]
    fn retry_status_follows_the_kind_unless_said_otherwise() {
        assert_eq!(Error::new(ErrorKind::Busy, "open").retry(), Retry::Later);
        assert_eq!(Error::new(ErrorKind::NoSpace, "write").retry(), Retry::Never);
        assert_eq!(Error::new(ErrorKind::Changed, "read").retry(), Retry::FromStart);
        let error = Error::new(ErrorKind::Busy, "lock").with_retry(Retry::Never);
        assert_eq!(error.retry(), Retry::Never);
    }

    #[test]
    fn a_full_quota_is_no_space() {
        let error = Error::from_io("write", io::Error::from(io::ErrorKind::QuotaExceeded));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
}
