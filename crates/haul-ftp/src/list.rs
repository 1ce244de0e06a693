//! Listings: `MLSD` where the server knows it, and `LIST` where it does not.
//!
//! `MLSD` tells kind, size and time, and passes through. `LIST` tells a time without seconds or a
//! zone, so the files' times are asked for one by one, many questions in a flight; the lane is not free
//! for that before the listing has ended, so it is kept meanwhile, up to a limit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Buf, BytesMut};
use futures_util::{StreamExt, stream};
use haul_storage::{Entry, EntryStream, Error, ErrorKind, RelPath, Result};
use tokio::sync::mpsc;

use crate::data::{reason, receive};
use crate::error::{lost, protocol, refused};
use crate::inner::Inner;
use crate::lanes::Lane;
use crate::read::NO_OPENING;
use crate::stream::Stream;
use crate::wire::listing::{Line, facts, is_heading, list_line};
use crate::wire::{Command, parse_time};

/// Batches that wait for whoever reads.
const WAITING: usize = 4;

/// The entries of a batch, and the questions of a flight: their answers fit into any socket's buffer,
/// so that neither end waits for the other to read.
const BATCH: usize = 200;

/// The longest line: a name, the target of a link, and what is said of them.
const LONGEST_LINE: usize = 16 << 10;

/// The most entries of a listing that has to be kept.
const MOST_KEPT: usize = 1_000_000;

/// The most bytes of its lines.
const MOST_BYTES_KEPT: usize = 128 << 20;

const RECEIVED: u64 = 64 << 10;

type Sender = mpsc::Sender<Result<Vec<Entry>>>;

/// Lists a directory.
pub(crate) async fn list(inner: &Arc<Inner>, path: &RelPath) -> Result<EntryStream> {
    let mut tries = inner.host.tries();
    let (lane, data) = loop {
        match open(inner, path).await {
            Err(error) if tries.again(&error).await => {}
            outcome => break outcome.map_err(|error| inner.at(error, path))?,
        }
    };
    inner.learn_directory(path);
    let (sender, receiver) = mpsc::channel(WAITING);
    let listing = Listing { inner: Arc::clone(inner), directory: path.clone() };
    inner.host.lanes.spawn(async move {
        let outcome = match data {
            Some(data) => listing.run(lane, data, &sender).await,
            None => Ok(()),
        };
        if let Err(error) = outcome {
            let error = listing.inner.at(error, &listing.directory);
            // Nobody may be there any more to hear of it.
            drop(sender.send(Err(error)).await);
        }
    });
    let batches = stream::unfold(receiver, |mut receiver| async move {
        let batch = receiver.recv().await?;
        Some((batch, receiver))
    });
    Ok(batches.boxed())
}

/// Begins a listing; no data if the server says that there is nothing.
async fn open(inner: &Inner, path: &RelPath) -> Result<(Lane, Option<Stream>)> {
    let on_server = inner.on_server(path);
    let mut lane = inner.host.lanes.reader(NO_OPENING, 0).await?;
    let begun = if inner.server.features.mlst {
        lane.transfer(0, Command::new("MLSD", &on_server)?, "list").await
    } else {
        // The path of a LIST may be taken for options or a pattern, that of a CWD is a path.
        let entered = lane.exchange(&[Command::new("CWD", &on_server)?]).await?;
        match entered.iter().find(|reply| !reply.is_done()) {
            Some(reply) => Err(refused("list", reply)),
            None => list_all(&mut lane).await,
        }
    };
    match begun {
        Ok(data) => Ok((lane, Some(data))),
        Err(error) if error.kind() == ErrorKind::Busy && error.cause().contains("No files") => {
            Ok((lane, None))
        }
        Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Busy) => {
            Err(error)
        }
        Err(error) => {
            drop(lane);
            match inner.find(path).await? {
                None => Err(Error::new(ErrorKind::NotFound, "list").because(error.cause())),
                Some(found) if !found.is_dir() => {
                    Err(Error::new(ErrorKind::NotADirectory, "list").because(error.cause()))
                }
                Some(_) => Err(error),
            }
        }
    }
}

/// Without `-a` some servers leave out names that begin with a dot, and others do not know it.
async fn list_all(lane: &mut Lane) -> Result<Stream> {
    match lane.transfer(0, Command::new("LIST", "-a")?, "list").await {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            lane.transfer(0, Command::bare("LIST"), "list").await
        }
        begun => begun,
    }
}

struct Listing {
    inner: Arc<Inner>,
    directory: RelPath,
}

impl Listing {
    async fn run(&self, mut lane: Lane, mut data: Stream, sender: &Sender) -> Result<()> {
        let with_facts = self.inner.server.features.mlst;
        let mut lines = Lines::default();
        let mut entries = Vec::new();
        let mut kept = 0;
        loop {
            let piece = tokio::select! {
                piece = receive(&mut data, RECEIVED) => piece,
                () = sender.closed() => return lane.stop(data).await,
            };
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => return Err(reason(&mut lane, data, error).await),
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
                match self.entry(&line, with_facts) {
                    Ok(entry) => {
                        kept += line.len();
                        entries.extend(entry);
                    }
                    // It concerns one entry; the others are told all the same.
                    Err(error) => {
                        if !hand_on(&mut lane, sender, Err(error)).await {
                            return lane.stop(data).await;
                        }
                    }
                }
            }
            if over {
                self.ended(&data, unfinished)?;
                break;
            }
            if with_facts && entries.len() >= BATCH {
                let batch = std::mem::take(&mut entries);
                kept = 0;
                if !hand_on(&mut lane, sender, Ok(batch)).await {
                    return lane.stop(data).await;
                }
            }
            if entries.len() > MOST_KEPT || kept > MOST_BYTES_KEPT {
                drop(lane.stop(data).await);
                return Err(Error::new(ErrorKind::Unsupported, "list").because(format!(
                    "more than {MOST_KEPT} entries or {} MiB are in it, and the server has no MLSD",
                    MOST_BYTES_KEPT >> 20
                )));
            }
        }
        drop(data);
        lane.finish("list").await?;
        self.hand_out(lane, entries, with_facts, sender).await
    }

    /// A listing has no length. Over TLS, whoever does not want it to be complete cannot pretend that it
    /// ends, unless it is a server that never says so.
    fn ended(&self, data: &Stream, unfinished: bool) -> Result<()> {
        let known = &self.inner.server.ends_tls;
        match data.ended_properly() {
            Some(true) => known.store(true, Ordering::Relaxed),
            Some(false) if unfinished || known.load(Ordering::Relaxed) => {
                return Err(lost("list", "the connection broke before the end of the listing"));
            }
            _ => {}
        }
        Ok(())
    }

    async fn hand_out(
        &self,
        mut lane: Lane,
        entries: Vec<Entry>,
        with_facts: bool,
        sender: &Sender,
    ) -> Result<()> {
        let mut entries = entries.into_iter().peekable();
        while entries.peek().is_some() {
            let mut batch: Vec<_> = entries.by_ref().take(BATCH).collect();
            if !with_facts && self.inner.server.features.mdtm {
                self.ask_times(&mut lane, &mut batch).await?;
            }
            if !hand_on(&mut lane, sender, Ok(batch)).await {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Completes what `LIST` does not tell.
    async fn ask_times(&self, lane: &mut Lane, entries: &mut [Entry]) -> Result<()> {
        let files: Vec<_> = entries.iter_mut().filter(|entry| entry.is_file()).collect();
        let mut asked = Vec::new();
        let mut questions = Vec::new();
        for file in files {
            // A name that cannot be sent can be listed; opening it says why not.
            if let Ok(question) = Command::new("MDTM", self.inner.on_server(&file.path)) {
                questions.push(question);
                asked.push(file);
            }
        }
        let replies = lane.exchange(&questions).await?;
        for (file, reply) in asked.into_iter().zip(replies) {
            file.modified = reply.is_done().then(|| parse_time(reply.last_line())).flatten();
        }
        Ok(())
    }

    /// What a line says; nothing for headings, the directory itself and the one above.
    fn entry(&self, line: &[u8], with_facts: bool) -> Result<Option<Entry>> {
        let read = if with_facts { facts(line) } else { list_line(line) };
        let Some(Line { name, found }) = read else {
            if is_heading(line) {
                return Ok(None);
            }
            let shown: String = line.escape_ascii().to_string().chars().take(200).collect();
            let error = protocol("list", format!("a line of the listing makes no sense: {shown}"));
            return Err(self.inner.at(error, &self.directory));
        };
        if matches!(name, b"." | b"..") {
            return Ok(None);
        }
        let path = self.directory.join(name).map_err(|why| {
            let shown = name.escape_ascii();
            let error = protocol("list", format!("a name in the listing {why}: '{shown}'"));
            self.inner.at(error, &self.directory)
        })?;
        Ok(Some(found.entry(path)))
    }
}

async fn hand_on(lane: &mut Lane, sender: &Sender, batch: Result<Vec<Entry>>) -> bool {
    if let Err(mpsc::error::TrySendError::Full(batch)) = sender.try_send(batch) {
        lane.stall(true);
        let sent = sender.send(batch).await;
        lane.stall(false);
        return sent.is_ok();
    }
    !sender.is_closed()
}

/// Cuts what comes into lines.
#[derive(Debug, Default)]
struct Lines {
    received: BytesMut,
}

impl Lines {
    fn add(&mut self, piece: &[u8]) {
        self.received.extend_from_slice(piece);
    }

    /// Whether nothing is left of what came.
    fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// The next line without its end; what is left counts as one when it is over.
    fn next(&mut self, over: bool) -> Result<Option<Vec<u8>>> {
        let end = self.received.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(self.received.len()) > LONGEST_LINE {
            return Err(protocol("list", "a line of the listing is longer than 16 KiB"));
        }
        let Some(end) = end.or((over && !self.received.is_empty()).then_some(self.received.len()))
        else {
            return Ok(None);
        };
        let line = &self.received[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.received.advance((end + 1).min(self.received.len()));
        Ok(Some(line))
    }
}
