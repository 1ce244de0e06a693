//! Parses a command-line argument into a [`Location`].

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use super::ticket::{TicketText, WHOLE_TICKET, shown_of_ticket};
use super::{Location, LocationError, Scheme};

/// The parsed value, or a fixed message that repeats nothing of the argument.
type Parsed<T> = Result<T, &'static str>;

impl Location {
    /// Parses any of the forms listed in the module's documentation.
    ///
    /// # Errors
    /// If the argument has none of these forms, or has a part that the form does not allow.
    pub fn parse(argument: impl AsRef<OsStr>) -> Result<Self, LocationError> {
        location(argument.as_ref())
    }

    /// Converts `name:path` to scp's `host:path`; other forms are returned unchanged.
    #[must_use]
    pub fn as_ssh_host(self) -> Self {
        match self {
            Self::Named { name, path } => {
                let scheme = Scheme::Sftp;
                // Parsing has verified that the name is a valid host name.
                let host = parse_name(&name).unwrap_or(name);
                let (user, port, query, written) = (None, None, None, None);
                Self::Remote { scheme, user, host, port, path, query, written }
            }
            other => other,
        }
    }
}

fn location(argument: &OsStr) -> Result<Location, LocationError> {
    if argument.is_empty() {
        return Err(LocationError { text: String::new(), cause: "is empty" });
    }
    let bytes = argument.as_encoded_bytes();
    let parsed = if bytes.contains(&0) {
        Err("it has a NUL byte")
    } else if let Some(path) = file_url(bytes) {
        path.map(|path| Location::Local(PathBuf::from(OsString::from_vec(path))))
    } else if let Some((scheme, rest)) = split_scheme(bytes) {
        let known = Scheme::parse(scheme).ok_or(UNKNOWN_SCHEME);
        known.and_then(|scheme| parse_url(scheme, rest))
    } else if looks_like_ticket(bytes) {
        parse_ticket(bytes)
    } else if let Some((head, path)) = split_scp(bytes) {
        parse_scp(head, path)
    } else {
        Ok(Location::Local(PathBuf::from(argument)))
    };
    parsed.map_err(|cause| LocationError { text: masked(bytes), cause })
}

/// Splits `scheme://rest` into `scheme` and `rest`.
pub(super) fn split_scheme(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let colon = bytes.iter().position(|byte| *byte == b':')?;
    let scheme = std::str::from_utf8(&bytes[..colon]).ok()?;
    let rest = bytes[colon..].strip_prefix(b"://")?;
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    valid.then_some((scheme, rest))
}

/// The decoded path of a `file:` URL (RFC 8089); `None` for anything else.
fn file_url(bytes: &[u8]) -> Option<Parsed<Vec<u8>>> {
    let (scheme, rest) = split_scheme(bytes)?;
    if !scheme.eq_ignore_ascii_case("file") {
        return None;
    }
    let path = rest.strip_prefix(b"localhost").filter(|path| path.starts_with(b"/"));
    let path = path.unwrap_or(rest);
    if !path.starts_with(b"/") {
        return Some(Err("a file: URL has no host but localhost: file:///PATH"));
    }
    Some(percent_decode(path).and_then(|path| match path.contains(&0) {
        true => Err("the path has a NUL byte in it"),
        false => Ok(path),
    }))
}

const UNKNOWN_SCHEME: &str = "unknown scheme; haul supports sftp, http, https, dav, davs, webdav, \
                              webdavs, ftp, ftps and file";
const PASSWORD: &str = "a password does not belong in a location, where every user of this \
                        machine can read it; use HAUL_PASSWORD or password-command";
const BAD_HOST: &str = "not a host name; for a local file with a ':' in its name write './' \
                        before it";

fn parse_url(scheme: Scheme, rest: &[u8]) -> Parsed<Location> {
    let (rest, query) = if scheme.has_query() { split_query(rest)? } else { (rest, None) };
    let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(slash);
    let authority = std::str::from_utf8(authority).map_err(|_| "the host is not UTF-8")?;
    let (user, host_port) = split_user(authority)?;
    let user = user.map(decode_user).transpose()?;
    let (host, port) = parse_host_port(host_port)?;
    // Over SFTP, `/~` and `/~/x` are relative to the user's home directory, and `/%7E` is a directory named `~`.
    let below_home = match path.strip_prefix(b"/~") {
        Some(home) if matches!(home.first(), None | Some(b'/')) => Some(trim_slashes(home)),
        _ => None,
    };
    let (path, written) = match scheme {
        Scheme::Sftp => (percent_decode(below_home.unwrap_or(path))?, None),
        _ if scheme.is_web() => web_path(path)?,
        _ => (percent_decode(path)?, None),
    };
    if path.contains(&0) {
        return Err("the path has a NUL byte in it");
    }
    Ok(Location::Remote { scheme, user, host, port, path, query, written })
}

/// The path of a web URL, decoded except for `%2F`; and the path as written, if that is UTF-8, and decoding and
/// re-encoding would change one of its escapes.
fn web_path(path: &[u8]) -> Parsed<(Vec<u8>, Option<String>)> {
    let mut decoded = Vec::with_capacity(path.len());
    let (mut rest, mut is_canonical) = (path, true);
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        decoded.extend_from_slice(&rest[..at]);
        let escape = &rest[at..rest.len().min(at + 3)];
        let byte = percent_decode(escape)?;
        let is_slash = byte == b"/";
        decoded.extend_from_slice(if is_slash { escape } else { &byte });
        is_canonical &= !is_slash && is_canonical_escape(escape, byte[0]);
        rest = &rest[at + escape.len()..];
    }
    decoded.extend_from_slice(rest);
    let written = std::str::from_utf8(path).ok().filter(|_| !is_canonical);
    if written.is_some_and(|path| path.chars().any(char::is_control)) {
        return Err("the path has control characters that are not encoded");
    }
    Ok((decoded, written.map(str::to_owned)))
}

/// True if percent-encoding `byte` in a path gives `escape`: the byte is not allowed unencoded (RFC
/// 3986, 3.3), and the digits are upper case.
fn is_canonical_escape(escape: &[u8], byte: u8) -> bool {
    let is_allowed = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
    !is_allowed && !escape.iter().any(u8::is_ascii_lowercase)
}

/// Splits off the query: the part before `?`, and the undecoded query. A fragment (`#`) is dropped.
fn split_query(rest: &[u8]) -> Parsed<(&[u8], Option<String>)> {
    let before = |rest: &[u8], sign| rest.iter().position(|byte| *byte == sign);
    let rest = &rest[..before(rest, b'#').unwrap_or(rest.len())];
    let Some(at) = before(rest, b'?') else { return Ok((rest, None)) };
    let query = std::str::from_utf8(&rest[at + 1..]).map_err(|_| "the query is not UTF-8")?;
    if query.chars().any(char::is_control) {
        return Err("the query has control characters");
    }
    Ok((&rest[..at], Some(query.to_owned())))
}

/// Removes leading slashes: a path relative to the home directory must not become absolute.
fn trim_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|byte| *byte != b'/').unwrap_or(path.len());
    &path[start..]
}

fn split_user(authority: &str) -> Parsed<(Option<&str>, &str)> {
    let Some((user, host)) = authority.rsplit_once('@') else { return Ok((None, authority)) };
    if user.contains(':') {
        return Err(PASSWORD);
    }
    check_user(user)?;
    Ok((Some(user), host))
}

fn decode_user(user: &str) -> Parsed<String> {
    let user = percent_decode(user.as_bytes())?;
    let user = String::from_utf8(user).map_err(|_| "the user is not UTF-8")?;
    if user.contains(':') {
        return Err(PASSWORD);
    }
    check_user(&user)?;
    Ok(user)
}

fn check_user(user: &str) -> Parsed<()> {
    // A user that begins with a dash could be taken for an option by a ProxyCommand.
    if user.is_empty() || user.starts_with('-') || user.chars().any(|c| c.is_control() || c == '/')
    {
        return Err("the user name is empty, begins with '-', or has a '/' or control characters");
    }
    Ok(())
}

fn parse_host_port(text: &str) -> Parsed<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("'[' without ']'")?;
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':').ok_or("only ':' and a port may follow ']'")?),
        };
        return Ok((parse_ipv6(address)?, parse_port(port)?));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    Ok((parse_name(host)?, parse_port(port)?))
}

/// Parses an IPv6 address with an optional zone, `fe80::1%eth0` or `fe80::1%25eth0` (RFC 6874).
fn parse_ipv6(text: &str) -> Parsed<String> {
    const BAD: &str = "the text in brackets is not an IPv6 address";
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => {
            let decoded = zone.strip_prefix("25").filter(|rest| !rest.is_empty());
            (address, Some(decoded.unwrap_or(zone)))
        }
        None => (text, None),
    };
    address.parse::<std::net::Ipv6Addr>().map_err(|_| BAD)?;
    let Some(zone) = zone else { return Ok(address.to_owned()) };
    if zone.is_empty() || !zone.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c)) {
        return Err(BAD);
    }
    Ok(format!("{address}%{zone}"))
}

fn parse_port(text: Option<&str>) -> Parsed<Option<u16>> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<u16>() {
        Ok(port) if port > 0 && !text.starts_with('+') => Ok(Some(port)),
        _ => Err("the text after the host is not a port (1 to 65535)"),
    }
}

fn parse_name(host: &str) -> Parsed<String> {
    check_host(host)?;
    let ascii = ascii_host(host).ok_or(BAD_HOST)?;
    check_host(&ascii)?;
    Ok(ascii.into_owned())
}

/// The ASCII form of a host name (IDNA as in UTS 46), which DNS, certificates and servers know; an ASCII name is
/// returned unchanged, case included. `None` if the name has no such form.
///
/// The result has to be checked like any other name: a fullwidth `/` becomes `/`.
pub fn ascii_host(host: &str) -> Option<Cow<'_, str>> {
    if host.is_ascii() {
        return Some(Cow::Borrowed(host));
    }
    idna::domain_to_ascii(host).ok().map(Cow::Owned)
}

fn check_host(host: &str) -> Parsed<()> {
    if host.is_empty() {
        return Err("the host is missing");
    }
    // A host that begins with a dash could be taken for an option by a ProxyCommand.
    if host.starts_with('-')
        || host
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || "/\\?#@:[]<>%\"'".contains(c))
    {
        return Err(BAD_HOST);
    }
    Ok(())
}

fn percent_decode(bytes: &[u8]) -> Parsed<Vec<u8>> {
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
            return Err("'%' without two hexadecimal digits; a '%' itself is '%25'");
        };
        decoded.push((high * 16 + low) as u8);
        rest = &tail[2..];
    }
    Ok(decoded)
}

/// True for `haul1` (in any case) followed by at least 16 letters and digits, whatever comes after them, and for a
/// first component that begins with `haul` and a digit other than 0, and has as many letters and digits as a whole
/// ticket. Such text counts as a ticket, possibly a damaged one or one of a later version, so that no message shows
/// it as a host or file name. Shorter text is a file or host name.
pub(super) fn looks_like_ticket(bytes: &[u8]) -> bool {
    let head = bytes.split(|byte| *byte == b'/').next().unwrap_or_default();
    let Some((prefix, code)) = head.split_at_checked(5) else { return false };
    let is_first = prefix.eq_ignore_ascii_case(b"haul1");
    let is_any = prefix[..4].eq_ignore_ascii_case(b"haul") && matches!(prefix[4], b'1'..=b'9');
    let run = code.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let all = code.iter().filter(|byte| byte.is_ascii_alphanumeric()).count();
    (is_first && run >= 16) || (is_any && prefix.len() + all >= WHOLE_TICKET)
}

/// Parses a ticket: `haul1` and base32 (RFC 4648: a to z, 2 to 7), then an optional path. QR codes have it in upper
/// case; the parsed ticket is in lower case.
fn parse_ticket(bytes: &[u8]) -> Parsed<Location> {
    const DAMAGED: &str = "it looks like a ticket, but has characters that no ticket has: it was \
                           mistyped or damaged; for a local file of that name write './' before it";
    const LATER: &str = "it looks like a ticket of a later version of haul; for a local file of \
                         that name write './' before it";
    let slash = bytes.iter().position(|byte| *byte == b'/');
    let (ticket, path) = bytes.split_at(slash.unwrap_or(bytes.len()));
    let ticket = ticket.to_ascii_lowercase();
    let code = ticket.strip_prefix(b"haul1").ok_or(LATER)?;
    if !code.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7')) {
        return Err(DAMAGED);
    }
    let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
    // It is ASCII.
    Ok(Location::Peer { ticket: TicketText::new(String::from_utf8_lossy(&ticket)), path })
}

/// Splits `[user@]host:path` at the colon, which must precede the first slash; `None` means a local
/// path.
pub(super) fn split_scp(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
    let head = &bytes[..end];
    let first = head.iter().position(|byte| *byte == b':')?;
    let host = head[..first].iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
    // An IPv6 address in brackets has colons of its own.
    let colon = if head[host..].starts_with(b"[") {
        let close = head.iter().position(|byte| *byte == b']')?;
        (head.get(close + 1) == Some(&b':')).then_some(close + 1)?
    } else {
        first
    };
    // `:x` has no host, and on Windows `C:\x` is a drive.
    if colon == 0 || (cfg!(windows) && colon == 1) {
        return None;
    }
    let head = std::str::from_utf8(&bytes[..colon]).ok()?;
    Some((head, &bytes[colon + 1..]))
}

fn parse_scp(head: &str, path: &[u8]) -> Parsed<Location> {
    if path.starts_with(b"//") {
        return Err(UNKNOWN_SCHEME);
    }
    // `user:password@host:path` would be the path `password@host:path` on the host `user`.
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    let at = path[..end].iter().position(|byte| *byte == b'@');
    if !head.contains('@') && at.is_some_and(|at| path[at..end].contains(&b':')) {
        return Err(PASSWORD);
    }
    let (user, host) = split_user(head)?;
    let (ascii, _) = parse_host_port(host)?;
    let path = match path.strip_prefix(b"~") {
        Some(home) if matches!(home.first(), None | Some(b'/')) => trim_slashes(home).to_vec(),
        _ => path.to_vec(),
    };
    if user.is_none() && !ascii.contains(':') {
        // It may be the name of a configured remote, so its spelling is preserved.
        return Ok(Location::Named { name: host.to_owned(), path });
    }
    let (scheme, user, host) = (Scheme::Sftp, user.map(str::to_owned), ascii);
    Ok(Location::Remote { scheme, user, host, port: None, path, query: None, written: None })
}

/// The argument for an error message, with possible secrets masked: everything from the first colon to
/// the last `@`, all but the beginning of a ticket, and the query of a web URL.
fn masked(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    if looks_like_ticket(bytes) {
        return format!("{}…", shown_of_ticket(&text));
    }
    let scheme = split_scheme(bytes).map(|(scheme, _)| scheme);
    let start = scheme.map_or(0, |scheme| scheme.len() + "://".len());
    // A URL with an unknown scheme may have a query.
    let has_query =
        scheme.is_some_and(|name| Scheme::parse(name).is_none_or(|scheme| scheme.has_query()));
    let query = text.find('?').filter(|_| has_query);
    let shown_to = |end: usize, hidden: &str| format!("{}{hidden}", &text[..end]);
    let Some(at) = text[start..].rfind('@').map(|at| start + at) else {
        return query.map_or_else(|| text.clone(), |query| shown_to(query, "?…"));
    };
    let colon = text[start..at].find(':').map(|colon| start + colon + 1);
    // The colon may be percent-encoded.
    let encoded = text[start..at].to_ascii_lowercase().find("%3a").map(|colon| start + colon + 3);
    let secret = colon.into_iter().chain(encoded).min();
    match (secret, query) {
        // The `@` may end a password that contains `?`, or be part of a query: hide everything.
        (Some(secret), Some(query)) if query < at => shown_to(secret.min(query), "***…"),
        (Some(secret), Some(query)) => {
            format!("{}***{}?…", &text[..secret], &text[at..query])
        }
        (Some(secret), None) => format!("{}***{}", &text[..secret], &text[at..]),
        (None, Some(query)) => shown_to(query, "?…"),
        (None, None) => text,
    }
}
