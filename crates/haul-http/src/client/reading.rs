//! Reads a range of a file, block by block.
//!
//! A single lane can become slow: after packet loss, TCP backs off ever longer, or settles at a low rate. At the end of
//! a file, everything would then wait for the last part. So some of its remaining bytes are requested on an idle lane.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Block, Error, ErrorKind, Range, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::body::Body;
use super::remote::Remote;

/// Bytes of a block; it is shorter if they arrive too slowly.
const BLOCK: usize = 512 << 10;

/// How long the rate of a part is measured before its lane may count as slow: with `limit_rate`, nginx sends about once
/// a second. Doubles for the rest of the range each time that a part is divided.
const PERIOD: Duration = Duration::from_secs(2);

/// A part that will take longer than this many seconds to its end is divided, if a lane is idle.
const LATE: f64 = 3.0;

/// Fewer bytes than this are not worth a request.
const MIN_DIVIDED: u64 = 8 << 10;

/// A range that is being read.
pub struct Reading {
    file: Arc<Remote>,
    /// The rest of the range.
    wanted: Range,
    current: Option<Body>,
    watch: Watch,
    /// Parts after the current one that were requested already, in order.
    following: VecDeque<Following>,
}

struct Following {
    from: u64,
    request: JoinHandle<Result<Body>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.request.abort();
    }
}

/// Measures the rate of the current part.
struct Watch {
    since: Instant,
    /// Bytes received since then.
    bytes: u64,
    /// How long to measure.
    period: Duration,
}

impl Reading {
    /// Requests nothing before the first call of [`block`](Self::block).
    pub fn new(file: Arc<Remote>, wanted: Range) -> Self {
        let watch = Watch { since: Instant::now(), bytes: 0, period: PERIOD };
        Self { file, wanted, current: None, watch, following: VecDeque::new() }
    }

    /// The next bytes; `None` at the end.
    pub async fn block(&mut self) -> Result<Option<Block>> {
        if self.wanted.is_empty() {
            return Ok(None);
        }
        let mut block = Block::new();
        while block.is_empty() {
            let part = match self.current.take() {
                Some(part) => part,
                None => {
                    let part = self.next_part().await?;
                    (self.watch.since, self.watch.bytes) = (Instant::now(), 0);
                    part
                }
            };
            let body = self.current.insert(part);
            block = std::mem::take(&mut body.ahead);
            // A body without a length may be longer than the part that its head announces.
            let until = self.wanted.end().min(body.range.end());
            let most = until.saturating_sub(self.wanted.start());
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            if block.is_empty() {
                let gathering = body.gather(&mut block, most.min(BLOCK));
                let waited = timeout(self.watch.left(), gathering).await;
                if waited.is_err() && block.is_empty() {
                    self.divide();
                    continue;
                }
                waited.unwrap_or(Ok(()))?;
            }
            if block.is_empty() {
                return self.ended();
            }
            block.truncate(most);
        }
        let bytes = block.len() as u64;
        self.wanted = self.wanted.split_at(bytes).1;
        self.watch.bytes += bytes;
        if self.watch.left().is_zero() {
            self.divide();
        }
        self.current.take_if(|body| self.wanted.start() >= body.range.end());
        Ok(Some(block))
    }

    /// The result when the current part has no more bytes.
    fn ended(&self) -> Result<Option<Block>> {
        let Some(body) = &self.current else { return Ok(None) };
        if self.file.size().is_none() {
            // This is the end of the file: for a truncated body, reading would have returned an error.
            return Ok(None);
        }
        Err(Error::new(ErrorKind::Unreachable, "read").at(&body.response.url).because(format!(
            "the response ended at byte {}, expected {}",
            self.wanted.start(),
            body.range.end()
        )))
    }

    /// Called at the end of a measurement. If the current part is late and a lane is idle, requests as much of the rest
    /// on that lane as it can carry in the same time.
    fn divide(&mut self) {
        let rate = self.watch.bytes as f64 / self.watch.since.elapsed().as_secs_f64();
        (self.watch.since, self.watch.bytes) = (Instant::now(), 0);
        let Some(body) = &mut self.current else { return };
        if !body.response.is_shared() || !self.file.is_ranged() {
            return;
        }
        let best = self.file.best_rate(rate);
        let rest = Range::between(self.wanted.start(), body.range.end().min(self.wanted.end()));
        if rest.len() < MIN_DIVIDED
            || rest.len() as f64 <= rate * LATE
            || !self.file.has_idle_lane()
        {
            return;
        }
        let stays = rest.len() as f64 * rate / (rate + best).max(1.0);
        let (stays, moved) = rest.split_at(stays as u64);
        body.range = Range::between(body.range.start(), stays.end());
        self.following.push_front(Following {
            from: moved.start(),
            request: tokio::spawn(Arc::clone(&self.file).request(moved)),
        });
        if stays.is_empty() {
            self.current = None;
        }
        self.watch.period *= 2;
    }

    /// The part at the start of the rest of the range.
    async fn next_part(&mut self) -> Result<Body> {
        let start = self.wanted.start();
        if self.following.front().is_some_and(|following| following.from == start)
            && let Some(mut following) = self.following.pop_front()
        {
            return (&mut following.request).await.unwrap_or_else(|failed| {
                let error = Error::new(ErrorKind::Unreachable, "read").at(self.file.url());
                Err(error.with_source(failed))
            });
        }
        loop {
            let (prefetched, until) = self.file.take_prefetched(start);
            let Some(prefetched) = prefetched else { break };
            // Request the bytes after the prefetched part at the same time.
            let rest = Range::between(until, self.wanted.end());
            if !rest.is_empty() && self.file.is_ranged() && self.following.is_empty() {
                let request = tokio::spawn(Arc::clone(&self.file).request(rest));
                self.following.push_back(Following { from: rest.start(), request });
            }
            if let Some(body) = Arc::clone(&self.file).checked(prefetched).await {
                return Ok(body);
            }
            // The prefetched response is not usable: request the range normally.
            self.file.forget_prefetched();
            self.following.clear();
        }
        Arc::clone(&self.file).request(self.wanted).await
    }
}

impl Watch {
    /// The time until the end of the measurement.
    fn left(&self) -> Duration {
        self.period.saturating_sub(self.since.elapsed())
    }
}
