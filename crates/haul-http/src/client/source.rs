//! Where the bytes of a part come from.

use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Block, Error, ErrorKind, Range, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::decoded::Decoded;
use super::error;
use super::pipe::Part;
use super::pipes::PIECE;
use crate::parse::Url;

const EARLY_MOST: usize = PIECE as usize;

/// Bytes that come within this time are one block: a write to a disk is worth its way to a thread.
const GATHERED: Duration = Duration::from_millis(30);

/// The beginning of the file, on its way already.
#[derive(Debug)]
pub struct Kept {
    pub source: Source,
    pub range: Range,
    /// Bytes that have been read of it already.
    pub ahead: Block,
}

/// Where bytes come from.
#[derive(Debug)]
pub enum Source {
    /// A request that had a lane of its own.
    Answer(Answer),
    /// A request behind others.
    Part(Part, Url),
    /// One whose head has not been looked at.
    Foreseen(Part, Url),
    /// One that is decoded.
    Decoded(Box<Decoded>),
    /// One that is read before anybody wants it, so that its lane is free.
    Early(Early),
}

/// The beginning of a file, which is short.
#[derive(Debug)]
pub struct Early {
    reading: JoinHandle<Result<Vec<u8>>>,
    taken: bool,
    url: Url,
}

impl Early {
    pub fn read(mut answer: Answer) -> Self {
        let url = answer.url.clone();
        let reading = tokio::spawn(async move { answer.whole("read", EARLY_MOST).await });
        Self { reading, taken: false, url }
    }

    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        // A task that has given its bytes has no more.
        if self.taken {
            return Ok(None);
        }
        let read = (&mut self.reading).await;
        self.taken = true;
        let failed =
            |error| Error::new(ErrorKind::Unreachable, "read").at(&self.url).with_source(error);
        let bytes = read.map_err(failed)??;
        Ok((!bytes.is_empty()).then(|| bytes.into()))
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Source {
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        match self {
            Self::Answer(answer) => answer.next("read").await,
            Self::Early(early) => early.next().await,
            Self::Decoded(decoded) => decoded.next().await,
            Self::Part(part, url) | Self::Foreseen(part, url) => {
                part.next().await.map_err(|broken| error::of_broken(&broken, "read", url))
            }
        }
    }

    pub fn url(&self) -> &Url {
        match self {
            Self::Decoded(decoded) => decoded.url(),
            Self::Answer(answer) => answer.url(),
            Self::Early(early) => &early.url,
            Self::Part(_, url) | Self::Foreseen(_, url) => url,
        }
    }
}

/// Puts what comes into a block until there is enough, or it takes too long.
pub async fn gather(source: &mut Source, block: &mut Block, enough: usize) -> Result<()> {
    let mut until = None;
    while block.len() < enough {
        let next = match until {
            None => source.next().await?,
            Some(until) => match timeout_at(until, source.next()).await {
                Ok(next) => next?,
                Err(_) => return Ok(()),
            },
        };
        let Some(bytes) = next else { return Ok(()) };
        block.push(bytes);
        until.get_or_insert_with(|| Instant::now() + GATHERED);
    }
    Ok(())
}
