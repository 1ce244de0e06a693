//! Stats a path: by `MLST` if the server supports it, otherwise by `CWD`, `MDTM` and `SIZE` in one flight, and by a
//! listing of the parent directory if their replies do not show whether there is a file.

use haul_storage::{EntryKind, Error, ErrorKind, Result};

use crate::data::{reason, receive};
use crate::error::{protocol, refused};
use crate::learnt::Lesson;
use crate::lines;
use crate::session::Session;
use crate::wire::listing::{Found, facts, list_line};
use crate::wire::{Command, Reply, parse_time};

/// Stats an absolute path on the server; `None` if there is no entry. The length of a file is always known.
pub(crate) async fn look(session: &mut Session, path: &[u8]) -> Result<Option<Found>> {
    let Some(mut found) = find(session, path).await? else { return Ok(None) };
    if found.is_file() && found.size.is_none() {
        found.size = Some(measure(session, path).await?);
    }
    Ok(Some(found))
}

async fn find(session: &mut Session, path: &[u8]) -> Result<Option<Found>> {
    if session.server.mlst() {
        let replies = session.exchange(&[Command::new("MLST", path)?]).await?;
        let reply = replies.first().ok_or_else(|| protocol("access", "a reply is missing"))?;
        if !reply.is_unknown() {
            return by_facts(reply);
        }
        if reply.is_unknown_command() {
            session.server.learnt.learn(Lesson::NoMlst);
        }
    }
    by_commands(session, path).await
}

fn by_facts(reply: &Reply) -> Result<Option<Found>> {
    if reply.is_done() {
        // `250-Listing`, ` facts name`, `250 End`: facts come after a space.
        let lines = reply.lines().iter();
        let found = lines.filter_map(|line| facts(line.strip_prefix(b" ").unwrap_or(line))).next();
        let found = found.map(|line| line.found);
        return found
            .map(Some)
            .ok_or_else(|| protocol("access", format!("no facts in the reply: {reply}")));
    }
    unless_absent(refused("access", reply), reply)
}

/// `SIZE` succeeds for files only, `CWD` for directories only.
async fn by_commands(session: &mut Session, path: &[u8]) -> Result<Option<Found>> {
    let mut commands = vec![Command::new("CWD", path)?, Command::new("MDTM", path)?];
    if session.server.size() {
        commands.push(Command::new("SIZE", path)?);
    }
    let mut replies = session.exchange(&commands).await?.into_iter();
    let (Some(directory), Some(time)) = (replies.next(), replies.next()) else {
        return Err(protocol("access", "a reply is missing"));
    };
    if directory.is_done() {
        return Ok(Some(Found::of(EntryKind::Directory)));
    }
    let modified = time.is_done().then(|| parse_time(time.last_line())).flatten();
    let learnt = std::sync::Arc::clone(&session.server.learnt);
    match replies.next() {
        Some(size) if size.is_done() => {
            learnt.learn(Lesson::SizeWorks);
            let bytes = self::size(&size);
            let bytes =
                bytes.ok_or_else(|| protocol("access", format!("no size in the reply: {size}")))?;
            return Ok(Some(Found { size: Some(bytes), modified, ..Found::of(EntryKind::File) }));
        }
        Some(size) if size.is_unknown_command() => learnt.learn(Lesson::NoSize),
        Some(size) if size.is_unknown() => {}
        Some(size) => {
            let error = refused("access", &size);
            let clear = error.kind() == ErrorKind::NotFound
                || learnt.knows(Lesson::SizeWorks)
                || learnt.is_unlistable(parent_and_name(path).0);
            let absent = unless_absent(error, &size)?;
            if clear {
                return Ok(absent);
            }
        }
        None => {}
    }
    let found = by_listing(session, path).await?;
    Ok(found.map(|found| Found { modified: modified.or(found.modified), ..found }))
}

/// Looks up the name in a listing of the parent directory. If it is not there, and `SIZE` is not known to fail, a
/// `SIZE` of another file in the listing shows whether the server supports it.
async fn by_listing(session: &mut Session, path: &[u8]) -> Result<Option<Found>> {
    let (parent, name) = parent_and_name(path);
    if name.is_empty() {
        return Ok(None);
    }
    let entered = session.exchange(&[Command::new("CWD", parent)?]).await?;
    if let Some(reply) = entered.iter().find(|reply| !reply.is_done()) {
        return unless_absent(refused("access", reply), reply);
    }
    let learnt = std::sync::Arc::clone(&session.server.learnt);
    let mut ways = Vec::new();
    if is_plain(name) {
        ways.push(Command::new("LIST", name)?);
    }
    if !learnt.knows(Lesson::ListPlain) {
        ways.push(Command::new("LIST", "-a")?);
    }
    if !learnt.knows(Lesson::ListAllWorks) {
        ways.push(Command::bare("LIST"));
    }
    let (mut listed, mut another) = (false, None);
    for way in ways {
        let mut found = None;
        let outcome = lines::each(session, way, |line| {
            let Some(line) = list_line(line) else { return };
            let last = line.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            if last == name {
                found.get_or_insert(line.found);
            } else if line.found.is_file() && another.is_none() {
                another = Some(line.name.to_vec());
            }
        });
        match outcome.await {
            Ok(()) => listed = true,
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy) => {
                return Err(error);
            }
            // The next way may be accepted.
            Err(_) => {}
        }
        if let Some(found) = found {
            // If `SIZE` has worked, it was refused for this name only.
            if found.is_file() && !learnt.knows(Lesson::SizeWorks) {
                learnt.learn(Lesson::NoSize);
            }
            return Ok(Some(found));
        }
    }
    if !listed {
        // A drop directory (write only): its contents cannot be determined.
        learnt.learn_unlistable(parent);
    }
    if let Some(another) = another.filter(|_| session.server.size()) {
        let path = [parent.strip_suffix(b"/").unwrap_or(parent), b"/", &another].concat();
        if let Ok(command) = Command::new("SIZE", path) {
            let replies = session.exchange(&[command]).await?;
            if replies.iter().all(Reply::is_done) {
                learnt.learn(Lesson::SizeWorks);
            } else if !replies.iter().any(Reply::is_transient) {
                learnt.learn(Lesson::NoSize);
            }
        }
    }
    Ok(None)
}

/// The parent directory of an absolute path, and the name in it.
fn parent_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (&path[..slash.max(1).min(path.len())], &path[(slash + 1).min(path.len())..])
}

/// Whether a name cannot be taken for an option, a pattern or several names.
fn is_plain(name: &[u8]) -> bool {
    !name.starts_with(b"-")
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-+,=@".contains(byte))
}

/// The length of a file if neither listing nor `MLST` has it: by `SIZE`, by the reply that begins its
/// download, or by downloading it.
pub(crate) async fn measure(session: &mut Session, path: &[u8]) -> Result<u64> {
    if session.server.size() {
        let replies = session.exchange(&[Command::new("SIZE", path)?]).await?;
        if let Some(bytes) = replies.first().and_then(size) {
            session.server.learnt.learn(Lesson::SizeWorks);
            return Ok(bytes);
        }
        if replies.iter().any(Reply::is_unknown_command) {
            session.server.learnt.learn(Lesson::NoSize);
        }
    }
    let mut data = session.transfer(0, Command::new("RETR", path)?, "access").await?;
    if let Some(bytes) = session.announced() {
        session.stop(data).await?;
        return Ok(bytes);
    }
    let mut bytes = 0;
    loop {
        let piece = match receive(&mut data, u64::MAX).await {
            Ok(piece) => piece,
            Err(error) => return Err(reason(session, data, error).await),
        };
        if piece.is_empty() {
            drop(data);
            session.finish("access").await?;
            return Ok(bytes);
        }
        bytes += piece.len() as u64;
    }
}

/// The bytes in a reply to `SIZE`.
pub(crate) fn size(reply: &Reply) -> Option<u64> {
    let digits = std::str::from_utf8(reply.last_line().trim_ascii()).ok()?;
    digits.parse().ok().filter(|_| reply.is_done())
}

/// `None` if the refusal means that there is no entry: most often 550 without a reason.
fn unless_absent(error: Error, reply: &Reply) -> Result<Option<Found>> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
        ErrorKind::Other if reply.code() == 550 => Ok(None),
        // A name that is too long for the server does not exist; 501 may be about the command.
        ErrorKind::InvalidInput if reply.code() != 501 => Ok(None),
        _ => Err(error),
    }
}
