//! The values in messages: most are counterparts of types of [`haul_storage`].

use bytes::Bytes;

/// A body without fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// A point in time.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC.
    #[prost(sint64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds after that second.
    #[prost(uint32, tag = "2")]
    pub nanos: u32,
}

/// An owner.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Owner {
    /// User number.
    #[prost(uint32, tag = "1")]
    pub user: u32,
    /// Group number.
    #[prost(uint32, tag = "2")]
    pub group: u32,
}

/// The identity of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FileId {
    /// Number of the file system.
    #[prost(uint64, tag = "1")]
    pub device: u64,
    /// Number of the file.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
}

/// A digest.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Digest {
    /// A [`code::DigestKind`](super::code::DigestKind).
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// Its bits.
    #[prost(bytes = "bytes", tag = "2")]
    pub bytes: Bytes,
}

/// An entry.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entry {
    /// The path below the root.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// A [`code::EntryKind`](super::code::EntryKind).
    #[prost(int32, tag = "2")]
    pub kind: i32,
    /// The target of a symbolic link.
    #[prost(bytes = "bytes", tag = "3")]
    pub target: Bytes,
    /// The length of a file in bytes; nothing if unknown.
    #[prost(uint64, optional, tag = "4")]
    pub size: Option<u64>,
    /// Last modification.
    #[prost(message, optional, tag = "5")]
    pub modified: Option<Time>,
    /// Permission bits.
    #[prost(uint32, optional, tag = "6")]
    pub mode: Option<u32>,
    /// User and group.
    #[prost(message, optional, tag = "7")]
    pub owner: Option<Owner>,
    /// Identity.
    #[prost(message, optional, tag = "8")]
    pub id: Option<FileId>,
    /// Number of hard links; nothing for 1.
    #[prost(uint64, optional, tag = "9")]
    pub links: Option<u64>,
    /// Version tag.
    #[prost(string, optional, tag = "10")]
    pub tag: Option<String>,
    /// Digest of the content.
    #[prost(message, optional, tag = "11")]
    pub digest: Option<Digest>,
}

/// The version of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Identity {
    /// Length in bytes; nothing if unknown.
    #[prost(uint64, optional, tag = "1")]
    pub size: Option<u64>,
    /// Last modification.
    #[prost(message, optional, tag = "2")]
    pub modified: Option<Time>,
    /// Identity.
    #[prost(message, optional, tag = "3")]
    pub id: Option<FileId>,
    /// Version tag.
    #[prost(string, optional, tag = "4")]
    pub tag: Option<String>,
}

/// Metadata; fields without a value stay unchanged.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    /// Permission bits.
    #[prost(uint32, optional, tag = "1")]
    pub mode: Option<u32>,
    /// Last modification.
    #[prost(message, optional, tag = "2")]
    pub modified: Option<Time>,
    /// User and group.
    #[prost(message, optional, tag = "3")]
    pub owner: Option<Owner>,
    /// All extended attributes.
    #[prost(message, optional, tag = "4")]
    pub xattrs: Option<Xattrs>,
}

/// Extended attributes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Xattrs {
    /// The attributes.
    #[prost(message, repeated, tag = "1")]
    pub xattrs: Vec<Xattr>,
}

/// An extended attribute.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Xattr {
    /// Full name.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// Value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// An error, without a location: the client adds that of its request.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Error {
    /// A [`code::ErrorKind`](super::code::ErrorKind).
    #[prost(int32, tag = "1")]
    pub kind: i32,
    /// A [`code::Retry`](super::code::Retry).
    #[prost(int32, tag = "2")]
    pub retry: i32,
    /// The operation that failed, as a verb.
    #[prost(string, tag = "3")]
    pub operation: String,
    /// The cause, for display.
    #[prost(string, tag = "4")]
    pub cause: String,
    /// What the user can do about it.
    #[prost(string, optional, tag = "5")]
    pub hint: Option<String>,
}

/// A range of bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Range {
    /// First byte.
    #[prost(uint64, tag = "1")]
    pub start: u64,
    /// Length in bytes.
    #[prost(uint64, tag = "2")]
    pub length: u64,
}

/// A set of ranges.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Ranges {
    /// For each range, in order: the distance from the end of the one before (from 0 for the first), then
    /// its length.
    #[prost(uint64, repeated, tag = "1")]
    pub steps: Vec<u64>,
}

/// What a part file holds from earlier runs.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Held {
    /// One of the cases. Nothing: no record.
    #[prost(oneof = "held::State", tags = "1, 2, 3")]
    pub state: Option<held::State>,
}

/// The cases of [`Held`].
pub mod held {
    /// What a part file holds from earlier runs.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum State {
        /// No record.
        #[prost(message, tag = "1")]
        Unrecorded(super::Empty),
        /// These ranges.
        #[prost(message, tag = "2")]
        Ranges(super::Ranges),
        /// The part file was emptied; why, for display.
        #[prost(string, tag = "3")]
        StartedOver(String),
    }
}

/// A source and its version.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SourceVersion {
    /// Its location.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its version.
    #[prost(message, optional, tag = "2")]
    pub identity: Option<Identity>,
}

/// Options for creating a part file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateOptions {
    /// The source.
    #[prost(message, optional, tag = "1")]
    pub source: Option<SourceVersion>,
    /// Resume an existing part file.
    #[prost(bool, tag = "2")]
    pub resume: bool,
    /// The final length in bytes.
    #[prost(uint64, optional, tag = "3")]
    pub size: Option<u64>,
    /// Do not reserve space.
    #[prost(bool, tag = "4")]
    pub sparse: bool,
}

/// Options for giving a file its name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommitOptions {
    /// Metadata to set.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<Metadata>,
    /// Replace an existing file.
    #[prost(bool, tag = "2")]
    pub replace: bool,
    /// Make the file durable first.
    #[prost(bool, tag = "3")]
    pub sync: bool,
    /// The only version that may be replaced; a share without `conditional_commits` ignores it.
    #[prost(message, optional, tag = "4")]
    pub expected: Option<Identity>,
}

/// The kind and target of a link.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Link {
    /// One of the kinds.
    #[prost(oneof = "link::Target", tags = "1, 2")]
    pub target: Option<link::Target>,
}

/// The kinds of [`Link`].
pub mod link {
    use bytes::Bytes;

    /// The target of a link.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Target {
        /// A symbolic link with this target.
        #[prost(bytes = "bytes", tag = "1")]
        Symbolic(Bytes),
        /// A hard link to this path.
        #[prost(bytes = "bytes", tag = "2")]
        Hard(Bytes),
    }
}

/// A small file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Whole {
    /// The content.
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
    /// The version that was read.
    #[prost(message, optional, tag = "2")]
    pub identity: Option<Identity>,
    /// The metadata.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<Metadata>,
}

/// A file system.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Volume {
    /// The host; empty for the server's machine.
    #[prost(string, tag = "1")]
    pub host: String,
    /// Its number on the host.
    #[prost(uint64, tag = "2")]
    pub number: u64,
}

/// The space of a file system.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Space {
    /// Free bytes for unprivileged users.
    #[prost(uint64, tag = "1")]
    pub free: u64,
    /// The most bytes that can still be written.
    #[prost(uint64, tag = "2")]
    pub most: u64,
    /// Allocation unit in bytes; 0 if unknown.
    #[prost(uint64, tag = "3")]
    pub block: u64,
    /// The file system.
    #[prost(message, optional, tag = "4")]
    pub volume: Option<Volume>,
    /// Files may take less space than their length.
    #[prost(bool, tag = "5")]
    pub compact: bool,
    /// A copy may take no space.
    #[prost(bool, tag = "6")]
    pub shares: bool,
}
