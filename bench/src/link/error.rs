//! The error of links and network namespaces.

use std::fmt;

/// The operation that failed, and the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkError {
    operation: String,
    cause: String,
}

impl LinkError {
    pub(crate) fn new(operation: impl Into<String>, cause: &(impl fmt::Display + ?Sized)) -> Self {
        Self { operation: operation.into(), cause: cause.to_string() }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.cause)
    }
}

impl std::error::Error for LinkError {}
