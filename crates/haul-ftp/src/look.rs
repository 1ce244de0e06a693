//! What is at a path: one command where the server knows `MLST`, three in one flight where it does
//! not.

use haul_storage::{EntryKind, Error, ErrorKind, Result};

use crate::error::{protocol, refused};
use crate::server::Server;
use crate::wire::listing::{Found, facts};
use crate::wire::{Command, Reply, parse_time};

/// What has to be asked to know what is at a path (absolute, on the server).
pub(crate) fn questions(server: &Server, path: &[u8]) -> Result<Vec<Command>> {
    if server.features.mlst {
        return Ok(vec![Command::new("MLST", path)?]);
    }
    // SIZE is of files only, CWD of directories only.
    Ok(vec![Command::new("SIZE", path)?, Command::new("MDTM", path)?, Command::new("CWD", path)?])
}

/// Reads the answers: what is there, `None` if nothing is.
pub(crate) fn answers(server: &Server, replies: &[Reply]) -> Result<Option<Found>> {
    match replies {
        [fact] if server.features.mlst => by_facts(fact),
        [size, time, directory] => by_commands(size, time, directory),
        _ => Err(protocol("look at", "an answer is missing")),
    }
}

fn by_facts(reply: &Reply) -> Result<Option<Found>> {
    if reply.is_done() {
        // `250-Listing`, ` facts name`, `250 End`: facts come after a space.
        let lines = reply.lines().iter();
        let found = lines.filter_map(|line| facts(line.strip_prefix(b" ").unwrap_or(line))).next();
        let found = found.map(|line| line.found);
        return found.map(Some).ok_or_else(|| protocol("look at", format!("no facts: {reply}")));
    }
    unless_absent(refused("look at", reply), reply)
}

fn by_commands(size: &Reply, time: &Reply, directory: &Reply) -> Result<Option<Found>> {
    if directory.is_done() {
        return Ok(Some(Found::of(EntryKind::Directory)));
    }
    if size.is_done() {
        let bytes = self::size(size);
        let bytes = bytes.ok_or_else(|| protocol("look at", format!("no size is in: {size}")))?;
        let modified = time.is_done().then(|| parse_time(time.last_line())).flatten();
        return Ok(Some(Found { size: Some(bytes), modified, ..Found::of(EntryKind::File) }));
    }
    if size.is_unknown() {
        return Err(Error::new(ErrorKind::Unsupported, "look at")
            .because(format!("the server tells no sizes: {size}")));
    }
    unless_absent(refused("look at", size), size)
}

/// The bytes in an answer to `SIZE`.
pub(crate) fn size(reply: &Reply) -> Option<u64> {
    let digits = std::str::from_utf8(reply.last_line().trim_ascii()).ok()?;
    digits.parse().ok().filter(|_| reply.is_done())
}

/// 550 is what servers say of what is not there, most of them without a reason.
fn unless_absent(error: Error, reply: &Reply) -> Result<Option<Found>> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
        ErrorKind::Other if matches!(reply.code(), 550 | 553) => Ok(None),
        // Names that the server does not take are not there.
        ErrorKind::InvalidInput if reply.code() != 501 => Ok(None),
        _ => Err(error),
    }
}
