//! Bytes of a file as a response brings them.

use std::time::Duration;

use haul_storage::{Block, Range, Result};
use tokio::time::{Instant, timeout_at};

use super::response::{Pending, Response};

/// Bytes that come within this time are one block: a write to a disk is worth its way to a thread.
const GATHERED: Duration = Duration::from_millis(30);

/// A part of a file, or all of it.
#[derive(Debug)]
pub struct Body {
    /// What brings it.
    pub response: Response,
    /// Which bytes.
    pub range: Range,
    /// Bytes that have been read of it already.
    pub ahead: Block,
}

/// Ranges requested when a file was opened, kept for reads from its start.
#[derive(Debug)]
pub enum Prefetched {
    /// The response has begun, and has been checked.
    Body(Body),
    /// Nobody has looked at its head.
    Pending(Range, Pending),
}

impl Prefetched {
    /// Which bytes of the file.
    pub const fn range(&self) -> Range {
        match self {
            Self::Body(body) => body.range,
            Self::Pending(range, _) => *range,
        }
    }
}

impl Body {
    /// Nothing of it has been read.
    pub const fn new(response: Response, range: Range) -> Self {
        Self { response, range, ahead: Block::new() }
    }

    /// Puts what comes into a block until there is enough, or it takes too long.
    pub async fn gather(&mut self, block: &mut Block, enough: usize) -> Result<()> {
        let mut until = None;
        while block.len() < enough {
            let next = self.response.next("read");
            let next = match until {
                None => next.await?,
                Some(until) => match timeout_at(until, next).await {
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
}
