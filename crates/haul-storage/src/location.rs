//! Where something is, as a user writes it.
//!
//! | form | meaning |
//! |---|---|
//! | `path`, `./a:b` | a local path; a `:` after the first `/` is part of it |
//! | `sftp://[user@]host[:port]/path` | SFTP; `/path` from the root, `/~/path` from the home |
//! | `user@host:path` | SFTP as scp writes it; a path without `/` is below the home |
//! | `name:path` | a `[remote.name]` of the configuration, or else scp's `host:path` |
//! | `http://`, `https://`, `dav://`, `davs://`, `webdav://`, `webdavs://` | HTTP, WebDAV |
//! | `ftp://`, `ftps://` | FTP, FTP over TLS |
//! | `haul1…[/path]` | a peer's ticket |
//!
//! What stands in a URL is percent-decoded; what stands in any other form is taken as it is. The path of a
//! web URL is kept as written as well, where encoding it anew would give another one: servers may tell
//! `%2B` from `+`. An encoded `/` (`%2F`) stays encoded, for no file has one in its name. A `?` in
//! the URL of a web page (`http`, `https`) begins a query, which is kept as written: it can be a
//! signature over itself. A `#` there begins a fragment, which is left out as every client does. In
//! all other URLs both are part of the path. A host name with letters beyond ASCII (`bücher.example`) becomes
//! the name that DNS knows (`xn--bcher-kva.example`), which is what is shown.
//!
//! A location has one host. An argument with a list of hosts is a [`ManyHosts`], which becomes a
//! location when one of them is put in.
//!
//! [`ManyHosts`]: crate::hosts::ManyHosts
//!
//! A password in a location is refused: arguments can be read by every user of the machine. No
//! error repeats what could be one, nor a whole ticket, nor a query, in which signed URLs have their
//! signatures.

mod display;
mod parse;

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// The protocol of a location on another machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// SFTP over SSH.
    Sftp,
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// WebDAV over plain HTTP.
    Dav,
    /// WebDAV over TLS.
    Davs,
    /// FTP.
    Ftp,
    /// FTP over TLS.
    Ftps,
}

impl Scheme {
    const NAMES: [(&str, Self); 9] = [
        ("sftp", Self::Sftp),
        ("http", Self::Http),
        ("https", Self::Https),
        ("dav", Self::Dav),
        ("davs", Self::Davs),
        ("ftp", Self::Ftp),
        ("ftps", Self::Ftps),
        ("webdav", Self::Dav),
        ("webdavs", Self::Davs),
    ];

    /// The scheme as it is written in a location.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, scheme)| *scheme == self).map_or("", |(name, _)| name)
    }

    /// Whether its URLs have a query and a fragment.
    const fn has_query(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether it is spoken by web servers.
    fn is_web(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::Dav | Self::Davs)
    }

    fn parse(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        found.map(|(_, scheme)| *scheme)
    }
}

/// Where something is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// On a disk of this machine.
    Local(PathBuf),
    /// On a server.
    Remote {
        /// How to talk to it.
        scheme: Scheme,
        /// As whom, if said.
        user: Option<String>,
        /// Host name or address; an IPv6 address is without its brackets.
        host: String,
        /// Port, if said.
        port: Option<u16>,
        /// Path as written, percent-decoded; for SFTP one without a leading `/` is below the home.
        path: Vec<u8>,
        /// What follows `?` in the URL of a web page, as written; `None` for all other schemes.
        query: Option<String>,
        /// The path of a web URL as written, where percent-encoding `path` gives another one.
        written: Option<String>,
    },
    /// `name:path`: a remote of the configuration, or else an SSH host. Whoever has the
    /// configuration decides; see [`Location::as_ssh_host`].
    Named {
        /// What stands before the colon.
        name: String,
        /// What stands after it.
        path: Vec<u8>,
    },
    /// What a peer shares.
    Peer {
        /// The ticket, `haul1…`.
        ticket: String,
        /// Path within the share.
        path: Vec<u8>,
    },
}

/// Why an argument is not a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationError {
    /// The argument, without what could be a secret in it.
    text: String,
    /// Fixed words, so that nothing of the argument can be in them.
    cause: &'static str,
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", self.text.escape_debug(), self.cause)
    }
}

impl std::error::Error for LocationError {}

impl Location {
    /// Whether it is written with a slash at the end: "what is in it" for a source, "into it" for a
    /// destination.
    pub fn has_trailing_slash(&self) -> bool {
        self.path_bytes().ends_with(b"/")
    }

    /// The last component of the path; empty if there is none (`/`, `..`, a bare host).
    pub fn base_name(&self) -> &[u8] {
        if let Self::Local(path) = self {
            return path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
        }
        let mut parts = self.path_bytes().rsplit(|byte| *byte == b'/');
        let name = parts.find(|part| !part.is_empty()).unwrap_or_default();
        if matches!(name, b"." | b"..") { b"" } else { name }
    }

    /// The directory that holds it, and its name there; `None` where it has none: a root, a bare host,
    /// `..`, a URL with a query.
    pub fn split_name(&self) -> Option<(Self, Vec<u8>)> {
        let name = self.base_name().to_vec();
        if name.is_empty() {
            return None;
        }
        let cut = |path: &[u8]| {
            let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
            path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1)
        };
        let mut directory = self.clone();
        match &mut directory {
            Self::Local(path) => {
                // `a/.` and `a/` are `a`, as `file_name` sees them.
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                *path = above.map_or_else(|| PathBuf::from("."), Path::to_owned);
            }
            Self::Remote { query: Some(_), .. } => return None,
            Self::Remote { path, written, .. } => {
                path.truncate(cut(path));
                if let Some(written) = written {
                    written.truncate(cut(written.as_bytes()));
                }
            }
            Self::Named { path, .. } | Self::Peer { path, .. } => path.truncate(cut(path)),
        }
        Some((directory, name))
    }

    /// The same without slashes at its end; a root keeps its own.
    #[must_use]
    pub fn without_trailing_slash(mut self) -> Self {
        let trim = |path: &mut Vec<u8>| {
            while path.len() > 1 && path.ends_with(b"/") {
                path.pop();
            }
        };
        match &mut self {
            Self::Local(path) => *path = path.components().collect(),
            Self::Remote { path, written, .. } => {
                trim(path);
                if let Some(written) = written {
                    written.truncate(written.trim_end_matches('/').len().max(1));
                }
            }
            Self::Named { path, .. } | Self::Peer { path, .. } => trim(path),
        }
        self
    }

    /// The path as bytes, as written.
    pub fn path_bytes(&self) -> &[u8] {
        match self {
            Self::Local(path) => path.as_os_str().as_encoded_bytes(),
            Self::Remote { path, .. } | Self::Named { path, .. } | Self::Peer { path, .. } => path,
        }
    }

    /// The local path, if it is one.
    pub fn as_local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            _ => None,
        }
    }

    /// Whether it is on a web server.
    pub fn is_web(&self) -> bool {
        matches!(self, Self::Remote { scheme, .. } if scheme.is_web())
    }

    fn is_sftp(&self) -> bool {
        matches!(self, Self::Remote { scheme: Scheme::Sftp, .. })
    }
}

#[cfg(test)]
mod tests;
