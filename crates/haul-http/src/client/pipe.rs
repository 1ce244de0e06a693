//! A connection with pipelined requests (RFC 9112, 9.3.2).
//!
//! A lane that requests or sends a part only after the previous response is idle for an RTT each time. Here the next
//! request reaches the server before the previous response has ended, so that the connection is never idle.
//!
//! ```text
//! request → writer task → server → reader task → Sink → Pending → Response, in the order of requests
//! ```
//!
//! A request can also have the connection for itself, and then nothing is sent behind it: for a streamed body, a
//! response that may be long, and requests that must not be sent twice.

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
use super::queued::{Alone, Queued, SerializedMarker, Size, Step, serialize};
use super::reader::{Reader, Surroundings};
use super::response::{Pending, response};
use super::writer;
use crate::parse::Url;

/// The age up to which a measured packet RTT is current, unless two RTTs are longer.
const RECENT: Duration = Duration::from_millis(200);

/// A connection. When the last reference is dropped, it closes after the last pending response.
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
    /// Starts the tasks of a connection on `runtime`.
    pub fn start(connected: Connected<Link>, around: Surroundings, runtime: &Handle) -> Self {
        let Connected { stream, rtt, gauge } = connected;
        let (reading, writing) = tokio::io::split(stream);
        let (queue, queued) = unbounded_channel();
        let (written, pending) = unbounded_channel();
        let (read, is_read) = oneshot::channel();
        let load = Arc::new(Load::new(Arc::clone(&around.host.order)));
        let of_writer = Arc::clone(&load);
        runtime.spawn(async move {
            writer::run(writing, queued, written, &of_writer, rtt, is_read).await;
        });
        let reader = Reader::new(reading, around, Arc::clone(&load), rtt, read);
        runtime.spawn(reader.run(pending));
        Self { load, queue, gauge, rtt, opened: Instant::now() }
    }

    /// Requests a part of `expected` bytes, or sends one in `body`, whose length is in the request's head.
    pub fn request(
        &self,
        request: &Request<()>,
        url: &Url,
        expected: u64,
        body: &Block,
    ) -> Pending {
        self.queue(request, url, expected, body, None, Step::Plain)
    }

    /// The same for a response that counts only once the response to `marker`, sent behind it, has arrived.
    pub fn request_provable(
        &self,
        request: &Request<()>,
        url: &Url,
        expected: u64,
        body: &Block,
        marker: SerializedMarker,
    ) -> Pending {
        let (proof, proven) = oneshot::channel();
        let step = Step::Unproven { marker: Some(marker), proof };
        self.queue(request, url, expected, body, None, step).proven_by(proven)
    }

    /// Sends a request that has the connection for itself. No other request may be in flight on it.
    pub fn request_alone(
        &self,
        request: &Request<()>,
        url: &Url,
        body: &Block,
        alone: Alone,
    ) -> Pending {
        self.queue(request, url, 0, body, Some(alone), Step::Plain)
    }

    fn queue(
        &self,
        request: &Request<()>,
        url: &Url,
        expected: u64,
        body: &Block,
        alone: Option<Alone>,
        step: Step,
    ) -> Pending {
        let owner = alone.as_ref().map(|alone| Arc::clone(&alone.owner));
        let (sink, pending) = response(url.clone(), owner);
        let sent = body.len() as u64;
        let expected = expected + sent;
        self.load.on_request(expected);
        if matches!(step, Step::Unproven { .. }) {
            self.load.reserve();
        }
        let queued = Queued {
            method: request.method().clone(),
            url: url.clone(),
            head: serialize(request),
            body: body.clone(),
            sink,
            size: Size { expected, sent },
            alone,
            sending: None,
            is_continued: false,
            step,
        };
        if let Err(refused) = self.queue.send(queued) {
            self.load.forget(expected);
            refused.0.sink.fail(Broken::Lost { is_sent: false });
        }
        pending
    }

    /// When the connection was opened.
    pub const fn opened(&self) -> Instant {
        self.opened
    }

    /// The shortest RTT so far.
    pub fn rtt(&self) -> Duration {
        let seen = self.gauge.as_ref().and_then(RttGauge::sample);
        seen.map_or(self.rtt, |seen| seen.shortest.min(self.rtt))
    }

    /// The current RTT of packets, if some were sent recently.
    pub fn current_rtt(&self) -> Option<Duration> {
        self.gauge.as_ref()?.sample()?.current_rtt(RECENT)
    }
}

#[cfg(test)]
mod tests;
