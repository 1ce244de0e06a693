//! Requests that the server executes once. If a lane is lost with the request or its response, the request is sent
//! again with the same number, and the server responds with the outcome. A request that its caller abandons is
//! cancelled, so that a file that it has opened does not stay open.

use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Error, Result, Retry};
use tokio::time::{Instant, sleep};

use super::patience::Subject;
use super::reading::Reading;
use super::send::send_notices;
use super::session::{Received, Session, lane_lost, unexpected};
use super::{Lane, PeerHost};
use crate::wire::message_frame;
use crate::wire::messages::{self, to_client, to_server};

/// How long to try to open another lane, to learn the outcome of a request.
const REJOIN: Duration = Duration::from_secs(15);

/// Pause between attempts to open a lane.
const PAUSE: Duration = Duration::from_millis(250);

/// A request is sent at most this many times: it may itself be what ends each lane.
const ATTEMPTS: usize = 8;

impl PeerHost {
    /// Executes a request in the session of a lane.
    ///
    /// # Errors
    /// That of the server, or if the request is too long. If the outcome cannot be learnt, `Unreachable`, or why no
    /// other lane could be opened.
    pub(super) async fn once(
        &self,
        lane: Arc<Lane>,
        body: to_server::Body,
    ) -> Result<to_client::Body> {
        self.once_and_read(lane, body, 0).await.map(|(response, _)| response)
    }

    /// Executes a request that opens a file, and reads its first `ahead` bytes in the same RTT, if nothing is lost.
    ///
    /// # Errors
    /// As [`PeerHost::once`].
    pub(super) async fn once_and_read(
        &self,
        lane: Arc<Lane>,
        body: to_server::Body,
        ahead: u64,
    ) -> Result<(to_client::Body, Option<Reading>)> {
        let session = Arc::clone(&lane.session);
        let subject = Subject::of(&body);
        let request = messages::ToServer { id: session.number(), body: Some(body), again: false };
        let (has_response, reading, session) = (false, None, &session);
        let mut pending =
            Pending { host: self, session, request, subject, has_response, ahead, reading };
        let mut lane = lane;
        for left in (0..ATTEMPTS).rev() {
            if let Some(outcome) = pending.attempt(lane).await {
                return outcome.map(|response| (response, pending.reading.take()));
            }
            if left == 0 {
                break;
            }
            lane = self.rejoin(session).await?;
        }
        Err(lane_lost())
    }

    /// A lane of a session that has lost one.
    async fn rejoin(&self, session: &Arc<Session>) -> Result<Arc<Lane>> {
        let until = Instant::now() + REJOIN;
        loop {
            match self.lane().await {
                Ok(lane) if Arc::ptr_eq(&lane.session, session) => return Ok(lane),
                // The server has ended the session.
                Ok(_) => return Err(lane_lost()),
                Err(error) if error.retry() == Retry::Later && Instant::now() < until => {
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A request whose outcome is not known yet.
struct Pending<'a> {
    host: &'a PeerHost,
    session: &'a Arc<Session>,
    /// Its `again` is set once it may have been sent.
    request: messages::ToServer,
    subject: Subject,
    has_response: bool,
    /// Bytes to be read of the file that is opened.
    ahead: u64,
    reading: Option<Reading>,
}

impl Pending<'_> {
    /// Sends the request, and waits for the response; `None` if a lane was lost with either.
    async fn attempt(&mut self, lane: Arc<Lane>) -> Option<Result<to_client::Body>> {
        let id = self.request.id;
        let frame = match message_frame(&self.request) {
            Ok(frame) => frame,
            Err(error) => return Some(Err(error.into())),
        };
        send_notices(&lane);
        let mut responses = self.session.register_once(id, lane.number, self.subject.clone());
        let is_sent = lane.send(frame) && !lane.is_ended();
        let ahead = std::mem::take(&mut self.ahead);
        if ahead > 0 && is_sent {
            // If that fails, the caller reads these bytes again.
            self.reading = Reading::ahead(&lane, id, ahead).ok();
        }
        drop(lane);
        let is_first = !std::mem::replace(&mut self.request.again, true);
        if !is_sent {
            self.session.forget(id);
            return None;
        }
        let outcome = match responses.outcome().await? {
            Ok(Received::Message(to_client::Body::Failed(error))) => Err(Error::from(error)),
            Ok(Received::Message(body)) => Ok(body),
            Ok(Received::Piece(..)) => Err(unexpected()),
            Err(error) => return Some(Err(error)),
        };
        self.has_response = true;
        self.session.confirm(id, !is_first);
        Some(outcome)
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let id = self.request.id;
        self.session.forget(id);
        if self.request.again && !self.has_response {
            let cancel = messages::Cancel { id, once: true };
            self.host.post(self.session, to_server::Body::Cancel(cancel));
        }
    }
}
