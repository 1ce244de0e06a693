//! The types and traits that the engine and all backends of haul share.
//!
//! A [`Location`] names a file or directory, local or remote. A [`Storage`] is an opened location: everything below
//! its root is named by a [`RelPath`], which cannot escape that root. Data leaves a storage through
//! [`ReadAt`] and enters one through [`WriteAt`], both positional and concurrent, as [`Block`]s.
//! [`Capabilities`] describe what a storage can do; every failure is an [`Error`].
//!
//! This crate depends on no backend and no engine. With the feature `testing` it has the in-memory
//! backend (`memory`) and the conformance suite (`conformance`) that every backend has to pass.

mod block;
mod calendar;
mod capabilities;
mod digest;
mod entry;
mod environment;
mod error;
mod held;
pub mod hosts;
pub mod journal;
mod link_path;
mod location;
mod part;
mod path;
mod private;
mod range;
mod ranges;
mod read_only;
mod space;
mod storage;
mod stored_times;
pub mod text;
mod uploads;
mod work;

#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
pub mod memory;

pub use block::{Block, BufferPool, PooledBuffer, bytes_owning};
pub use capabilities::{Capabilities, Medium, Writes};
pub use digest::{Digest, DigestKind};
pub use entry::{
    Entry, EntryKind, FileId, Identity, Metadata, SpecialKind, Timestamp, UNKNOWN_SIZE, Xattrs,
};
pub use environment::{secret_variables, without_secrets};
pub use error::{Error, ErrorKind, Result, Retry, io_cause};
pub use held::{Held, SourceVersion};
pub use link_path::{LinkPath, PathKind};
pub use location::{Location, LocationError, Scheme, TicketText, ascii_host};
pub use part::{
    aside_name, is_moving_name, is_part_name, journal_name, moving_name, part_name,
    remote_journal_name, rewritten_journal_name, temporary_name, unique,
};
pub use path::{RelPath, RelPathError};
pub use private::{check_private, create_private, replace_private};
pub use range::Range;
pub use ranges::RangeSet;
pub use read_only::ReadOnly;
pub use space::{Space, Volume};
pub use storage::{
    BlockStream, CommitOptions, CreateOptions, EntryStream, LinkKind, LinkStatus, Lock, ReadAt,
    Replaces, SmallFile, Storage, StorageExt, Whole, WriteAt,
};
pub use stored_times::StoredTimes;
pub use uploads::{BriefClaim, Claim, Uploads};
pub use work::WorkPool;
