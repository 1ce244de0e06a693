//! Listings: `MLSD` where the server knows it, and `LIST` where it does not.
//!
//! `MLSD` has kind, size and time, and is passed on as it arrives. `LIST` has times without seconds or
//! zone, so the time of each file is requested, many in one flight. The lane is busy until the listing
//! has ended, so the listing is buffered meanwhile, up to a limit.
//!
//! Without `-a` some servers leave out names that begin with a dot; others refuse `-a`, or take it for a
//! path and list nothing. Until `-a` is known to work, a plain `LIST` is requested as well.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::{StreamExt, stream};
use haul_storage::{Entry, EntryKind, EntryStream, Error, ErrorKind, RelPath, Result};
use tokio::sync::mpsc;

use crate::data::{reason, receive};
use crate::error::{lost, protocol, refused};
use crate::inner::Inner;
use crate::lanes::Lane;
use crate::learnt::Lesson;
use crate::lines::{Lines, RECEIVED};
use crate::look;
use crate::read::NO_OPENING;
use crate::stream::Stream;
use crate::wire::listing::{Found, Line, facts, is_heading, list_line};
use crate::wire::{Command, Reply, mentions, parse_time};

/// Batches that are queued for the consumer.
const WAITING: usize = 4;

/// Entries per batch; more if they need no further commands. Up to two commands for each of the others are sent in one
/// flight: their replies fit into any socket's buffer, so that neither end waits for the other to read.
const BATCH: usize = 200;

/// The most entries of a listing that is buffered.
const MOST_BUFFERED: usize = 1_000_000;

/// The most bytes of such a listing: of its lines, or of the paths, targets and errors in it.
const MOST_BYTES_BUFFERED: usize = 128 << 20;

/// A listing with `-a` that has more entries is trusted: a directory called `-a` would be smaller.
const MOST_DOUBTED: usize = 1000;

/// Errors of unparsable lines that are buffered until it is known whether `-a` works. Further ones are counted.
const MOST_ERRORS: usize = 100;

type Batch = Result<Vec<Entry>>;

/// The queue to the consumer of the listing.
struct Outbox {
    sender: mpsc::Sender<Batch>,
    /// Batches beyond the queue, of a listing that is read to its end because another task needs its lane.
    buffered: Vec<Batch>,
    /// Entries and errors in them.
    count: usize,
    /// Bytes of the paths, targets and errors in them.
    bytes: usize,
}

impl Outbox {
    /// Hands on a batch; false if the consumer is gone. While the consumer is slow the lane stalls,
    /// unless another task needs it: a listing cannot be continued later, so the rest of it is buffered
    /// then.
    async fn hand_on(&mut self, lane: &mut Lane, batch: Batch) -> bool {
        if !self.buffered.is_empty() {
            self.buffer(batch);
            return !self.sender.is_closed();
        }
        if let Err(mpsc::error::TrySendError::Full(batch)) = self.sender.try_send(batch) {
            lane.stall(true);
            let (is_wanted, unsent) = tokio::select! {
                permit = self.sender.reserve() => {
                    (permit.map(|permit| permit.send(batch)).is_ok(), None)
                }
                () = lane.recalled() => (true, Some(batch)),
            };
            lane.stall(false);
            unsent.into_iter().for_each(|batch| self.buffer(batch));
            return is_wanted;
        }
        !self.sender.is_closed()
    }

    fn buffer(&mut self, batch: Batch) {
        let (count, bytes) = match &batch {
            Ok(entries) => (entries.len(), entries.iter().map(bytes_of).sum()),
            Err(error) => (1, error.to_string().len()),
        };
        self.count += count;
        self.bytes += bytes;
        self.buffered.push(batch);
    }

    /// Whether no more can be buffered.
    const fn is_full(&self) -> bool {
        self.count > MOST_BUFFERED || self.bytes > MOST_BYTES_BUFFERED
    }

    /// Hands on the buffered batches and the final error, if any, without a lane.
    async fn finish(self, failure: Option<Error>) {
        for batch in self.buffered.into_iter().chain(failure.map(Err)) {
            if self.sender.send(batch).await.is_err() {
                // The consumer is gone.
                return;
            }
        }
    }
}

/// How a directory is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListForm {
    /// `MLSD`.
    Facts,
    /// `LIST -a`.
    All,
    /// `LIST -a`, not known to be understood by the server.
    MaybeAll,
    /// `LIST`.
    Plain,
    /// `LIST`, to be compared with the listing by `LIST -a`.
    MaybePlain,
}

/// Lists a directory.
pub(crate) async fn list(inner: &Arc<Inner>, path: &RelPath) -> Result<EntryStream> {
    let mut tries = inner.host.tries();
    let begun = loop {
        match open(inner, path).await {
            Err(error) if tries.again(&error).await => {}
            outcome => break outcome.map_err(|error| inner.at(error, path))?,
        }
    };
    inner.learn_directory(path);
    let (sender, receiver) = mpsc::channel(WAITING);
    let listing = Listing { inner: Arc::clone(inner), directory: path.clone() };
    inner.host.lanes.spawn(async move {
        let mut outbox = Outbox { sender, buffered: Vec::new(), count: 0, bytes: 0 };
        let outcome = match begun {
            Some((lane, form, data)) => listing.run(lane, form, data, &mut outbox).await,
            None => Ok(()),
        };
        let failure = outcome.err().map(|error| listing.inner.at(error, &listing.directory));
        outbox.finish(failure).await;
    });
    let batches = stream::unfold(receiver, |mut receiver| async move {
        let batch = receiver.recv().await?;
        Some((batch, receiver))
    });
    Ok(batches.boxed())
}

/// A listing that has begun; `None` if the server refuses it because the directory is empty.
type Begun = Option<(Lane, ListForm, Stream)>;

/// Begins a listing.
async fn open(inner: &Inner, path: &RelPath) -> Result<Begun> {
    let on_server = inner.on_server(path);
    let mut lane = inner.host.lanes.reader(NO_OPENING, 0).await?;
    if inner.server.mlsd() {
        match lane.transfer(0, Command::new("MLSD", &on_server)?, "list").await {
            Ok(data) => return Ok(Some((lane, ListForm::Facts, data))),
            Err(error) if error.kind() == ErrorKind::Unsupported && lane.is_usable() => {
                inner.server.learnt.learn(Lesson::NoMlsd);
            }
            // The server may refuse only this name.
            Err(error) if error.kind() == ErrorKind::InvalidInput && lane.is_usable() => {}
            Err(error) => return why(inner, path, lane, error).await,
        }
    }
    // LIST may take its path for options or a pattern; CWD does not.
    let entered = lane.exchange(&[Command::new("CWD", &on_server)?]).await?;
    if let Some(reply) = entered.iter().find(|reply| !reply.is_done()) {
        return why(inner, path, lane, refused("list", reply)).await;
    }
    let learnt = &inner.server.learnt;
    if !learnt.knows(Lesson::ListPlain) {
        let known = learnt.knows(Lesson::ListAllWorks);
        let form = if known { ListForm::All } else { ListForm::MaybeAll };
        match lane.transfer(0, Command::new("LIST", "-a")?, "list").await {
            Ok(data) => return Ok(Some((lane, form, data))),
            Err(error) if known && is_empty(&error, &on_server) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Unreachable || !lane.is_usable() => {
                return Err(error);
            }
            Err(error) => match lane.transfer(0, Command::bare("LIST"), "list").await {
                Ok(data) => {
                    if error.kind() != ErrorKind::Busy && !is_empty(&error, &on_server) {
                        learnt.learn(Lesson::ListPlain);
                    }
                    return Ok(Some((lane, ListForm::Plain, data)));
                }
                Err(error) if is_empty(&error, &on_server) => return Ok(None),
                Err(error) => return why(inner, path, lane, error).await,
            },
        }
    }
    match lane.transfer(0, Command::bare("LIST"), "list").await {
        Ok(data) => Ok(Some((lane, ListForm::Plain, data))),
        Err(error) if is_empty(&error, &on_server) => Ok(None),
        Err(error) => why(inner, path, lane, error).await,
    }
}

/// Finds out why a directory cannot be listed: "no files" may mean that it does not exist.
async fn why(inner: &Inner, path: &RelPath, lane: Lane, error: Error) -> Result<Begun> {
    let is_empty = is_empty(&error, &inner.on_server(path));
    if !is_empty && matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy) {
        return Err(error);
    }
    drop(lane);
    match inner.find(path).await? {
        None => Err(Error::new(ErrorKind::NotFound, "list").because(error.cause())),
        Some(found) if !found.is_dir() => {
            Err(Error::new(ErrorKind::NotADirectory, "list").because(error.cause()))
        }
        Some(_) if is_empty => Ok(None),
        Some(_) => Err(error),
    }
}

/// Whether a refusal means that the directory at `path` is empty, if it exists.
fn is_empty(error: &Error, path: &[u8]) -> bool {
    const WORDS: [&str; 6] = [
        "no files",
        "no members",
        "no data sets",
        "no entries",
        "directory is empty",
        "empty directory",
    ];
    let cause = error.cause();
    error.kind() != ErrorKind::Unreachable
        && WORDS.iter().any(|words| mentions(&cause, path, words))
}

struct Listing {
    inner: Arc<Inner>,
    directory: RelPath,
}

/// A buffered listing.
#[derive(Default)]
struct Buffered {
    found: Vec<(RelPath, Found)>,
    /// Errors of unparsable lines.
    errors: Vec<Error>,
    /// Unparsable lines beyond those in `errors`.
    more_errors: usize,
    /// The directory itself was listed, as `-a` requires.
    itself: bool,
}

impl Buffered {
    /// Whether it has all entries of `plain`, as a listing with `-a` should.
    fn includes(&self, plain: &Self) -> bool {
        let names: HashSet<_> = self.found.iter().map(|(path, _)| path).collect();
        self.more_errors == 0 && plain.found.iter().all(|(path, _)| names.contains(path))
    }
}

impl Listing {
    async fn run(
        &self,
        mut lane: Lane,
        form: ListForm,
        data: Stream,
        outbox: &mut Outbox,
    ) -> Result<()> {
        let Some(mut buffered) = self.read(&mut lane, form, data, outbox).await? else {
            return Ok(());
        };
        if form == ListForm::MaybeAll {
            if buffered.itself {
                self.inner.server.learnt.learn(Lesson::ListAllWorks);
            } else if buffered.more_errors > 0 || buffered.found.len() <= MOST_DOUBTED {
                let Some(chosen) = self.compare(&mut lane, buffered, outbox).await? else {
                    return Ok(());
                };
                buffered = chosen;
            }
        }
        let more = (buffered.more_errors > 0).then(|| {
            let cause = format!("{} further lines cannot be parsed", buffered.more_errors);
            self.inner.at(protocol("list", cause), &self.directory)
        });
        for error in buffered.errors.into_iter().chain(more) {
            if !outbox.hand_on(&mut lane, Err(error)).await {
                return Ok(());
            }
        }
        let mut entries = buffered.found.into_iter().peekable();
        while entries.peek().is_some() {
            let mut batch: Vec<_> = entries.by_ref().take(BATCH).collect();
            self.complete(&mut lane, &mut batch, form != ListForm::Facts).await?;
            let batch = batch.into_iter().map(|(path, found)| found.entry(path)).collect();
            if !outbox.hand_on(&mut lane, Ok(batch)).await {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Lists without `-a` as well, and chooses the better listing. `None`: the consumer is gone.
    async fn compare(
        &self,
        lane: &mut Lane,
        all: Buffered,
        outbox: &mut Outbox,
    ) -> Result<Option<Buffered>> {
        let learnt = &self.inner.server.learnt;
        let data = match lane.transfer(0, Command::bare("LIST"), "list").await {
            Ok(data) => data,
            Err(error) if is_empty(&error, &self.inner.on_server(&self.directory)) => {
                return Ok(Some(all));
            }
            Err(_) if !all.found.is_empty() && lane.is_usable() => return Ok(Some(all)),
            Err(error) => return Err(error),
        };
        // Errors of `all` were left out, so it will not be used, and those of the other need not wait.
        let form = if all.more_errors > 0 { ListForm::Plain } else { ListForm::MaybePlain };
        let Some(plain) = self.read(lane, form, data, outbox).await? else {
            return Ok(None);
        };
        // The message of an `ls` that takes `-a` for a path is no listing.
        let is_only_message = all.found.is_empty()
            && matches!(&all.errors[..], [error] if error.to_string().contains(" -a: "));
        if !all.includes(&plain) || (is_only_message && plain.errors.is_empty()) {
            if !plain.found.is_empty() {
                learnt.learn(Lesson::ListPlain);
            }
            return Ok(Some(plain));
        }
        if !plain.found.is_empty() {
            learnt.learn(Lesson::ListAllWorks);
        }
        Ok(Some(all))
    }

    /// Reads a listing, hands on the entries that need no further requests, and returns the others. `None`:
    /// the consumer is gone.
    async fn read(
        &self,
        lane: &mut Lane,
        form: ListForm,
        mut data: Stream,
        outbox: &mut Outbox,
    ) -> Result<Option<Buffered>> {
        let doubted = matches!(form, ListForm::MaybeAll | ListForm::MaybePlain);
        let mut lines = Lines::default();
        let mut buffered = Buffered::default();
        let mut batch = Vec::new();
        let mut bytes = 0;
        loop {
            let piece = tokio::select! {
                piece = receive(&mut data, RECEIVED) => piece,
                () = outbox.sender.closed() => return lane.stop(data).await.map(|()| None),
            };
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => return Err(reason(lane, data, error).await),
            };
            let over = piece.is_empty();
            lines.add(&piece);
            let unfinished = over && !lines.is_empty();
            loop {
                let line = match lines.next(over) {
                    Ok(Some(line)) => line,
                    Ok(None) => break,
                    Err(error) => {
                        drop(lane.stop(data).await);
                        return Err(error);
                    }
                };
                match self.entry(&line, form == ListForm::Facts) {
                    Ok(None) => buffered.itself |= line.ends_with(b" ."),
                    Ok(Some((path, found))) => {
                        let lacks_size = found.is_file() && found.size.is_none();
                        if form == ListForm::Facts && !lacks_size {
                            batch.push(found.entry(path));
                        } else if buffered.found.last().is_none_or(|(last, _)| *last != path) {
                            // On VMS, further versions of a file have the same name.
                            bytes += line.len();
                            buffered.found.push((path, found));
                        }
                    }
                    Err(error) if doubted && buffered.errors.len() < MOST_ERRORS => {
                        buffered.errors.push(error);
                    }
                    Err(_) if doubted && !(form == ListForm::MaybeAll && buffered.itself) => {
                        buffered.more_errors += 1;
                    }
                    // The error concerns one entry; the others are listed nevertheless.
                    Err(error) => {
                        if !outbox.hand_on(lane, Err(error)).await {
                            return lane.stop(data).await.map(|()| None);
                        }
                    }
                }
            }
            if over {
                self.ended(&data, unfinished)?;
            }
            if batch.len() >= BATCH || (over && !batch.is_empty()) {
                let batch = std::mem::take(&mut batch);
                if !outbox.hand_on(lane, Ok(batch)).await {
                    return lane.stop(data).await.map(|()| None);
                }
            }
            if over {
                drop(data);
                lane.finish("list").await?;
                return Ok(Some(buffered));
            }
            if outbox.is_full() {
                drop(lane.stop(data).await);
                return Err(too_long("another task needs its connection"));
            }
            if buffered.found.len() > MOST_BUFFERED || bytes > MOST_BYTES_BUFFERED {
                drop(lane.stop(data).await);
                return Err(too_long("the server has no MLSD"));
            }
        }
    }

    /// Checks that a listing, which has no length, was not cut short. Over TLS an attacker cannot forge
    /// its end (`close_notify`). Without it, the listing counts as complete only if the server has never sent
    /// one and the last line is whole.
    fn ended(&self, data: &Stream, unfinished: bool) -> Result<()> {
        let known = &self.inner.server.ends_tls;
        match data.ended_properly() {
            Some(true) => known.store(true, Ordering::Relaxed),
            Some(false) if unfinished || known.load(Ordering::Relaxed) => {
                return Err(lost("list", "the connection was lost before the end of the listing"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Requests the attributes that the listing lacks: times after `LIST`, and missing lengths.
    async fn complete(
        &self,
        lane: &mut Lane,
        entries: &mut [(RelPath, Found)],
        times: bool,
    ) -> Result<()> {
        let server = &self.inner.server;
        let mut requested = Vec::new();
        let mut commands = Vec::new();
        for (path, found) in entries.iter_mut().filter(|(_, found)| found.is_file()) {
            let on_server = self.inner.on_server(path);
            let time = times && found.modified.is_none() && server.mdtm();
            let size = found.size.is_none() && server.size();
            // A name that cannot be sent is listed all the same; opening it reports the reason.
            let command = |verb| Command::new(verb, &on_server).ok();
            let time = if time { command("MDTM") } else { None };
            let size = if size { command("SIZE") } else { None };
            requested.push((found, time.is_some(), size.is_some()));
            commands.extend(time.into_iter().chain(size));
        }
        let mut replies = lane.exchange(&commands).await?.into_iter();
        for (found, time, size) in requested {
            if let Some(reply) = replies.by_ref().take(usize::from(time)).next() {
                found.modified = reply.is_done().then(|| parse_time(reply.last_line())).flatten();
                unless_known(server, &reply, Lesson::NoMdtm);
            }
            if let Some(reply) = replies.by_ref().take(usize::from(size)).next() {
                found.size = look::size(&reply);
                unless_known(server, &reply, Lesson::NoSize);
            }
        }
        Ok(())
    }

    /// Parses a line; `None` for headings, the directory itself and its parent.
    fn entry(&self, line: &[u8], with_facts: bool) -> Result<Option<(RelPath, Found)>> {
        let read = if with_facts { facts(line) } else { list_line(line) };
        let Some(Line { name, found }) = read else {
            if is_heading(line) {
                return Ok(None);
            }
            let cause = format!("a line of the listing cannot be parsed: {}", shown(line));
            return Err(self.inner.at(protocol("list", cause), &self.directory));
        };
        if matches!(name, b"." | b"..") {
            return Ok(None);
        }
        let path = self.directory.join(name).map_err(|why| {
            let cause = format!("a name in the listing {why}: '{}'", shown(name));
            self.inner.at(protocol("list", cause), &self.directory)
        })?;
        Ok(Some((path, found)))
    }
}

fn unless_known(server: &crate::server::Server, reply: &Reply, lesson: Lesson) {
    if reply.is_unknown_command() {
        server.learnt.learn(lesson);
    }
}

/// The beginning of a line or name, for an error message.
fn shown(text: &[u8]) -> String {
    text.escape_ascii().take(200).map(char::from).collect()
}

/// Bytes of the path and the target of an entry.
fn bytes_of(entry: &Entry) -> usize {
    let target = match &entry.kind {
        EntryKind::Symlink(target) => target.len(),
        _ => 0,
    };
    entry.path.as_bytes().len() + target
}

/// The error of a listing that does not fit into memory.
fn too_long(reason: &str) -> Error {
    Error::new(ErrorKind::Unsupported, "list").because(format!(
        "its listing has more than {MOST_BUFFERED} entries or {} MiB, and {reason}",
        MOST_BYTES_BUFFERED >> 20
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, only their number was limited, so that a million entries with targets of 16 KiB were buffered.
    #[test]
    fn buffered_entries_and_errors_are_limited_by_their_bytes() {
        let long = "x".repeat(1 << 20);
        let link = || {
            let kind = EntryKind::Symlink(long.clone().into());
            Ok(vec![Entry::new(RelPath::parse("link").unwrap(), kind, 0)])
        };
        let error = || Err(protocol("list", &*long));
        for batch in [&link as &dyn Fn() -> Batch, &error] {
            let (sender, _receiver) = mpsc::channel(WAITING);
            let bytes = MOST_BYTES_BUFFERED - (3 << 20);
            let mut outbox = Outbox { sender, buffered: Vec::new(), count: 0, bytes };
            outbox.buffer(batch());
            outbox.buffer(batch());
            assert!(!outbox.is_full(), "{} bytes", outbox.bytes);
            outbox.buffer(batch());
            assert!(outbox.is_full(), "{} bytes", outbox.bytes);
        }
    }
}
