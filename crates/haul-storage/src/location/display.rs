//! A location as a person reads it, and may write it.

use std::fmt;

use super::Location;
use super::parse::{looks_like_ticket, shown_of_ticket, split_scheme, split_scp};
use crate::{RelPath, text};

impl Location {
    /// This location with `path` below it, for people to read.
    pub fn display<'a>(&'a self, path: &'a RelPath) -> impl fmt::Display + 'a {
        Below { location: self, path }
    }
}

struct Below<'a> {
    location: &'a Location,
    path: &'a RelPath,
}

impl fmt::Display for Below<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_root() {
            return write!(f, "{}", self.location);
        }
        let base = self.location.path_bytes();
        if matches!(self.location, Location::Local(_)) && (base.is_empty() || base == b".") {
            return write!(f, "{}", self.path);
        }
        let slash = if base.is_empty() || base.ends_with(b"/") { "" } else { "/" };
        // What is below has no query.
        write!(f, "{}{slash}", Bare(self.location))?;
        match self.location {
            Location::Remote { path, .. } if path.is_empty() && !self.location.is_sftp() => {
                f.write_str("/")?;
                write_encoded(self.path.as_bytes(), f)
            }
            Location::Remote { .. } => write_encoded(self.path.as_bytes(), f),
            _ => write!(f, "{}", self.path),
        }
    }
}

/// As a user would write it; parsed again it is the same location, but for tickets and queries, which
/// are secrets, and for control characters and bytes that are not UTF-8 outside of URLs. Safe for
/// terminals and reports.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Bare(self))?;
        // A signed URL has its signature there: whoever has it may do what it allows.
        let has_query = matches!(self, Self::Remote { query: Some(_), .. });
        f.write_str(if has_query { "?…" } else { "" })
    }
}

/// A location without its query.
struct Bare<'a>(&'a Location);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let location = self.0;
        match location {
            Location::Local(path) => {
                let bytes = path.as_os_str().as_encoded_bytes();
                // `a:b` and what looks like a ticket would be something else.
                let unclear = split_scheme(bytes).is_some()
                    || split_scp(bytes).is_some()
                    || looks_like_ticket(bytes);
                f.write_str(if unclear { "./" } else { "" })?;
                text::name(if bytes.is_empty() { b"." } else { bytes }).fmt(f)
            }
            Location::Remote { scheme, user, host, port, path, query: _, written } => {
                write!(f, "{}://", scheme.name())?;
                if let Some(user) = user {
                    write_encoded(user.as_bytes(), f)?;
                    f.write_str("@")?;
                }
                match host.split_once('%') {
                    // A zone, as RFC 6874 wants it.
                    Some((address, zone)) => write!(f, "[{address}%25{zone}]")?,
                    None if host.contains(':') => write!(f, "[{host}]")?,
                    None => f.write_str(host)?,
                }
                if let Some(port) = port {
                    write!(f, ":{port}")?;
                }
                if let Some(written) = written {
                    return write_written(written, f);
                }
                if location.is_sftp() && !path.starts_with(b"/") {
                    f.write_str("/~/")?;
                }
                if !location.is_sftp() && !path.is_empty() && !path.starts_with(b"/") {
                    f.write_str("/")?;
                }
                // An absolute path that begins like one below the home.
                match path.strip_prefix(b"/~") {
                    Some(rest)
                        if location.is_sftp() && matches!(rest.first(), None | Some(b'/')) =>
                    {
                        f.write_str("/%7E")?;
                        write_encoded(rest, f)
                    }
                    _ => write_encoded(path, f),
                }
            }
            Location::Named { name, path } => {
                write!(f, "{name}:")?;
                text::name(path).fmt(f)
            }
            Location::Peer { ticket, path } => {
                // A ticket is a secret: whoever has it may connect.
                write!(f, "{}…", shown_of_ticket(ticket))?;
                if !path.is_empty() {
                    f.write_str("/")?;
                }
                text::name(path).fmt(f)
            }
        }
    }
}

/// A path that is encoded already.
fn write_written(path: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write as _;
    for character in path.chars() {
        if text::steers_a_terminal(character) {
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                write!(f, "%{byte:02X}")?;
            }
        } else {
            f.write_char(character)?;
        }
    }
    Ok(())
}

/// The part of a path or user in a URL: readable as far as it is parsed again to the same bytes.
fn write_encoded(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write as _;
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if text::steers_a_terminal(character) || "%?#".contains(character) {
                let mut buffer = [0; 4];
                for byte in character.encode_utf8(&mut buffer).bytes() {
                    write!(f, "%{byte:02X}")?;
                }
            } else {
                f.write_char(character)?;
            }
        }
        for byte in chunk.invalid() {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}
