//! The error type of storages and of the engine.
//!
//! Policy: a backend has private error enums and converts them to [`Error`] at its edge, with the kind,
//! whether a retry can help, the operation and the location. No code above a backend looks at its
//! private types; the retry policy reads [`Error::retry`] and nothing else. An error is reported once,
//! by the code that decides not to continue.

use std::error::Error as StdError;
use std::{fmt, io};

use crate::text;

/// A result with haul's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, independent of the backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No entry has that name.
    NotFound,
    /// The far end or the operating system refuses the operation.
    PermissionDenied,
    /// An entry exists that may not be replaced, or has another type.
    AlreadyExists,
    /// The path is a directory where a file is needed.
    IsADirectory,
    /// The path is not a directory where one is needed.
    NotADirectory,
    /// A directory that should be empty is not.
    NotEmpty,
    /// The device or quota is full, or the file is longer than the storage allows.
    NoSpace,
    /// The source has changed since it was opened, or the target of a commit is not the expected version.
    Changed,
    /// The data does not have the expected digest.
    Corrupt,
    /// The storage does not support the operation.
    Unsupported,
    /// No credentials, or wrong ones.
    Unauthenticated,
    /// The host or a server on it cannot be reached, or the connection is lost.
    Unreachable,
    /// Another process is using it, or the server requests a later retry.
    Busy,
    /// The far end's response violates the protocol.
    Protocol,
    /// The operation was stopped at this end.
    Interrupted,
    /// The request is invalid.
    InvalidInput,
    /// An input/output error, or any other error of an operating system that has no kind of its own here.
    Io,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// A short description for users.
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

/// Whether the same operation could succeed if retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// It will fail the same way.
    Never,
    /// It may succeed after a pause.
    Later,
    /// The file has to be reopened and restarted, for example because its source has changed or written data
    /// is lost.
    FromStart,
}

/// An error with kind, retry status, operation, location and cause.
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
    /// Consecutive attempts without progress.
    attempts: Option<u32>,
    is_too_long: bool,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind` during `operation` (a verb: "open", "read"), with the kind's default retry
    /// status.
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
                is_too_long: false,
                source: None,
            }),
        }
    }

    /// Converts an error of the operating system.
    pub fn from_io(operation: &'static str, error: io::Error) -> Self {
        let folded = match error.kind() {
            io::ErrorKind::FileTooLarge => Self::too_long(operation),
            _ => Self::new(kind_of_io(&error), operation),
        };
        folded.with_source(error)
    }

    /// The file is longer than its storage allows: `NoSpace`, where free space does not help.
    pub fn too_long(operation: &'static str) -> Self {
        let mut error = Self::new(ErrorKind::NoSpace, operation).hinting(
            "the file system cannot hold a file of this size, or a limit (ulimit -f) forbids it",
        );
        error.inner.is_too_long = true;
        error
    }

    /// Whether the file is longer than its storage allows (see [`Error::too_long`]).
    pub fn is_too_long(&self) -> bool {
        self.inner.is_too_long
    }

    /// Sets the location, unless it is already known: the innermost one is kept.
    #[must_use]
    pub fn at(mut self, location: impl fmt::Display) -> Self {
        if self.inner.location.is_empty() {
            self.inner.location = location.to_string();
        }
        self
    }

    /// Sets the cause as text.
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

    /// A copy of the error for another task that waits for the same result. The source error becomes text.
    #[must_use]
    pub fn again(&self) -> Self {
        let mut again = Self::new(self.kind(), self.operation());
        again.inner.location.clone_from(&self.inner.location);
        again.inner.hint.clone_from(&self.inner.hint);
        again.inner.is_too_long = self.inner.is_too_long;
        again.because(self.cause()).with_retry(self.retry())
    }

    /// Sets the source error.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner.source = Some(source.into());
        self
    }

    /// Records that this was the last of `attempts` consecutive attempts without progress.
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

    /// The operation that failed, as a verb.
    pub fn operation(&self) -> &'static str {
        self.inner.operation
    }

    /// The location; empty if not yet known.
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

    /// The cause without operation and location: the text given and the source error, or the kind without either;
    /// with the number of attempts if there were several.
    pub fn cause(&self) -> String {
        let cause = match (&self.inner.detail, &self.inner.source) {
            (Some(detail), Some(source)) => format!("{detail}: {}", text_of(&**source)),
            (Some(detail), None) => detail.clone(),
            (None, Some(source)) => text_of(&**source),
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

/// The text of a system error: the wording common to all backends, otherwise the system's without its number.
pub fn io_cause(error: &io::Error) -> String {
    let text = error.to_string();
    let Some(number) = error.raw_os_error() else { return text };
    match kind_of_io(error) {
        // The system's text for a read-only file system is more precise.
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

/// The text of an error.
fn text_of(error: &(dyn StdError + 'static)) -> String {
    error.downcast_ref().map_or_else(|| error.to_string(), io_cause)
}

/// `LOCATION: cannot OPERATION (CAUSE)` in one line. Causes quote servers and peers, so control characters
/// are escaped; [`Error::cause`] returns them unescaped.
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
    fn a_copy_of_an_error_has_the_same_text_hint_and_retry_status() {
        let error = Error::new(ErrorKind::Busy, "open").at("x").because("c").hinting("wait");
        let error = error.with_retry(Retry::Never);
        let again = error.again();
        assert_eq!(again.to_string(), error.to_string());
        assert_eq!((again.hint(), again.retry()), (Some("wait"), Retry::Never));
        assert!(!again.is_too_long());
        assert!(Error::too_long("write").again().is_too_long());
    }

    #[test]
    fn an_error_is_printed_as_location_operation_cause() {
        let error = Error::new(ErrorKind::NoSpace, "write").at("/mnt/a").because("disk full");
        assert_eq!(error.to_string(), "/mnt/a: cannot write (disk full)");
    }

    #[test]
    fn a_printed_error_is_one_line_without_control_characters() {
        let error =
            Error::new(ErrorKind::Protocol, "list").at("a\x1b[2J").because("500 \u{9b}31m\n0k");
        assert_eq!(error.to_string(), "a\\033[2J: cannot list (500 \\302\\23331m\\0120k)");
        assert_eq!(error.cause(), "500 \u{9b}31m\n0k");
    }

    #[test]
    fn an_error_after_several_attempts_prints_their_number() {
        let error = |attempts| Error::new(ErrorKind::Busy, "read").after_attempts(attempts);
        assert_eq!(error(1).to_string(), "cannot read (busy)");
        let several = "cannot read (busy; 11 attempts in a row made no progress)";
        assert_eq!(error(11).to_string(), several);
    }

    #[test]
    fn the_innermost_location_is_kept() {
        let error = Error::new(ErrorKind::NotFound, "open").at("a").at("b");
        assert_eq!(error.location(), "a");
    }

    #[test]
    fn the_retry_status_follows_the_kind_unless_overridden() {
        assert_eq!(Error::new(ErrorKind::Busy, "open").retry(), Retry::Later);
        assert_eq!(Error::new(ErrorKind::NoSpace, "write").retry(), Retry::Never);
        assert_eq!(Error::new(ErrorKind::Changed, "read").retry(), Retry::FromStart);
        let error = Error::new(ErrorKind::Busy, "lock").with_retry(Retry::Never);
        assert_eq!(error.retry(), Retry::Never);
    }

    #[test]
    fn an_exceeded_quota_has_the_kind_no_space() {
        let error = Error::from_io("write", io::Error::from(io::ErrorKind::QuotaExceeded));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.hint().unwrap().starts_with("free space"));
    }

    /// Formerly, the hint was to free space.
    #[test]
    fn the_hint_for_a_file_that_is_too_long_is_not_to_free_space() {
        let error = Error::from_io("write", rustix::io::Errno::FBIG.into());
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.hint().unwrap().contains("cannot hold a file of this size"), "{error}");
        assert!(error.is_too_long());
    }
}
