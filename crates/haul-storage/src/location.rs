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
//! A password in a location is refused: arguments can be read by every user of the machine.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::RelPath;
use crate::path::write_escaped;

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
    text: String,
    cause: String,
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", self.text.escape_debug(), self.cause)
    }
}

impl std::error::Error for LocationError {}

impl Location {
    /// Parses any of the forms above.
    pub fn parse(argument: impl AsRef<OsStr>) -> Result<Self, LocationError> {
        let argument = argument.as_ref();
        if argument.is_empty() {
            return Err(LocationError { text: String::new(), cause: "is empty".to_owned() });
        }
        let bytes = argument.as_encoded_bytes();
        if let Some((scheme, rest)) = split_scheme(bytes) {
            let fail = |cause: String| LocationError { text: masked(bytes), cause };
            let Some(scheme) = Scheme::parse(scheme) else {
                return Err(fail(format!("unknown scheme '{scheme}'")));
            };
            return parse_url(scheme, rest).map_err(fail);
        }
        if let Some(peer) = parse_ticket(bytes) {
            return Ok(peer);
        }
        if let Some(found) = parse_scp(bytes) {
            return found.map_err(|cause| LocationError { text: masked(bytes), cause });
        }
        Ok(Self::Local(PathBuf::from(argument)))
    }

    /// `name:path` read as scp's `host:path`; every other form stays as it is.
    #[must_use]
    pub fn as_ssh_host(self) -> Self {
        match self {
            Self::Named { name, path } => {
                Self::Remote { scheme: Scheme::Sftp, user: None, host: name, port: None, path }
            }
            other => other,
        }
    }

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
        if matches!(name, b"." | b".." | b"~") { b"" } else { name }
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

    /// This location with `path` below it, for people to read.
    pub fn display<'a>(&'a self, path: &'a RelPath) -> impl fmt::Display + 'a {
        DisplayBelow { location: self, path }
    }
}

struct DisplayBelow<'a> {
    location: &'a Location,
    path: &'a RelPath,
}

impl fmt::Display for DisplayBelow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_root() {
            return write!(f, "{}", self.location);
        }
        let base = self.location.path_bytes();
        if matches!(self.location, Location::Local(_)) && (base.is_empty() || base == b".") {
            return write!(f, "{}", self.path);
        }
        let slash = if base.is_empty() || base.ends_with(b"/") { "" } else { "/" };
        write!(f, "{}{slash}{}", self.location, self.path)
    }
}

/// As a user would write it. Safe for terminals and reports; not meant to be parsed again where the
/// path has bytes that are not UTF-8.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write_escaped(path.as_os_str().as_encoded_bytes(), f),
            Self::Remote { scheme, user, host, port, path } => {
                write!(f, "{}://", scheme.name())?;
                if let Some(user) = user {
                    write!(f, "{user}@")?;
                }
                if host.contains(':') {
                    write!(f, "[{host}]")?;
                } else {
                    f.write_str(host)?;
                }
                if let Some(port) = port {
                    write!(f, ":{port}")?;
                }
                if *scheme == Scheme::Sftp && !path.starts_with(b"/") {
                    f.write_str("/~/")?;
                }
                write_escaped(path, f)
            }
            Self::Named { name, path } => {
                write!(f, "{name}:")?;
                write_escaped(path, f)
            }
            Self::Peer { ticket, path } => {
                // A ticket is a secret: whoever has it may connect.
                write!(f, "{}…", &ticket[..ticket.len().min(9)])?;
                if !path.is_empty() {
                    f.write_str("/")?;
                }
                write_escaped(path, f)
            }
        }
    }
}

/// `scheme` and what follows `://`.
fn split_scheme(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let scheme = std::str::from_utf8(&bytes[..colon]).ok()?;
    let rest = bytes[colon..].strip_prefix(b"://")?;
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    valid.then_some((scheme, rest))
}

fn parse_url(scheme: Scheme, rest: &[u8]) -> Result<Location, String> {
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let authority =
        std::str::from_utf8(authority).map_err(|_| "the host is not UTF-8".to_owned())?;
    let (user, host_port) = split_user(authority)?;
    let (host, port) = parse_host_port(host_port)?;
    let decoded = percent_decode(path)?;
    if decoded.contains(&0) {
        return Err("the path has a NUL byte in it".to_owned());
    }
    let path = match decoded.strip_prefix(b"/~") {
        // `/~/x` and `/~`: below the home of the user.
        Some(home) if scheme == Scheme::Sftp && (home.is_empty() || home[0] == b'/') => {
            home.strip_prefix(b"/").unwrap_or(home).to_vec()
        }
        _ => decoded,
    };
    Ok(Location::Remote { scheme, user, host, port, path })
}

fn split_user(authority: &str) -> Result<(Option<String>, &str), String> {
    let Some((user, host)) = authority.rsplit_once('@') else { return Ok((None, authority)) };
    if user.contains(':') {
        return Err(
            "a password does not belong into a location, where every user of this machine \
             can read it; use HAUL_PASSWORD or password_command"
                .to_owned(),
        );
    }
    let user = percent_decode(user.as_bytes())?;
    let user = String::from_utf8(user).map_err(|_| "the user is not UTF-8".to_owned())?;
    if user.is_empty() || user.chars().any(char::is_control) {
        return Err("the user name is empty or has control characters".to_owned());
    }
    Ok((Some(user), host))
}

fn parse_host_port(text: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("'[' without ']'")?;
        if address.split('%').next().unwrap_or_default().parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("'{address}' is not an IPv6 address"));
        }
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':').ok_or("something other than ':' after ']'")?),
        };
        return Ok((address.to_owned(), parse_port(port)?));
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    check_host(host)?;
    Ok((host.to_owned(), parse_port(port)?))
}

fn parse_port(text: Option<&str>) -> Result<Option<u16>, String> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<u16>() {
        Ok(port) if port > 0 && !text.starts_with('+') => Ok(Some(port)),
        _ => Err(format!("'{text}' is not a port (1 to 65535)")),
    }
}

fn check_host(host: &str) -> Result<(), String> {
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    // A host that begins with a dash could be taken for an option by a ProxyCommand.
    if host.starts_with('-')
        || host.chars().any(|c| c.is_control() || " /\\?#@:[]<>%\"'".contains(c))
    {
        return Err(format!("'{}' is not a host name", host.escape_debug()));
    }
    Ok(())
}

fn percent_decode(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let digit = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(0), digit(1)) else {
            return Err("'%' without two hexadecimal digits; a '%' itself is '%25'".to_owned());
        };
        decoded.push((high * 16 + low) as u8);
        rest = &tail[2..];
    }
    Ok(decoded)
}

/// Tickets are `haul1` and at least 16 characters of base32; shorter is a file name.
fn parse_ticket(bytes: &[u8]) -> Option<Location> {
    let slash = bytes.iter().position(|byte| *byte == b'/');
    let (ticket, path) = bytes.split_at(slash.unwrap_or(bytes.len()));
    let code = ticket.strip_prefix(b"haul1")?;
    let is_base32 = code.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'));
    if code.len() < 16 || !is_base32 {
        return None;
    }
    let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
    Some(Location::Peer { ticket: String::from_utf8_lossy(ticket).into_owned(), path })
}

/// `[user@]host:path`, if there is a colon before the first slash; `None` means a local path.
fn parse_scp(bytes: &[u8]) -> Option<Result<Location, String>> {
    let end = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
    let head = &bytes[..end];
    // An IPv6 address in brackets has colons of its own.
    let host_start = head.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    let colon = if head[host_start..].starts_with(b"[") {
        let close = head.iter().position(|byte| *byte == b']')?;
        (head.get(close + 1) == Some(&b':')).then_some(close + 1)?
    } else {
        head.iter().position(|byte| *byte == b':')?
    };
    // `:x` has no host, and `C:\x` is a drive where there are drives.
    if colon == 0 || (cfg!(windows) && colon == 1) {
        return None;
    }
    let head = std::str::from_utf8(&bytes[..colon]).ok()?;
    Some(scp_parts(head, &bytes[colon + 1..]))
}

fn scp_parts(head: &str, path: &[u8]) -> Result<Location, String> {
    if path.contains(&0) {
        return Err("the path has a NUL byte in it".to_owned());
    }
    let (user, host) = split_user(head)?;
    let (host, port) = parse_host_port(host)?;
    debug_assert_eq!(port, None, "the text was cut at its colon");
    let path = path.strip_prefix(b"~/").unwrap_or(path).to_vec();
    if user.is_none() && !host.contains(':') {
        return Ok(Location::Named { name: host, path });
    }
    Ok(Location::Remote { scheme: Scheme::Sftp, user, host, port: None, path })
}

/// The argument for an error message, without what could be a password.
fn masked(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let start = text.find("://").map_or(0, |at| at + 3);
    let end = text[start..].find('/').map_or(text.len(), |slash| start + slash);
    let Some(at) = text[start..end].rfind('@') else { return text };
    match text[start..start + at].find(':') {
        Some(colon) => format!("{}***{}", &text[..=start + colon], &text[start + at..]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
