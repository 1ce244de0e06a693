//! The order in which files are copied.

/// The sort key of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderBy {
    /// Length in bytes.
    Size,
    /// Path below the destination, byte by byte.
    Name,
    /// Time of the last modification.
    Time,
}

/// The order in which files are begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The sort key.
    pub by: OrderBy,
    /// Descending: the largest, last or newest first.
    pub reverse: bool,
}
