//! Locations: the paths and URLs that a user gives on the command line.
//!
//! | form | meaning |
//! |---|---|
//! | `path`, `./a:b` | a local path; a `:` after the first `/` is part of it |
//! | `file:///path` | a local path |
//! | `sftp://[user@]host[:port]/path` | SFTP; `/path` from the root, `/~/path` from the home |
//! | `user@host:path` | SFTP as scp writes it; a path without `/` is below the home |
//! | `name:path` | a `[remote.name]` of the configuration, `ticket:` or `peer:`, or else scp's `host:path` |
//! | `http://`, `https://`, `dav://`, `davs://`, `webdav://`, `webdavs://` | HTTP, WebDAV |
//! | `ftp://`, `ftps://` | FTP, FTP over TLS |
//! | `haul1…[/path]` | a peer's ticket, in lower or upper case |
//!
//! URLs are percent-decoded; all other forms are taken literally. The path of a web URL is also stored as
//! written if re-encoding would change it, because servers may distinguish `%2B` from `+`. An encoded `/`
//! (`%2F`) in it stays encoded: no file name contains one. In `http` and `https` URLs, `?` begins a query, stored
//! as written because it may contain a signature of the URL, and `#` begins a fragment, which is dropped as
//! in every client. In all other URLs both are part of the path. A non-ASCII host name (`bücher.example`) is
//! converted to its IDNA form (`xn--bcher-kva.example`), which is also the one displayed.
//!
//! Not recognized here, but taken for local paths: `@FILE` and spoken codes (`7-orbit-candle`). A caller that accepts
//! these has to look for them before it parses.
//!
//! A location has one host. An argument with a list of hosts is a [`ManyHosts`], which yields a location
//! per host.
//!
//! [`ManyHosts`]: crate::hosts::ManyHosts
//!
//! A password in a location is rejected: every user of the machine can read arguments. Error messages never
//! repeat a possible password, a whole ticket, or a query (signed URLs have their signature there).

mod display;
mod parse;
mod ticket;

pub use parse::ascii_host;
pub use ticket::TicketText;

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

    /// The scheme's name as written in a location.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, scheme)| *scheme == self).map_or("", |(name, _)| name)
    }

    /// The port of servers whose location has none. `ftps` is FTP that switches to TLS (RFC 4217), at the port of FTP.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Sftp => 22,
            Self::Http | Self::Dav => 80,
            Self::Https | Self::Davs => 443,
            Self::Ftp | Self::Ftps => 21,
        }
    }

    /// True if URLs of this scheme can have a query and a fragment.
    const fn has_query(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// True for HTTP and WebDAV.
    fn is_web(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::Dav | Self::Davs)
    }

    fn parse(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        found.map(|(_, scheme)| *scheme)
    }
}

/// The location of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// A local path.
    Local(PathBuf),
    /// A path on a server.
    Remote {
        /// The protocol.
        scheme: Scheme,
        /// User name, if given.
        user: Option<String>,
        /// Host name or address; an IPv6 address has no brackets.
        host: String,
        /// Port, if given.
        port: Option<u16>,
        /// The path, percent-decoded; for SFTP, a path without a leading `/` is relative to the home directory.
        path: Vec<u8>,
        /// The query of an `http` or `https` URL, as written; `None` for all other schemes.
        query: Option<String>,
        /// The path of a web URL as written, if percent-encoding `path` gives a different one.
        written: Option<String>,
    },
    /// `name:path`: a remote of the configuration, a peer (`ticket:`, `peer:NAME/`), or else an SSH host. The
    /// caller that has the configuration decides; see [`Location::as_ssh_host`].
    Named {
        /// The text before the colon.
        name: String,
        /// The text after the colon.
        path: Vec<u8>,
    },
    /// A file or directory that a peer shares.
    Peer {
        /// The ticket, `haul1…`; or a spoken code, set by a caller that has recognized one.
        ticket: TicketText,
        /// Path within the share.
        path: Vec<u8>,
    },
}

/// Why an argument is not a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationError {
    /// The argument, with possible secrets masked.
    text: String,
    /// A fixed message, so that it cannot repeat any of the argument.
    cause: &'static str,
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", self.text.escape_debug(), self.cause)
    }
}

impl std::error::Error for LocationError {}

impl Location {
    /// True if the path ends with a slash: for a source the content of the directory, for a destination
    /// the directory to copy into.
    pub fn has_trailing_slash(&self) -> bool {
        self.path_bytes().ends_with(b"/")
    }

    /// The last component of the path; empty if there is none (`/`, `.`, `..`, a bare host).
    pub fn base_name(&self) -> &[u8] {
        if let Self::Local(path) = self {
            return path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
        }
        let mut parts = self.path_bytes().rsplit(|byte| *byte == b'/');
        let name = parts.find(|part| !part.is_empty()).unwrap_or_default();
        if matches!(name, b"." | b"..") { b"" } else { name }
    }

    /// Splits into the parent directory and the name in it; `None` for a root, a bare host, `.`, `..`, or a
    /// URL with a query.
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
                // `parent` ignores a trailing `/` or `/.`, as `file_name` does.
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

    /// Removes slashes at the end of the path; a root keeps one.
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

    /// The path as bytes: as written, or percent-decoded from a URL.
    pub fn path_bytes(&self) -> &[u8] {
        match self {
            Self::Local(path) => path.as_os_str().as_encoded_bytes(),
            Self::Remote { path, .. } | Self::Named { path, .. } | Self::Peer { path, .. } => path,
        }
    }

    /// The path of a local location.
    pub fn as_local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            _ => None,
        }
    }

    /// True for HTTP and WebDAV locations.
    pub fn is_web(&self) -> bool {
        matches!(self, Self::Remote { scheme, .. } if scheme.is_web())
    }

    fn is_sftp(&self) -> bool {
        matches!(self, Self::Remote { scheme: Scheme::Sftp, .. })
    }
}

#[cfg(test)]
mod tests;
