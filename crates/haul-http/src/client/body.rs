//! The bytes of a file in a response.

use std::time::Duration;

use haul_storage::{Block, Range, Result};
use tokio::time::{Instant, timeout_at};

use super::response::{Pending, Response};

/// Bytes that arrive within this time become one block, so that a disk write is worth the thread switch.
const GATHERED: Duration = Duration::from_millis(30);

/// A part of a file, or all of it.
#[derive(Debug)]
pub struct Body {
    /// The response that contains it.
    pub response: Response,
    /// The range of the file.
    pub range: Range,
    /// Bytes that have been read already.
    pub ahead: Block,
}

/// A range requested when a file was opened, cached for reads from its start.
#[derive(Debug)]
pub enum Prefetched {
    /// The response has begun, and has been checked.
    Body(Body),
    /// Its head has not been checked yet.
    Pending(Range, Pending),
}

impl Prefetched {
    /// The range of the file.
    pub const fn range(&self) -> Range {
        match self {
            Self::Body(body) => body.range,
            Self::Pending(range, _) => *range,
        }
    }
}

impl Body {
    /// A body of which nothing has been read yet.
    pub const fn new(response: Response, range: Range) -> Self {
        Self { response, range, ahead: Block::new() }
    }

    /// Appends bytes to a block until there are `enough`, the body ends, or `GATHERED` has passed since the first.
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
