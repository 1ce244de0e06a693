//! Options and events of `verify`.

use std::path::PathBuf;
use std::time::Duration;

use haul_storage::{Error, RelPath, WorkPool};

use crate::digest::Digest;

/// Options of `verify`.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Files to read at once, at least one.
    pub parallel: usize,
    /// Most bytes in flight or waiting to be hashed, of all files together.
    pub memory: u64,
    /// Also report files that the manifest does not list, except the manifest itself, manifests with default
    /// names in the base, and temporary files of haul, such as part files and journals.
    pub strict: bool,
    /// How often a transient failure is retried.
    pub retries: u32,
    /// The pause before the first retry; it doubles each time, with jitter.
    pub retry_pause: Duration,
    /// An existing local directory for data that do not fit into memory: with `strict`, the names of 16 384 or
    /// more files, or 4 MiB of names.
    pub scratch: PathBuf,
    /// The threads that hash.
    pub pool: WorkPool,
}

/// A result or event. Paths are relative to the storage's root.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerifyEvent {
    /// Bytes were hashed: read from the file, or those of a hole.
    Progress {
        /// Their number.
        bytes: u64,
    },
    /// A file has the digest in the manifest.
    Matched {
        /// The file.
        path: RelPath,
        /// Its length.
        bytes: u64,
        /// A server reported its digest; it was not read.
        reported: bool,
    },
    /// A file has another digest than in the manifest.
    Mismatched {
        /// The file.
        path: RelPath,
        /// The digest in the manifest.
        expected: Digest,
        /// The digest of the file.
        actual: Digest,
    },
    /// A listed file does not exist.
    Missing {
        /// The listed path.
        path: RelPath,
    },
    /// A file, or with `strict` a directory, cannot be read, or has changed while it was read.
    Unreadable {
        /// The file or directory.
        path: RelPath,
        /// The cause.
        error: Error,
    },
    /// A file that the manifest does not list (only with `strict`).
    Extra {
        /// The file.
        path: RelPath,
    },
    /// A line of the manifest is malformed, or its path is outside the base.
    Malformed {
        /// The line number, counted from 1.
        line: u64,
        /// Names the manifest, the line and the cause.
        error: Error,
    },
    /// An operation had a transient failure and will be retried.
    Retry {
        /// The file.
        path: RelPath,
        /// The failure.
        error: Error,
        /// The number of this retry since the operation last made progress, counted from 1.
        attempt: u32,
        /// The pause before the retry.
        pause: Duration,
    },
}

/// The callback for events.
pub(crate) type Events<'a> = &'a (dyn Fn(VerifyEvent) + Send + Sync);
