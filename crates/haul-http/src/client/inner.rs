//! State that a storage, its listings and its uploads share.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_storage::{Capabilities, Error, ErrorKind, Location, RelPath, Uploads};

use tokio::sync::OnceCell;

use super::directories::Directories;
use super::exchange::Exchange;
use super::file::HttpFile;
use super::host::HttpHost;
use super::moving::Moving;
use super::quirks::Quirks;
use crate::parse::Url;
use crate::parse::href::encode_path;

/// The kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// A web server: files to read, and pages that list them.
    Web,
    /// WebDAV (RFC 4918).
    Dav,
}

/// State that a storage, its listings and its uploads share.
#[derive(Debug)]
pub struct Inner {
    pub(super) host: Arc<HttpHost>,
    pub(super) location: Location,
    /// The directory; it ends with a slash.
    pub(super) root: Url,
    pub(super) server_kind: ServerKind,
    pub(super) quirks: Quirks,
    pub(super) capabilities: Capabilities,
    pub(super) uploads: Uploads,
    pub(super) learnt: Learnt,
    pub(super) files: Files,
}

/// What was learnt about the server.
#[derive(Debug, Default)]
pub struct Learnt {
    /// What is known about MOVE.
    pub(super) moving: Moving,
    /// Directories that are known to exist.
    pub(super) directories: Directories,
    /// Whether the server has refused the entity tag that it reports, as a condition of a PUT.
    pub(super) misjudges_tags: AtomicBool,
    /// Files whose upload under the final name has begun, and has neither succeeded nor been undone.
    pub(super) begun: Mutex<HashSet<RelPath>>,
    /// Whether the server reports digests on request, once that was tried.
    pub(super) reports_digests: OnceCell<bool>,
}

/// Cached facts about some files.
#[derive(Debug, Default)]
pub struct Files {
    /// Files that were open before the storage ([`HttpStorage::put`](super::storage::HttpStorage::put)), until they are
    /// opened or read.
    opened: Mutex<HashMap<RelPath, HttpFile>>,
    /// URLs that do not follow from the path, such as those with a query or with other percent-encoding.
    given: Mutex<HashMap<RelPath, Url>>,
    /// Files that the user named. A stat of one of them does not need the index page of its directory.
    named: Mutex<HashSet<RelPath>>,
}

impl Inner {
    pub(super) fn exchange(&self) -> &Arc<Exchange> {
        self.host.exchange()
    }

    /// The URL of a file.
    pub(super) fn url(&self, path: &RelPath) -> Url {
        let usual = |root: &Url, below: &[u8]| {
            let slash = if root.path().ends_with('/') { "" } else { "/" };
            root.with_path(&format!("{}{slash}{}", root.path(), encode_path(below)))
        };
        let given = self.given();
        if let Some(given) = given.get(path) {
            return given.clone();
        }
        let above = |(at, _): &(&RelPath, &Url)| path.starts_with(at);
        if let Some((at, root)) = given.iter().find(above) {
            let below = &path.as_bytes()[at.as_bytes().len()..];
            return usual(root, below.strip_prefix(b"/").unwrap_or(below));
        }
        usual(&self.root, path.as_bytes())
    }

    /// The URL of a directory, with a slash at the end.
    pub(super) fn directory_url(&self, path: &RelPath) -> Url {
        if path.is_root() {
            return self.root.clone();
        }
        self.url(path).as_directory()
    }

    /// An `Unsupported` error with the location as the user wrote it.
    pub(super) fn unsupported(&self, operation: &'static str, path: &RelPath) -> Error {
        Error::new(ErrorKind::Unsupported, operation).at(self.location.display(path))
    }

    /// A file as the server's listings describe it.
    pub(super) fn as_listed(&self, file: HttpFile) -> HttpFile {
        if self.server_kind == ServerKind::Dav { file.without_tag() } else { file }
    }

    pub(super) fn opened(&self) -> MutexGuard<'_, HashMap<RelPath, HttpFile>> {
        self.files.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn named(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.files.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn given(&self) -> MutexGuard<'_, HashMap<RelPath, Url>> {
        self.files.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
