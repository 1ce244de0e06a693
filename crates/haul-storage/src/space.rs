//! How much room there is where something is to be written.

/// Where space is shared: a file system, by its host and number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Volume {
    /// The server; empty for this machine.
    pub host: String,
    /// The number of the file system there.
    pub number: u64,
}

/// The space of the file system, or account, that a path is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Space {
    /// Bytes that are free for ordinary users, as `df` prints them.
    pub free: u64,
    /// The most bytes that can still be written: more than `free` where this user, or the user of the server, may be
    /// allowed to use what is reserved for root.
    pub most: u64,
    /// Unit in bytes in which files get space; 0 if not known.
    pub block: u64,
    /// Which file system it is; `None` if that cannot be told.
    pub volume: Option<Volume>,
    /// Files may take less space than their length: by compression or deduplication, or because it is not known which
    /// file system it is.
    pub compact: bool,
    /// A copy of a file of the same volume may take no space at all (reflinks).
    pub shares: bool,
}
