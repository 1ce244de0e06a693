//! Arguments with a list of hosts in place of the host.
//!
//! ```text
//! ada@node[01-20]:/dir/          → ada@        node[01-20]   :/dir/
//! sftp://ada@node[1-3]:2222/dir/ → sftp://ada@ node[1-3]     :2222/dir/
//! ```
//!
//! With one host inserted, the argument is parsed like any other location, so the same rules hold: IPv6
//! addresses in brackets are not lists, a local name with a colon needs `./` before it, and passwords
//! are refused.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::{HostList, HostListError};

/// `HEAD list TAIL`.
#[derive(Clone, PartialEq, Eq)]
pub struct ManyHosts {
    head: Vec<u8>,
    list: String,
    tail: Vec<u8>,
}

impl ManyHosts {
    /// Finds the list in an argument; `None` if the argument has a single host, or none.
    pub fn find(argument: &OsStr) -> Option<Self> {
        let split = Self::split(argument)?;
        let is_address = split.list.starts_with('[')
            && split.list.find(']') == Some(split.list.len() - 1)
            && !split.list[1..split.list.len() - 1].chars().all(|c| "0123456789,-".contains(c));
        (split.list.contains(['[', ',']) && !is_address).then_some(split)
    }

    /// Finds the position of the host in an argument that omits it: `:/dir/`, `ada@:/dir/`,
    /// `sftp://ada@:2222/dir/`. `None` if the argument has a host, or is a path.
    pub fn find_without_hosts(argument: &OsStr) -> Option<Self> {
        Self::split(argument).filter(|split| split.list.is_empty())
    }

    /// The hosts in the argument.
    ///
    /// # Errors
    /// Those of [`HostList::parse`].
    pub fn hosts(&self) -> Result<HostList, HostListError> {
        HostList::parse(&self.list)
    }

    /// The argument for one host, to be parsed as a location.
    pub fn with(&self, host: &str) -> OsString {
        OsString::from_vec([&self.head, host.as_bytes(), &self.tail].concat())
    }

    fn split(argument: &OsStr) -> Option<Self> {
        let bytes = argument.as_bytes();
        let start = scheme_length(bytes);
        // A local path.
        if bytes[..start].eq_ignore_ascii_case(b"file://") {
            return None;
        }
        // In a URL, the query or fragment ends the host too.
        let ends = |byte: &u8| *byte == b'/' || start > 0 && matches!(byte, b'?' | b'#');
        let end = bytes[start..].iter().position(ends);
        let authority = &bytes[start..end.map_or(bytes.len(), |end| start + end)];
        let colon = colon_outside_of_brackets(authority);
        // In a URL the port or the path ends the host; `host:path` needs its colon.
        let end = match colon {
            Some(colon) if start == 0 => colon,
            None if start == 0 => return None,
            _ => {
                // A colon in the user is a password, which parsing refuses.
                let at = authority.iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
                colon_outside_of_brackets(&authority[at..])
                    .map_or(authority.len(), |colon| at + colon)
            }
        };
        let ats = || authority[..end].iter().enumerate().filter(|(_, byte)| **byte == b'@');
        let mut host = ats().next_back().map_or(0, |(at, _)| at + 1);
        // In `ada@a,bob@b` the list begins after the first `@` and is refused for its second one.
        if authority[..host].contains(&b',') {
            host = ats().next().map_or(0, |(at, _)| at + 1);
        }
        let list = std::str::from_utf8(&authority[host..end]).ok()?.to_owned();
        let head = bytes[..start + host].to_vec();
        Some(Self { head, list, tail: bytes[start + end..].to_vec() })
    }
}

/// Without head and tail, which may contain a password that has not been refused yet.
impl std::fmt::Debug for ManyHosts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ManyHosts").field(&self.list).finish()
    }
}

/// The length of `scheme://` at the start; 0 if there is none.
fn scheme_length(bytes: &[u8]) -> usize {
    let Some(colon) = bytes.iter().position(|byte| *byte == b':') else { return 0 };
    let is_scheme = bytes[..colon].iter().all(|byte| byte.is_ascii_alphanumeric())
        && bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes[colon..].starts_with(b"://");
    if is_scheme { colon + "://".len() } else { 0 }
}

fn colon_outside_of_brackets(bytes: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    bytes.iter().position(|byte| {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        *byte == b':' && depth == 0
    })
}
