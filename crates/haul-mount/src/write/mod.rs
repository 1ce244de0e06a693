//! Writing: files in the spool, their uploads, and changes of names.
//!
//! ```text
//! CREATE, OPEN, WRITE ─► handles ─► Pending (content in the spool) ◄─ fill (what was not written, from the server)
//!                                      │ closed, or fsync
//!                                      ▼
//!                                   upload ─► send ─► Storage::write_whole, or create, write_at, commit
//! MKDIR, UNLINK, RENAME, … ─► namespace, rename ─► Storage, and the spool's files at these paths or below
//! ```
//!
//! What is written to a file exists in the spool alone until its upload is done. `overlay` has these files by their
//! paths: they are shown, and read, instead of the storage's. A new file that is only in the spool is renamed and
//! removed there; other changes of names reach the storage at once. A file is not renamed or removed while it is being
//! uploaded: each file has a gate for that.

mod attributes;
mod beside;
mod changes;
mod compare;
mod conflict;
mod content;
mod fill;
mod handles;
mod kernel;
mod namespace;
mod overlay;
mod pending;
mod record;
mod rename;
mod send;
mod sent;
mod spool;
mod state;
#[cfg(test)]
mod tests;
mod upload;
mod warning;

pub(crate) use changes::{Changes, WriteOptions};
pub(crate) use overlay::Overlay;
pub(crate) use spool::Spool;
pub use spool::{PendingFile, pending_files};
pub use warning::Warning;
pub(crate) use warning::Warnings;
