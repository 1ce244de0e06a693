//! What the user has to know about uploads.

use std::fmt;
use std::sync::Arc;

use haul_storage::RelPath;

/// Something that a user has to know, and that no program reports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A file has changed or appeared on the server since it was opened here: the version from here has another name.
    Conflict {
        /// The file, which has the content of the server.
        path: RelPath,
        /// The copy, which has the content from here.
        copy: RelPath,
    },
    /// A file was open when an earlier mount ended, so it may be incomplete: it has another name instead of replacing
    /// the version on the server.
    LeftOpen {
        /// The file, which has the content of the server.
        path: RelPath,
        /// The copy, which has the content from here.
        copy: RelPath,
    },
    /// A file was changed or removed on the server before the parts of it that were not written here were fetched: what
    /// was written is in the spool, under another name, and cannot be uploaded.
    Incomplete {
        /// The file, which is as on the server.
        path: RelPath,
        /// The copy in the spool, of which only the parts that were written here can be read.
        copy: RelPath,
    },
    /// A file could not be replaced by a rename, and has not got its name back.
    Aside {
        /// The file, which does not exist any more.
        path: RelPath,
        /// Its content. The name is reserved, so the mount does not show it.
        aside: RelPath,
    },
    /// A file was open when the mount ended, and could not be recorded in the spool: what was written may be lost.
    Unrecorded {
        /// The file.
        path: RelPath,
        /// Why.
        error: String,
    },
    /// A file cannot be uploaded. It stays in the spool, and the upload is retried.
    Failed {
        /// The file.
        path: RelPath,
        /// Why.
        error: String,
    },
}

/// Where warnings go.
#[derive(Clone)]
pub(crate) struct Warnings(Arc<dyn Fn(&Warning) + Send + Sync>);

impl Warnings {
    pub(crate) fn new(report: impl Fn(&Warning) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    pub(super) fn report(&self, warning: &Warning) {
        (self.0)(warning);
    }
}

impl Default for Warnings {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Warnings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warnings")
    }
}
