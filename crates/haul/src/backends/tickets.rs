//! Arguments that refer to a ticket instead of containing it: other users of a machine can read arguments.
//!
//! | argument | the ticket is |
//! |---|---|
//! | `@FILE`, `@FILE/path` | the first non-blank line of a file |
//! | `@-`, `@-/path` | the first non-blank line of standard input |
//! | `ticket:`, `ticket:path` | in the variable `HAUL_TICKET` |
//! | `peer:NAME`, `peer:NAME/path` | that of a known peer (`haul peers`) |
//!
//! `FILE` ends at the first part of the path that is not a directory. A local file whose name is the whole argument,
//! with its `@`, takes precedence, and so does a `[remote.ticket]` or `[remote.peer]` of the configuration.
//!
//! Spoken codes (`7-orbit-candle`), each of which leads to a ticket at a bridge, are recognized here as well.

use std::collections::HashMap;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use haul_peer::bridge::code::{Code, CodeError};
use haul_peer::identity::Peers;
use haul_peer::ticket::{Ticket, parse_given};
use haul_storage::{Location, TicketText, io_cause, text};
use rustix::io::retry_on_intr;

use crate::directories;
use crate::exit::Stop;
use crate::output::Printer;

/// The variable that has the ticket of `ticket:`.
const VARIABLE: &str = "HAUL_TICKET";

/// Maximum number of bytes read from a file or from standard input. The longest ticket has 2048 characters.
const MAX_READ: u64 = 16 << 10;

/// Finds tickets, and reads each file once: it may be a pipe.
#[derive(Debug)]
pub(super) struct Tickets {
    printer: Printer,
    read: Mutex<HashMap<PathBuf, TicketText>>,
}

impl Tickets {
    pub(super) fn new(printer: &Printer) -> Self {
        Self { printer: printer.clone(), read: Mutex::default() }
    }

    /// The location of an argument that begins with `@`; `None` for other arguments, and if the `@` does not refer to a
    /// ticket.
    ///
    /// # Errors
    /// There is no such file, it cannot be read, or it has no ticket.
    pub(super) fn at(&self, argument: &OsStr) -> Result<Option<Location>, Stop> {
        let Some(rest) = argument.as_encoded_bytes().strip_prefix(b"@") else { return Ok(None) };
        let head = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
        // `@host:path` is a location with an empty user; a local file of exactly this name takes precedence.
        if rest.is_empty()
            || rest.contains(&0)
            || head.contains(&b':')
            || fs::symlink_metadata(argument).is_ok()
        {
            return Ok(None);
        }
        let (file, path) = match rest.strip_prefix(b"-") {
            Some(path) if matches!(path.first(), None | Some(b'/')) => (b"-".as_slice(), path),
            _ => file_of(rest).map_err(|error| unusable(rest, &error))?,
        };
        let file = Path::new(OsStr::from_bytes(file));
        let ticket = self.read(file)?;
        let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
        Ok(Some(Location::Peer { ticket, path }))
    }

    /// The location of a spoken code, as in `7-orbit-candle` and `7-orbit-candle/path`; `None` if it is not a
    /// code, or a local file has its name.
    ///
    /// # Errors
    /// One of its words is a likely typo for a word of the list.
    pub(super) fn spoken(argument: &OsStr) -> Result<Option<Location>, Stop> {
        let bytes = argument.as_encoded_bytes();
        let end = bytes.iter().position(|byte| *byte == b'/').unwrap_or(bytes.len());
        let (head, path) = bytes.split_at(end);
        let Ok(text) = std::str::from_utf8(head) else { return Ok(None) };
        let parsed = text.parse::<Code>();
        if parsed == Err(CodeError::Form) || fs::symlink_metadata(text).is_ok() {
            return Ok(None);
        }
        let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
        match parsed {
            Ok(code) => {
                let ticket = TicketText::new(code.to_string());
                Ok(Some(Location::Peer { ticket, path }))
            }
            Err(error @ CodeError::Word { near: Some(_), .. }) => {
                let location = Location::Peer { ticket: TicketText::new(text), path };
                Err(Stop::Usage(format!(
                    "{location}: cannot use the code ({error})\n\
                     hint: for a local file of that name write './' before it"
                )))
            }
            Err(_) => Ok(None),
        }
    }

    /// The location of `name:path`; `None` if `name` is neither `ticket` nor `peer`.
    ///
    /// # Errors
    /// The variable has no ticket, there is no such peer, or no ticket of it is stored.
    pub(super) fn named(name: &str, path: &[u8]) -> Result<Option<Location>, Stop> {
        match name {
            "ticket" => {
                let ticket = TicketText::new(of_environment()?.to_string());
                let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
                Ok(Some(Location::Peer { ticket, path }))
            }
            "peer" => known_peer(path).map(Some),
            _ => Ok(None),
        }
    }

    fn read(&self, file: &Path) -> Result<TicketText, Stop> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(given) = read.get(file) {
            return Ok(given.clone());
        }
        let shown = format!("@{}", text::name(file.as_os_str().as_bytes()));
        let content = match file == Path::new("-") {
            true => line_of_input(),
            false => self.content(file, &shown),
        };
        let content = content.map_err(|error| {
            Stop::Usage(format!("{shown}: cannot read the ticket ({})", io_cause(&error)))
        })?;
        let ticket = parse_given(&String::from_utf8_lossy(&content))
            .map_err(|error| Stop::Usage(format!("{shown}: cannot use the ticket ({error})")))?;
        let given = TicketText::new(ticket.to_string());
        read.insert(file.to_owned(), given.clone());
        Ok(given)
    }

    fn content(&self, file: &Path, shown: &str) -> io::Result<Vec<u8>> {
        let opened = File::open(file)?;
        let found = opened.metadata()?;
        if found.is_file() && found.mode() & 0o044 != 0 {
            let warning = "other users can read it, and use the share (chmod 600 prevents it)";
            self.printer.warning(shown, warning);
        }
        let mut content = Vec::new();
        opened.take(MAX_READ).read_to_end(&mut content)?;
        Ok(content)
    }
}

/// Splits `FILE/path`, at the first part that is not a directory.
///
/// # Errors
/// A part does not exist or cannot be accessed, or all are directories (`IsADirectory`).
fn file_of(rest: &[u8]) -> io::Result<(&[u8], &[u8])> {
    let slashes = rest.iter().enumerate().filter(|(at, byte)| *at > 0 && **byte == b'/');
    let ends = slashes.map(|(at, _)| at).chain([rest.len()]);
    for end in ends {
        let (file, path) = rest.split_at(end);
        if !fs::metadata(OsStr::from_bytes(file))?.is_dir() {
            return Ok((file, path));
        }
    }
    Err(io::ErrorKind::IsADirectory.into())
}

/// The message for a file that cannot be found. A ticket that was written after `@` must not be printed.
fn unusable(rest: &[u8], error: &io::Error) -> Stop {
    let location = match Location::parse(OsStr::from_bytes(rest)) {
        Ok(location @ Location::Peer { .. }) => {
            return Stop::Usage(format!(
                "@{location}: '@' precedes the name of a file that has the ticket; write the ticket \
                 itself without it"
            ));
        }
        Ok(location) => location,
        Err(error) => return Stop::Usage(error.to_string()),
    };
    let cause = match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::IsADirectory => "it is a directory".to_owned(),
        _ => io_cause(error),
    };
    Stop::Usage(format!(
        "@{location}: cannot read the ticket ({cause})\n\
         hint: '@' precedes the name of a file that has a ticket; for a local file of that name write \
         './' before it"
    ))
}

/// Standard input up to the end of its first line that is not blank. Nothing after it is read: `haul cp - @-/file`
/// copies the rest.
fn line_of_input() -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0_u8; 1];
    while (line.len() as u64) < MAX_READ {
        if retry_on_intr(|| rustix::io::read(io::stdin(), &mut byte))? == 0 {
            break;
        }
        if byte == *b"\n" && !line.trim_ascii().is_empty() {
            break;
        }
        line.extend(byte);
    }
    Ok(line)
}

fn of_environment() -> Result<Ticket, Stop> {
    let value = env::var_os(VARIABLE).filter(|value| !value.is_empty()).ok_or_else(|| {
        Stop::Usage(format!(
            "ticket: {VARIABLE} is not set\n\
             hint: set it to a ticket; an SSH host of this name is sftp://ticket/~/PATH"
        ))
    })?;
    parse_given(&value.to_string_lossy())
        .map_err(|error| Stop::Usage(format!("{VARIABLE}: cannot use the ticket ({error})")))
}

/// The location of `peer:NAME/path`.
fn known_peer(path: &[u8]) -> Result<Location, Stop> {
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    let (name, path) = path.split_at(end);
    let shown = text::name(name);
    let Some(state) = directories::state() else {
        let message =
            format!("peer:{shown}: neither XDG_STATE_HOME nor HOME is set to an absolute path");
        return Err(Stop::Usage(message));
    };
    let peers = Peers::at(&state.join("peers.toml"));
    let peer = match std::str::from_utf8(name) {
        Ok(name) => peers.by_name(name)?,
        Err(_) => None,
    };
    let Some(peer) = peer else {
        return Err(Stop::Usage(format!(
            "peer:{shown}: no peer has this name\n\
             hint: haul peers lists those that are known; an SSH host of the name 'peer' is \
             sftp://peer/~/PATH"
        )));
    };
    let Some(ticket) = peer.ticket() else {
        return Err(Stop::Usage(format!(
            "peer:{shown}: no ticket of this peer is stored\n\
             hint: haul peers add {shown} TICKET adds one"
        )));
    };
    let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
    Ok(Location::Peer { ticket: TicketText::new(ticket.to_string()), path })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_ends_at_the_first_part_that_is_no_directory() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        fs::create_dir(top.join("a")).unwrap();
        fs::write(top.join("a/ticket"), "").unwrap();
        let top = top.as_os_str().as_bytes();
        let rest = |text: &str| [top, text.as_bytes()].concat();
        for (text, file, path) in [
            ("/a/ticket", "/a/ticket", ""),
            ("/a/ticket/", "/a/ticket", "/"),
            ("/a/ticket/x/y", "/a/ticket", "/x/y"),
        ] {
            let (file, rest_of) = (rest(file), rest(text));
            assert_eq!(file_of(&rest_of).unwrap(), (&file[..], path.as_bytes()), "{text}");
        }
        let long = format!("/{}", "x".repeat(300));
        // Formerly, "there is no such file" was reported in all of these cases.
        for (text, cause) in [
            ("/a", "it is a directory"),
            ("/b", "there is no such file"),
            ("/a/other/ticket", "there is no such file"),
            (long.as_str(), "File name too long"),
        ] {
            let rest = rest(text);
            let Stop::Usage(message) = unusable(&rest, &file_of(&rest).unwrap_err()) else {
                panic!("{text}")
            };
            assert!(
                message.contains(&format!(": cannot read the ticket ({cause})\n")),
                "{message}"
            );
        }
    }

    #[test]
    fn a_ticket_written_after_the_at_sign_is_not_printed() {
        let ticket = "haul1abcdefghijklmnopqrstuvwxyz234567";
        for text in [ticket.to_owned(), format!("{ticket}1/x"), format!("{ticket}/x")] {
            let error = io::ErrorKind::NotFound.into();
            let Stop::Usage(message) = unusable(text.as_bytes(), &error) else { panic!("{text}") };
            assert!(!message.contains(&ticket[..16]), "{message}");
        }
    }
}
