//! Requests of the client.

use bytes::Bytes;

use super::values::{CommitOptions, CreateOptions, Empty, Link, Metadata, Ranges};

/// A message from client to server.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ToServer {
    /// The number of the request; responses repeat it. 0 if there is none.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// The request. Nothing if it is one of a later version.
    #[prost(
        oneof = "to_server::Body",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, \
                25, 26, 27, 28, 29, 30, 31, 32, 33, 35"
    )]
    pub body: Option<to_server::Body>,
    /// Whether the request was sent before, and may have been executed: see [`to_server::Body::is_once`].
    #[prost(bool, tag = "34")]
    pub again: bool,
}

/// The bodies of [`ToServer`].
pub mod to_server {
    /// A request.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Body {
        /// The first message of a lane.
        #[prost(message, tag = "2")]
        Hello(super::Hello),
        /// Describes entries. Response: `Entries`, one outcome a path, in order.
        #[prost(message, tag = "3")]
        Stat(super::Stat),
        /// Lists a directory. Response: `Entries`, in any number.
        #[prost(message, tag = "4")]
        List(super::List),
        /// Opens a file for reading. Response: `Opened`.
        #[prost(message, tag = "5")]
        Open(super::Open),
        /// Reads a range. Response: bulk frames, and `ReadEnd`, which may overtake them.
        #[prost(message, tag = "6")]
        Read(super::Read),
        /// Cancels another request. Response: `Done`, or none if too many requests are in progress.
        #[prost(message, tag = "7")]
        Cancel(super::Cancel),
        /// The current version of an open file. Response: `Identity`.
        #[prost(message, tag = "8")]
        Recheck(super::Recheck),
        /// The metadata of an open file. Response: `Metadata`.
        #[prost(message, tag = "9")]
        ReadMetadata(super::ReadMetadata),
        /// The metadata of an entry. Response: `Metadata`.
        #[prost(message, tag = "10")]
        Metadata(super::PathOf),
        /// The next range that is not a hole. Response: `FoundRange`.
        #[prost(message, tag = "11")]
        NextData(super::NextData),
        /// Closes an open file. Response: `Done`.
        #[prost(message, tag = "12")]
        Close(super::Close),
        /// Reads small files. Response: `Wholes`, one outcome a path, in order.
        #[prost(message, tag = "13")]
        ReadWhole(super::ReadWhole),
        /// Creates a directory. Response: `Done`.
        #[prost(message, tag = "14")]
        CreateDir(super::CreateDir),
        /// Creates a link. Response: `Done`.
        #[prost(message, tag = "15")]
        CreateLink(super::CreateLink),
        /// Removes an entry. Response: `Done`.
        #[prost(message, tag = "16")]
        Remove(super::PathOf),
        /// Renames an entry. Response: `Done`.
        #[prost(message, tag = "17")]
        Rename(super::Rename),
        /// Copies a file. Response: `Done`.
        #[prost(message, tag = "18")]
        Copy(super::CopyFile),
        /// Sets metadata. Response: `Done`.
        #[prost(message, tag = "19")]
        SetMetadata(super::SetMetadata),
        /// The digest of a file, if the shared storage reports one. Response: `DigestIs`.
        #[prost(message, tag = "20")]
        Digest(super::DigestOf),
        /// The free space at a path. Response: `SpaceIs`.
        #[prost(message, tag = "21")]
        Space(super::PathOf),
        /// The space that a file takes. Response: `AllocatedIs`.
        #[prost(message, tag = "22")]
        Allocated(super::PathOf),
        /// Creates or resumes a part file. Response: `Created`.
        #[prost(message, tag = "23")]
        Create(super::Create),
        /// Records written ranges. Response: `Done`.
        #[prost(message, tag = "24")]
        Record(super::Record),
        /// Makes written data durable. Response: `Done`.
        #[prost(message, tag = "25")]
        Sync(super::SyncPart),
        /// Gives a part file its name. Response: `Done`.
        #[prost(message, tag = "26")]
        Commit(super::Commit),
        /// Stops writing. Response: `Done`.
        #[prost(message, tag = "27")]
        Abort(super::Abort),
        /// Opens a part file for reading. Response: `Opened`.
        #[prost(message, tag = "28")]
        Reopen(super::Reopen),
        /// Writes a small file. Response: `Done`.
        #[prost(message, tag = "29")]
        WriteWhole(super::WriteWhole),
        /// Checks that the lane is alive. Response: `Pong`.
        #[prost(message, tag = "30")]
        Ping(super::Empty),
        /// The client closes the lane. No response.
        #[prost(message, tag = "31")]
        Bye(super::Empty),
        /// Permits further messages of a listing. No response of its own.
        #[prost(message, tag = "32")]
        More(super::More),
        /// The client has received the responses to these requests. Response: as to `Cancel`.
        #[prost(message, tag = "33")]
        Answered(super::Answered),
        /// The client has lost another lane: nothing may be sent on it any more. Response: as to `Cancel`.
        #[prost(message, tag = "35")]
        LaneLost(super::LaneLost),
    }

    impl Body {
        /// Whether the request must not be executed twice: it changes something, or opens a file. The server stores
        /// its outcome until the client has received it.
        pub const fn is_once(&self) -> bool {
            self.is_change() || matches!(self, Self::Open(_))
        }

        /// Whether the request changes something or uses a part file, so that it needs a writable share.
        pub const fn is_change(&self) -> bool {
            matches!(
                self,
                Self::CreateDir(_)
                    | Self::CreateLink(_)
                    | Self::Remove(_)
                    | Self::Rename(_)
                    | Self::Copy(_)
                    | Self::SetMetadata(_)
                    | Self::Create(_)
                    | Self::Record(_)
                    | Self::Sync(_)
                    | Self::Commit(_)
                    | Self::Abort(_)
                    | Self::Reopen(_)
                    | Self::WriteWhole(_)
            )
        }
    }
}

/// Opens a session with its first lane, or another lane of a session.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// The oldest version that the client speaks.
    #[prost(uint32, tag = "1")]
    pub min_version: u32,
    /// The latest version that the client speaks.
    #[prost(uint32, tag = "2")]
    pub max_version: u32,
    /// The session that the lane joins, 16 bytes; empty for a new session.
    #[prost(bytes = "bytes", tag = "3")]
    pub session: Bytes,
    /// Proof that the client knows the secret (for a new session) or the session's token, 32 bytes.
    #[prost(bytes = "bytes", tag = "4")]
    pub proof: Bytes,
    /// Random, 32 bytes.
    #[prost(bytes = "bytes", tag = "5")]
    pub nonce: Bytes,
    /// The client's program and version, for display.
    #[prost(string, tag = "6")]
    pub client: String,
}

/// Paths to describe.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Stat {
    /// Paths below the root.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub paths: Vec<Bytes>,
}

/// A directory to list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct List {
    /// Its path.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

/// A file to open.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Open {
    /// Its path.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

/// A range to read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Read {
    /// The open file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    /// First byte.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Length in bytes.
    #[prost(uint64, tag = "3")]
    pub length: u64,
    /// Pieces of a read with a higher priority are sent first.
    #[prost(uint32, tag = "4")]
    pub priority: u32,
    /// The `Open` whose file is read, instead of a handle; 0 for none. It was sent before on the same lane.
    #[prost(uint32, tag = "5")]
    pub opened_by: u32,
}

/// How many more messages of a listing may be sent.
#[derive(Clone, PartialEq, prost::Message)]
pub struct More {
    /// The number of the List.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Messages beyond those that were permitted before; a List permits
    /// [`LISTED_AHEAD`](crate::wire::LISTED_AHEAD).
    #[prost(uint32, tag = "2")]
    pub messages: u32,
}

/// A request to cancel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Cancel {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// Whether it is one that must not be executed twice: then a file that it has opened is closed, and if it arrives
    /// later, it is not executed.
    #[prost(bool, tag = "2")]
    pub once: bool,
}

/// Requests whose outcomes the server need not store any longer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answered {
    /// Those that were sent once.
    #[prost(uint32, repeated, tag = "1")]
    pub ids: Vec<u32>,
    /// Those that were sent several times: further copies may arrive, and are not executed.
    #[prost(uint32, repeated, tag = "2")]
    pub repeated: Vec<u32>,
}

/// A lane that the client has lost.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LaneLost {
    /// The nonce of its Hello.
    #[prost(bytes = "bytes", tag = "1")]
    pub nonce: Bytes,
}

/// An open file whose version is requested.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Recheck {
    /// The open file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
}

/// An open file whose metadata is requested.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadMetadata {
    /// The open file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
}

/// The path of a request that has nothing else.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PathOf {
    /// Below the root.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

/// Where to look for data.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NextData {
    /// The open file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    /// First offset.
    #[prost(uint64, tag = "2")]
    pub from: u64,
}

/// An open file to close.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Close {
    /// The open file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
}

/// Small files to read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadWhole {
    /// Their paths.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub paths: Vec<Bytes>,
    /// Maximum length of each in bytes.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

/// A directory to create.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateDir {
    /// Its path.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// At most these permission bits.
    #[prost(uint32, optional, tag = "2")]
    pub mode: Option<u32>,
}

/// A link to create.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateLink {
    /// Its path.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Kind and target.
    #[prost(message, optional, tag = "2")]
    pub link: Option<Link>,
    /// Whether it replaces a file or link.
    #[prost(bool, tag = "3")]
    pub replace: bool,
}

/// An entry to rename.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Rename {
    /// Its path.
    #[prost(bytes = "bytes", tag = "1")]
    pub from: Bytes,
    /// Its new path.
    #[prost(bytes = "bytes", tag = "2")]
    pub to: Bytes,
}

/// A file to copy.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CopyFile {
    /// Its path.
    #[prost(bytes = "bytes", tag = "1")]
    pub from: Bytes,
    /// The path of the copy.
    #[prost(bytes = "bytes", tag = "2")]
    pub to: Bytes,
}

/// Metadata to set.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SetMetadata {
    /// The entry.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// The metadata.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<Metadata>,
}

/// A file whose digest is requested.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DigestOf {
    /// Its path.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// A [`code::DigestKind`](super::code::DigestKind).
    #[prost(int32, tag = "2")]
    pub kind: i32,
}

/// A part file to create or resume.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Create {
    /// The path of the finished file.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// How.
    #[prost(message, optional, tag = "2")]
    pub options: Option<CreateOptions>,
}

/// Ranges to record.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Record {
    /// The part file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    /// What has been written.
    #[prost(message, optional, tag = "2")]
    pub ranges: Option<Ranges>,
}

/// A part file to sync.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SyncPart {
    /// The part file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
}

/// A part file to commit.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Commit {
    /// The part file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    /// Its final length in bytes.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// How.
    #[prost(message, optional, tag = "3")]
    pub options: Option<CommitOptions>,
}

/// A part file to release.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Abort {
    /// The part file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    /// Whether it stays for a later run.
    #[prost(bool, tag = "2")]
    pub keep: bool,
}

/// A part file to read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Reopen {
    /// The part file.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    /// Whether reads bypass the page cache.
    #[prost(bool, tag = "2")]
    pub uncached: bool,
}

/// A small file to write.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WriteWhole {
    /// Its path.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Its content.
    #[prost(bytes = "bytes", tag = "2")]
    pub data: Bytes,
    /// How.
    #[prost(message, optional, tag = "3")]
    pub options: Option<CommitOptions>,
}
