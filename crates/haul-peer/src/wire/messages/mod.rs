//! The messages of the peer protocol: protobuf, package `haul.peer.v1`, described in `docs/peer-protocol.md`.
//!
//! Rules for later versions: a field number never changes its meaning; receivers ignore unknown fields; a value
//! that an older peer would misunderstand is sent only after both agreed on the newer version in Hello and Welcome.
//!
//! These are plain containers: nothing in a decoded message has been checked. [`convert`](super::convert) does.

mod capabilities;
pub mod code;
mod requests;
mod responses;
mod values;

pub use capabilities::{Capabilities, KeptTimes};
pub use requests::{
    Abort, Answered, Cancel, Close, Commit, CopyFile, Create, CreateDir, CreateLink, DigestOf,
    Hello, LaneLost, List, More, NextData, Open, PathOf, Read, ReadMetadata, ReadWhole, Recheck,
    Record, Rename, Reopen, SetMetadata, Stat, SyncPart, ToServer, WriteWhole, to_server,
};
pub use responses::{
    AllocatedIs, Created, DigestIs, Entries, EntryOutcome, FoundRange, Limits, Opened, ReadEnd,
    Refused, SpaceIs, ToClient, Welcome, WholeOutcome, Wholes, entry_outcome, to_client,
    whole_outcome,
};
pub use values::{
    CommitOptions, CreateOptions, Digest, Empty, Entry, Error, FileId, Held, Identity, Link,
    Metadata, Owner, Range, Ranges, SourceVersion, Space, Time, Volume, Whole, Xattr, Xattrs, held,
    link,
};
