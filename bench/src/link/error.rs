//! Why a link could not be made.

use std::fmt;

/// What was being done, and why it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkError {
    what: String,
    cause: String,
}

impl LinkError {
    pub(crate) fn new(what: impl Into<String>, cause: &(impl fmt::Display + ?Sized)) -> Self {
        Self { what: what.into(), cause: cause.to_string() }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.cause)
    }
}

impl std::error::Error for LinkError {}
