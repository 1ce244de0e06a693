//! Blocks that were read and are being written, several at once.

use std::pin::pin;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use haul_storage::Result;

/// Blocks of what streams through that are written at once: over a link each takes a round trip.
const PUTS: usize = 16;

/// Blocks of a range that are being written.
#[derive(Default)]
pub struct ConcurrentWrites<'a> {
    in_flight: FuturesUnordered<BoxFuture<'a, Result<()>>>,
}

impl<'a> ConcurrentWrites<'a> {
    /// Adds one, and waits while there are too many.
    pub async fn add(&mut self, put: BoxFuture<'a, Result<()>>) -> Result<()> {
        self.in_flight.push(put);
        while self.in_flight.len() >= PUTS {
            self.in_flight.next().await.transpose()?;
        }
        Ok(())
    }

    /// Whether none is under way.
    pub fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Does something while they go on; ends with the first of them that fails.
    pub async fn beside<T>(&mut self, doing: impl Future<Output = T>) -> Result<T> {
        let mut doing = pin!(doing);
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.in_flight.next(), if !self.in_flight.is_empty() => ended?,
                done = &mut doing => return Ok(done),
            }
        }
    }

    /// Waits for one to end; `None` if there is none.
    pub async fn next(&mut self) -> Option<Result<()>> {
        self.in_flight.next().await
    }

    /// Waits for all of them; gives the first error.
    pub async fn all(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(ended) = self.next().await {
            outcome = outcome.and(ended);
        }
        outcome
    }
}
