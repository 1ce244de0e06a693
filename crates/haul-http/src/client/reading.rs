//! A range of a file that is being read, block by block.
//!
//! A lane can become slow for itself: its packets were lost, and TCP waits longer and longer, or it has found
//! a low rate and keeps to it. At the end of a file nothing else would be left to do while the last part trickles
//! in, so part of what is left of it is asked for on a lane that is idle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Block, Error, ErrorKind, Range, Result};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::body::Body;
use super::remote::Remote;

/// Bytes of a block, if they come soon enough.
const BLOCK: usize = 512 << 10;

/// How long a part is looked at before its lane is called slow: nginx sends what `limit_rate` allows about once a
/// second. Doubles with each time that it was divided.
const SPELL: Duration = Duration::from_secs(2);

/// A part that takes longer than this to its end is divided if a lane is idle.
const LATE: f64 = 3.0;

/// Less than this is not worth a request.
const LEAST: u64 = 8 << 10;

/// A range that is being read.
pub struct Reading {
    file: Arc<Remote>,
    wanted: Range,
    current: Option<Body>,
    watch: Watch,
    /// What comes after the current part, asked for meanwhile, in order.
    following: VecDeque<Following>,
}

struct Following {
    from: u64,
    asking: JoinHandle<Result<Body>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

/// What the current part carries.
struct Watch {
    since: Instant,
    bytes: u64,
    spell: Duration,
}

impl Reading {
    /// Nothing is asked for before the first block is.
    pub fn new(file: Arc<Remote>, wanted: Range) -> Self {
        let watch = Watch { since: Instant::now(), bytes: 0, spell: SPELL };
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
            // A body whose length is not said may be longer than the part that it says it is.
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

    /// The current part has no more bytes.
    fn ended(&self) -> Result<Option<Block>> {
        let Some(body) = &self.current else { return Ok(None) };
        if self.file.size().is_none() {
            // That is its end: a body that is cut off is an error before.
            return Ok(None);
        }
        Err(Error::new(ErrorKind::Unreachable, "read").at(&body.response.url).because(format!(
            "the response ended at byte {}, expected {}",
            self.wanted.start(),
            body.range.end()
        )))
    }

    /// A spell is over. If the current part is late, and a lane idle, that lane is asked for as much of the rest
    /// as it may carry in the same time.
    fn divide(&mut self) {
        let rate = self.watch.bytes as f64 / self.watch.since.elapsed().as_secs_f64();
        (self.watch.since, self.watch.bytes) = (Instant::now(), 0);
        let Some(body) = &mut self.current else { return };
        if !body.response.is_shared() || !self.file.is_ranged() {
            return;
        }
        let best = self.file.best_rate(rate);
        let rest = Range::between(self.wanted.start(), body.range.end().min(self.wanted.end()));
        if rest.len() < LEAST || rest.len() as f64 <= rate * LATE || !self.file.has_idle_lane() {
            return;
        }
        let stays = rest.len() as f64 * rate / (rate + best).max(1.0);
        let (stays, moved) = rest.split_at(stays as u64);
        body.range = Range::between(body.range.start(), stays.end());
        self.following.push_front(Following {
            from: moved.start(),
            asking: tokio::spawn(Arc::clone(&self.file).ask(moved)),
        });
        if stays.is_empty() {
            self.current = None;
        }
        self.watch.spell *= 2;
    }

    /// The part that begins where something is wanted.
    async fn next_part(&mut self) -> Result<Body> {
        let start = self.wanted.start();
        if self.following.front().is_some_and(|following| following.from == start)
            && let Some(mut following) = self.following.pop_front()
        {
            return (&mut following.asking).await.unwrap_or_else(|failed| {
                let error = Error::new(ErrorKind::Unreachable, "read").at(self.file.url());
                Err(error.with_source(failed))
            });
        }
        loop {
            let (prefetched, until) = self.file.take_prefetched(start);
            let Some(prefetched) = prefetched else { break };
            // What was prefetched ends somewhere, and what comes then is asked for meanwhile.
            let rest = Range::between(until, self.wanted.end());
            if !rest.is_empty() && self.file.is_ranged() && self.following.is_empty() {
                let asking = tokio::spawn(Arc::clone(&self.file).ask(rest));
                self.following.push_back(Following { from: rest.start(), asking });
            }
            if let Some(body) = Arc::clone(&self.file).looked_at(prefetched).await {
                return Ok(body);
            }
            // It was not what it should have been: it is asked for as if it had never been.
            self.file.forget_prefetched();
            self.following.clear();
        }
        Arc::clone(&self.file).ask(self.wanted).await
    }
}

impl Watch {
    /// Until the spell is over.
    fn left(&self) -> Duration {
        self.spell.saturating_sub(self.since.elapsed())
    }
}
