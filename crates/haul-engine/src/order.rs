//! What is copied first.

/// By what files are put in order.
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
    /// By what.
    pub by: OrderBy,
    /// The largest, last or newest first.
    pub reverse: bool,
}
