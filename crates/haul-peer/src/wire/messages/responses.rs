//! Responses of the server.

use std::fmt;

use bytes::Bytes;

use super::capabilities::Capabilities;
use super::values::{Digest, Empty, Entry, Error, Held, Identity, Metadata, Range, Space, Whole};

/// A message from server to client.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ToClient {
    /// The number of the request; 0 if there is none.
    #[prost(uint32, tag = "1")]
    pub id: u32,
    /// The response. Nothing if it is one of a later version.
    #[prost(
        oneof = "to_client::Body",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17"
    )]
    pub body: Option<to_client::Body>,
}

/// The bodies of [`ToClient`].
pub mod to_client {
    /// A response.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Body {
        /// The first message of a lane that is accepted.
        #[prost(message, tag = "2")]
        Welcome(super::Welcome),
        /// The only message of a lane that is refused, or the last one of a lane whose share has ended or ticket has
        /// expired.
        #[prost(message, tag = "3")]
        Refused(super::Refused),
        /// The request has succeeded.
        #[prost(message, tag = "4")]
        Done(super::Empty),
        /// The request has failed.
        #[prost(message, tag = "5")]
        Failed(super::Error),
        /// Entries of a Stat or List.
        #[prost(message, tag = "6")]
        Entries(super::Entries),
        /// A file is open for reading.
        #[prost(message, tag = "7")]
        Opened(super::Opened),
        /// Metadata.
        #[prost(message, tag = "8")]
        Metadata(super::Metadata),
        /// The version of an open file.
        #[prost(message, tag = "9")]
        Identity(super::Identity),
        /// The next range of data.
        #[prost(message, tag = "10")]
        FoundRange(super::FoundRange),
        /// Small files.
        #[prost(message, tag = "11")]
        Wholes(super::Wholes),
        /// A digest.
        #[prost(message, tag = "12")]
        DigestIs(super::DigestIs),
        /// Free space.
        #[prost(message, tag = "13")]
        SpaceIs(super::SpaceIs),
        /// The space that a file takes.
        #[prost(message, tag = "14")]
        AllocatedIs(super::AllocatedIs),
        /// A part file is open for writing.
        #[prost(message, tag = "15")]
        Created(super::Created),
        /// A read has reached its end or that of the file. Pieces of it may still arrive after this.
        #[prost(message, tag = "16")]
        ReadEnd(super::ReadEnd),
        /// The response to a Ping, or with the `id` 0, a sign of life of a lane that reads nothing.
        #[prost(message, tag = "17")]
        Pong(super::Empty),
    }
}

/// The lane is accepted.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Welcome {
    /// The version that both speak from now on.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The session, 16 bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub session: Bytes,
    /// The secret of the session's further lanes, 32 bytes. Not to be logged.
    #[prost(bytes = "bytes", tag = "3")]
    pub token: Bytes,
    /// The server's proof that it knows the secret or token, 32 bytes.
    #[prost(bytes = "bytes", tag = "4")]
    pub proof: Bytes,
    /// The name of the share, for display.
    #[prost(string, tag = "5")]
    pub name: String,
    /// Whether the client may write.
    #[prost(bool, tag = "6")]
    pub writable: bool,
    /// What the share can do.
    #[prost(message, optional, boxed, tag = "7")]
    pub capabilities: Option<Box<Capabilities>>,
    /// What the server accepts.
    #[prost(message, optional, tag = "8")]
    pub limits: Option<Limits>,
}

/// Without the token, which is a secret, and the proof.
impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Welcome")
            .field("version", &self.version)
            .field("session", &self.session)
            .field("name", &self.name)
            .field("writable", &self.writable)
            .field("capabilities", &self.capabilities)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What a server accepts.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Limits {
    /// Maximum length of a message in bytes.
    #[prost(uint32, tag = "1")]
    pub message: u32,
    /// Maximum data of a bulk frame in bytes.
    #[prost(uint32, tag = "2")]
    pub bulk: u32,
    /// Maximum number of open files of the session.
    #[prost(uint32, tag = "3")]
    pub handles: u32,
}

/// The lane is refused, or its session ends.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refused {
    /// A [`code::Refusal`](super::code::Refusal).
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The reason, for display.
    #[prost(string, tag = "2")]
    pub text: String,
}

/// Entries, or errors in their place.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Entries {
    /// For a Stat: one a path, in order.
    #[prost(message, repeated, tag = "1")]
    pub outcomes: Vec<EntryOutcome>,
    /// Whether no more follow.
    #[prost(bool, tag = "2")]
    pub last: bool,
}

/// An entry or an error.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EntryOutcome {
    /// One of the two.
    #[prost(oneof = "entry_outcome::Outcome", tags = "1, 2")]
    pub outcome: Option<entry_outcome::Outcome>,
}

/// The cases of [`EntryOutcome`].
pub mod entry_outcome {
    /// An entry or an error.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Outcome {
        /// The entry.
        #[prost(message, boxed, tag = "1")]
        Entry(Box<super::Entry>),
        /// The error.
        #[prost(message, boxed, tag = "2")]
        Error(Box<super::Error>),
    }
}

/// A file that is open for reading.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Opened {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    /// The version that was opened.
    #[prost(message, optional, tag = "2")]
    pub identity: Option<Identity>,
    /// Whether a read may start at any offset.
    #[prost(bool, tag = "3")]
    pub ranged: bool,
    /// The entry, if the server knows it.
    #[prost(message, optional, boxed, tag = "4")]
    pub entry: Option<Box<Entry>>,
    /// The first range that is not a hole, if the server knows it.
    #[prost(message, optional, tag = "5")]
    pub first: Option<FoundRange>,
}

/// A range of data.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoundRange {
    /// The range; nothing if only a hole is left.
    #[prost(message, optional, tag = "1")]
    pub range: Option<Range>,
}

/// Small files, or errors in their place.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Wholes {
    /// One a path, in order.
    #[prost(message, repeated, tag = "1")]
    pub outcomes: Vec<WholeOutcome>,
    /// Whether no more follow.
    #[prost(bool, tag = "2")]
    pub last: bool,
}

/// A small file or an error.
#[derive(Clone, PartialEq, prost::Message)]
pub struct WholeOutcome {
    /// One of the two.
    #[prost(oneof = "whole_outcome::Outcome", tags = "1, 2")]
    pub outcome: Option<whole_outcome::Outcome>,
}

/// The cases of [`WholeOutcome`].
pub mod whole_outcome {
    /// A small file or an error.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Outcome {
        /// The file.
        #[prost(message, boxed, tag = "1")]
        Whole(Box<super::Whole>),
        /// The error.
        #[prost(message, boxed, tag = "2")]
        Error(Box<super::Error>),
    }
}

/// The digest of a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DigestIs {
    /// The digest; nothing if the server has none of this kind.
    #[prost(message, optional, tag = "1")]
    pub digest: Option<Digest>,
}

/// Free space.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SpaceIs {
    /// The space; nothing if the server cannot tell.
    #[prost(message, optional, boxed, tag = "1")]
    pub space: Option<Box<Space>>,
}

/// The space that a file takes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AllocatedIs {
    /// Bytes; nothing if the server cannot tell.
    #[prost(uint64, optional, tag = "1")]
    pub bytes: Option<u64>,
}

/// A part file that is open for writing.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Created {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub handle: u32,
    /// What it holds from earlier runs.
    #[prost(message, optional, tag = "2")]
    pub held: Option<Held>,
}

/// The end of a read.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadEnd {
    /// The offset behind the last byte of its pieces.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
}
