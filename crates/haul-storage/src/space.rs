//! The space available at a destination.

/// A file system, whose space is shared by everything on it. Identified by host and number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Volume {
    /// The server; empty for this machine.
    pub host: String,
    /// The number of the file system on that host.
    pub number: u64,
}

/// The space of the file system or account of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Free bytes for unprivileged users, as `df` prints them.
    pub free: u64,
    /// The most bytes that can still be written. More than `free` if this user, or the user of the server, may be
    /// allowed to use the space reserved for root.
    pub most: u64,
    /// Allocation unit in bytes; 0 if unknown.
    pub block: u64,
    /// The file system; `None` if unknown.
    pub volume: Option<Volume>,
    /// Files may take less space than their length, by compression or deduplication. Assumed of a local file system of
    /// an unknown kind, but not of a server that does not report it (SFTP, WebDAV).
    pub compact: bool,
    /// A copy of a file on the same volume may take no space at all (reflinks).
    pub shares: bool,
}
