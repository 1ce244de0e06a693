//! What a share can do.

use super::values::Time;

/// Range and precision of modification times.
#[derive(Clone, PartialEq, prost::Message)]
pub struct KeptTimes {
    /// The step in nanoseconds.
    #[prost(uint64, tag = "1")]
    pub step_ns: u64,
    /// The earliest time.
    #[prost(message, optional, tag = "2")]
    pub earliest: Option<Time>,
    /// The latest time.
    #[prost(message, optional, tag = "3")]
    pub latest: Option<Time>,
}

/// What a storage can do; fields as in [`haul_storage::Capabilities`], where `kept_times` is called `stored_times`.
/// `bounded_writes` is not sent: the client sets it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Capabilities {
    /// A [`code::Medium`](super::code::Medium).
    #[prost(int32, tag = "1")]
    pub medium: i32,
    /// Reads may start at any offset.
    #[prost(bool, tag = "2")]
    pub ranged_reads: bool,
    /// A [`code::Writes`](super::code::Writes).
    #[prost(int32, tag = "3")]
    pub writes: i32,
    /// Renaming replaces atomically.
    #[prost(bool, tag = "4")]
    pub rename: bool,
    /// Copies stay within the storage.
    #[prost(bool, tag = "5")]
    pub server_copy: bool,
    /// Symbolic links.
    #[prost(bool, tag = "6")]
    pub symlinks: bool,
    /// Hard links.
    #[prost(bool, tag = "7")]
    pub hard_links: bool,
    /// Durable commits.
    #[prost(bool, tag = "8")]
    pub sync: bool,
    /// Resumable part files.
    #[prost(bool, tag = "9")]
    pub resume: bool,
    /// Locks.
    #[prost(bool, tag = "10")]
    pub lock: bool,
    /// Modification times.
    #[prost(bool, tag = "11")]
    pub times: bool,
    /// Their range and precision; nothing for all times.
    #[prost(message, optional, tag = "12")]
    pub kept_times: Option<KeptTimes>,
    /// Permission bits.
    #[prost(bool, tag = "13")]
    pub mode: bool,
    /// User and group.
    #[prost(bool, tag = "14")]
    pub owner: bool,
    /// Extended attributes.
    #[prost(bool, tag = "15")]
    pub xattrs: bool,
    /// Digests for every file: [`code::DigestKind`](super::code::DigestKind).
    #[prost(int32, repeated, tag = "16")]
    pub digests: Vec<i32>,
    /// Reads should be long.
    #[prost(bool, tag = "17")]
    pub long_reads: bool,
    /// A lane accepts several reads at once.
    #[prost(bool, tag = "18")]
    pub pipelined_reads: bool,
    /// A lane accepts several writes at once.
    #[prost(bool, tag = "19")]
    pub pipelined_writes: bool,
    /// The storage bounds the bytes in flight of its reads.
    #[prost(bool, tag = "20")]
    pub bounded_reads: bool,
    /// Preferred size of a write in bytes; 0 for any.
    #[prost(uint64, tag = "21")]
    pub write_bytes: u64,
    /// Maximum number of lanes.
    #[prost(uint64, optional, tag = "22")]
    pub max_lanes: Option<u64>,
    /// Maximum length of a file in bytes.
    #[prost(uint64, optional, tag = "23")]
    pub max_file_size: Option<u64>,
    /// Files up to this many bytes are best moved whole.
    #[prost(uint64, tag = "24")]
    pub whole_limit: u64,
    /// Listings contain every name that exists.
    #[prost(bool, tag = "25")]
    pub complete_lists: bool,
    /// A commit replaces only the expected version.
    #[prost(bool, tag = "26")]
    pub conditional_commits: bool,
}
