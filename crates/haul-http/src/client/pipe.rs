//! A connection that requests are sent on one behind the other (RFC 9112, 9.3.2).
//!
//! A lane that asks for a part when the one before has arrived, or sends one when the one before is
//! answered, is idle for a round trip each time. Here the next request is with the server before the
//! response to the one before has ended, so that the connection never rests.
//!
//! ```text
//! ask → writer task → server → reader task → Sink → Pending → Response, in the order of requests
//! ```
//!
//! Whoever asks alone has the connection for that time, and nothing is sent behind it: a body that is sent as it
//! comes, a response that may be long, what must not be sent twice.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_net::RttGauge;
use haul_storage::Block;
use http::Request;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::connect::{Connected, Link};
use super::head::Broken;
use super::load::Load;
use super::queued::{Alone, Queued, as_sent};
use super::reader::{Reader, Surroundings};
use super::response::{Pending, response};
use super::writer;
use crate::parse::Url;

/// How old a round trip of a packet may be that is shown as that of now.
const RECENT: Duration = Duration::from_millis(200);

/// A connection. It ends when nobody has it any more.
#[derive(Debug)]
pub struct Pipe {
    load: Arc<Load>,
    queue: UnboundedSender<Queued>,
    gauge: Option<RttGauge>,
    rtt: Duration,
    opened: Instant,
}

impl Deref for Pipe {
    type Target = Load;

    fn deref(&self) -> &Load {
        &self.load
    }
}

impl Pipe {
    /// Over a connection. What it does is done on `runtime`.
    pub fn start(connected: Connected<Link>, around: Surroundings, runtime: &Handle) -> Self {
        let Connected { stream, rtt, gauge } = connected;
        let (reading, writing) = tokio::io::split(stream);
        let (queue, queued) = unbounded_channel();
        let (written, answered) = unbounded_channel();
        let (read, is_read) = oneshot::channel();
        let load = Arc::new(Load::new());
        let of_writer = Arc::clone(&load);
        runtime
            .spawn(async move { writer::run(writing, queued, written, &of_writer, is_read).await });
        let reader = Reader::new(reading, around, Arc::clone(&load), rtt, read);
        runtime.spawn(reader.run(answered));
        Self { load, queue, gauge, rtt, opened: Instant::now() }
    }

    /// Asks for a part of `expected` bytes, or sends one: `body` goes with the request, which says its
    /// length.
    pub fn ask(&self, request: &Request<()>, url: &Url, expected: u64, body: &Block) -> Pending {
        self.queue(request, url, expected, body, None)
    }

    /// Sends a request that has the connection for itself; nothing else is under way on it.
    pub fn ask_alone(
        &self,
        request: &Request<()>,
        url: &Url,
        body: &Block,
        alone: Alone,
    ) -> Pending {
        self.queue(request, url, 0, body, Some(alone))
    }

    fn queue(
        &self,
        request: &Request<()>,
        url: &Url,
        expected: u64,
        body: &Block,
        alone: Option<Alone>,
    ) -> Pending {
        let owner = alone.as_ref().map(|alone| Arc::clone(&alone.owner));
        let (sink, pending) = response(url.clone(), owner);
        let sent = body.len() as u64;
        let expected = expected + sent;
        self.load.asked(expected);
        let queued = Queued {
            method: request.method().clone(),
            url: url.clone(),
            head: as_sent(request),
            body: body.clone(),
            sink,
            expected,
            sent,
            alone,
            sending: None,
            is_continued: false,
        };
        if let Err(refused) = self.queue.send(queued) {
            self.load.forget(expected);
            refused.0.sink.fail(Broken::Lost { is_sent: false });
        }
        pending
    }

    /// When it was opened.
    pub const fn opened(&self) -> Instant {
        self.opened
    }

    /// The shortest round trip seen.
    pub fn rtt(&self) -> Duration {
        let seen = self.gauge.as_ref().and_then(RttGauge::round_trips);
        seen.map_or(self.rtt, |seen| seen.shortest.min(self.rtt))
    }

    /// The round trip of packets at present, if some were sent of late.
    pub fn at_present(&self) -> Option<Duration> {
        self.gauge.as_ref()?.round_trips()?.at_present(RECENT)
    }
}

#[cfg(test)]
mod tests;
