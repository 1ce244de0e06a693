//! Prints locations, in the syntax in which users write them.

use std::fmt;

use super::Location;
use super::parse::{looks_like_ticket, split_scheme, split_scp};
use super::ticket::shown_of_ticket;
use crate::{RelPath, text};

impl Location {
    /// This location with `path` below it, for display.
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
        // The query belongs to the location itself, not to paths below it.
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

/// As a user would write it. Parsing the result gives the same location, except for tickets and queries,
/// which are secrets, and for what `text::name` escapes outside of URLs: control characters, invalid UTF-8,
/// and backslashes before three octal digits. Safe for terminals and reports.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Bare(self))?;
        // The query of a signed URL contains the signature, which grants access.
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
                // `a:b` and names like tickets would be parsed as something else.
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
                    // A zone, as in RFC 6874.
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
                // An absolute path that would be parsed as one below the home directory.
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
                // A ticket is a secret, because it permits connecting.
                write!(f, "{}…", shown_of_ticket(ticket.expose()))?;
                if !path.is_empty() {
                    f.write_str("/")?;
                }
                text::name(path).fmt(f)
            }
        }
    }
}

/// Prints a path that is already encoded.
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

/// Prints a path or user in a URL. Encodes only `%`, `?`, `#`, invalid UTF-8, and what would control a terminal.
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
