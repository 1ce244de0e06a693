//! What is asked of a check, and what it finds.

use std::path::PathBuf;
use std::time::Duration;

use haul_storage::{Error, RelPath, WorkPool};

use crate::digest::Digest;

/// How to check.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// Files that are read at once, at least one.
    pub parallel: usize,
    /// Bytes that may be in flight or waiting for their turn, of all files together.
    pub memory: u64,
    /// Also look for files that the manifest does not list. Manifests under their usual names in
    /// the base, and what haul has not finished, do not count.
    pub strict: bool,
    /// How often an operation that may succeed later is tried again.
    pub retries: u32,
    /// The first pause before trying again; it doubles each time, with jitter.
    pub retry_pause: Duration,
    /// An existing directory on this machine for what does not fit in memory: with `strict`, the
    /// names of more than 16 384 files.
    pub scratch: PathBuf,
    /// The threads that hash.
    pub pool: WorkPool,
}

/// What was found. Paths are below the storage's root.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerifyEvent {
    /// So many bytes more were read and hashed.
    Progress {
        /// Since the last such event.
        bytes: u64,
    },
    /// A file is what the manifest says.
    Matched {
        /// The file.
        path: RelPath,
        /// Its length.
        bytes: u64,
        /// A server reported its digest; it was not read.
        reported: bool,
    },
    /// A file is something else than the manifest says.
    Mismatched {
        /// The file.
        path: RelPath,
        /// What it should be.
        expected: Digest,
        /// What it is.
        actual: Digest,
    },
    /// There is no such file.
    Missing {
        /// Where it should be.
        path: RelPath,
    },
    /// A file, or with `strict` a directory, cannot be read; or it changed meanwhile.
    Unreadable {
        /// What.
        path: RelPath,
        /// Why.
        error: Error,
    },
    /// A file that the manifest does not list (only with `strict`).
    Extra {
        /// The file.
        path: RelPath,
    },
    /// A line of the manifest makes no sense, or its name leads out of the base.
    Malformed {
        /// Which line, counted from 1.
        line: u64,
        /// Names the manifest, the line and what is wrong with it.
        error: Error,
    },
    /// An operation failed in a way that may pass, and is going to be tried again.
    Retry {
        /// With which file.
        path: RelPath,
        /// What happened.
        error: Error,
        /// Which try this will be; the first retry is 1.
        attempt: u32,
        /// The pause before it.
        pause: Duration,
    },
}

/// Where events go within this module.
pub(crate) type Hear<'a> = &'a (dyn Fn(VerifyEvent) + Send + Sync);
