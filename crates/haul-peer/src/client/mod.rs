//! The side that holds a ticket: its peer's files as a [`Storage`](haul_storage::Storage).
//!
//! ```text
//! PeerHost → pool of lanes → session → responses, pieces
//!    │                          ↑
//!    └ PeerStorage, PeerFile, PeerUpload
//! ```

mod ahead;
mod dial;
mod early;
mod first;
mod lane;
mod once;
mod opener;
mod patience;
mod pulse;
mod reach;
mod read;
mod reading;
mod seek;
mod send;
mod session;
mod storage;
#[cfg(test)]
mod testing;
mod write;

use std::fmt;
use std::sync::Arc;

use haul_net::pool::{Lanes, WhenFull};
use haul_storage::{Error, LinkStatus, Result};
use tokio::runtime::Handle;

use self::lane::Lane;
use self::opener::Opener;
use self::reach::Reach;
pub use self::reach::{Path, PeerOptions, ReachEvent};
use self::send::{Forget, send_notices, send_on};
use self::session::{Responses, Session, unexpected};
pub use self::storage::PeerStorage;
use crate::identity::Identity;
use crate::ticket::Ticket;
use crate::wire::messages::{to_client, to_server};

/// A peer, and the lanes to it.
pub struct PeerHost {
    reach: Arc<Reach>,
    lanes: Arc<Lanes<Opener>>,
}

impl PeerHost {
    /// Opens no connection yet. The lanes run on `runtime`.
    ///
    /// # Errors
    /// If the identity is unusable.
    pub fn new(ticket: &Ticket, identity: &Identity, runtime: Handle) -> Result<Arc<Self>> {
        Self::with_options(ticket, identity, PeerOptions::default(), runtime)
    }

    /// As [`PeerHost::new`], with options.
    ///
    /// # Errors
    /// As [`PeerHost::new`].
    pub fn with_options(
        ticket: &Ticket,
        identity: &Identity,
        options: PeerOptions,
        runtime: Handle,
    ) -> Result<Arc<Self>> {
        let reach = Arc::new(Reach::of_ticket(ticket, identity, options, runtime.clone())?);
        let opener = Opener { reach: Arc::clone(&reach), next: 0 };
        let lanes = Lanes::new(opener, runtime);
        let pool = Arc::downgrade(&lanes);
        reach.paths.found.on_put(move || {
            if let Some(lanes) = pool.upgrade() {
                lanes.tend();
            }
        });
        Ok(Arc::new(Self { reach, lanes }))
    }

    /// The peer's name for its share.
    ///
    /// # Errors
    /// If the peer cannot be reached.
    pub async fn share_name(&self) -> Result<String> {
        Ok(self.lane().await?.session.welcome.name.clone())
    }

    /// A name that is unique to the peer: its public key in hexadecimal.
    fn name(&self) -> String {
        self.reach.credentials.server_key.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// How lanes reach the peer; `None` while no path is known.
    pub fn reached(&self) -> Option<Path> {
        reach::lock(&self.reach.paths.reached).path.clone()
    }

    /// Sets a callback for events about how the peer is reached. To be called before a lane is opened. It must not
    /// block. A second one has no effect.
    pub fn on_event(&self, callback: impl Fn(ReachEvent) + Send + Sync + 'static) {
        self.reach.events.on_event(callback);
    }

    /// Announces a large transfer, which needs `lanes` lanes over a long path.
    pub fn expect(&self, lanes: usize) {
        self.lanes.with(|_, _, supply| supply.expect(lanes));
    }

    /// The state of the link.
    pub fn link(&self) -> LinkStatus {
        let status = self.lanes.status();
        let path = self.lanes.with(|_, open, _| open.last().map(|lane| lane.path));
        LinkStatus { path, ..status }
    }

    /// Closes the lanes, with a `Bye` on each: otherwise, the sharer retains the session for a minute. To be called
    /// before the runtime of the lanes is shut down; see [`PeerHost::is_closed`].
    pub fn close(&self) {
        // The early responses hold their lane.
        drop(self.reach.prefetch.early.try_lock().ok().and_then(|mut early| early.take()));
        self.lanes.close();
    }

    /// Whether nothing is left to be sent on any lane.
    pub fn is_closed(&self) -> bool {
        Arc::strong_count(&self.reach.unsent) == 1
    }

    fn set_target(&self, lanes: usize) {
        self.lanes.set_target(lanes);
    }

    /// A lane for a message; opens one if there is none.
    async fn lane(&self) -> Result<Arc<Lane>> {
        self.lanes.choose(WhenFull::WaitForNew, Arc::clone).await
    }

    /// Sends a request. Hold the lane until the responses have arrived: it is closed with its last reference.
    async fn send(&self, body: to_server::Body) -> Result<(Arc<Lane>, Responses)> {
        let lane = self.lane().await?;
        let responses = send_on(&lane, body)?;
        Ok((lane, responses))
    }

    /// Sends a request, and waits for its only response.
    async fn request(&self, body: to_server::Body) -> Result<to_client::Body> {
        let lane = self.lane().await?;
        self.request_on(lane, body).await
    }

    /// Sends a request on a lane, and waits for its only response. If the lane is lost and the request is to be
    /// executed once, sends it again on another lane of the session.
    async fn request_on(&self, lane: Arc<Lane>, body: to_server::Body) -> Result<to_client::Body> {
        if body.is_change() {
            self.forget_early().await;
        }
        if body.is_once() {
            return self.once(lane, body).await;
        }
        let mut responses = send_on(&lane, body)?;
        let _forget = Forget(&lane, responses.id);
        responses.message().await
    }

    /// Sends a request without waiting for its response, on any lane of the session. If there is no lane, or it is
    /// lost, the next lane sends the request. If no lane follows, the server ends the session, and closes its files.
    fn post(&self, session: &Arc<Session>, body: to_server::Body) {
        session.notice(body);
        let lane = self.lanes.with(|_, open, _| {
            open.iter()
                .find(|lane| Arc::ptr_eq(&lane.session, session) && !lane.is_ended())
                .cloned()
        });
        if let Some(lane) = lane {
            send_notices(&lane);
        }
    }

    /// Sends a request whose response is `Done`.
    async fn execute(&self, body: to_server::Body) -> Result<()> {
        done(&self.request(body).await?)
    }
}

impl fmt::Debug for PeerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerHost").field("addresses", &self.reach.addresses).finish_non_exhaustive()
    }
}

fn done(response: &to_client::Body) -> Result<()> {
    match response {
        to_client::Body::Done(_) => Ok(()),
        _ => Err(unexpected()),
    }
}

/// The outcome for one path of a request. Its error has no location yet: the caller adds it.
type Outcome<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::time::timeout;

    use super::testing::{World, requests, respond};
    use super::*;
    use crate::wire::messages;

    /// Formerly, a search for a better path held the lane, and the sharer retained the session for a minute.
    #[tokio::test]
    async fn a_closed_host_sends_bye_although_its_state_is_in_use() {
        let World { host, lane, mut sent, .. } = World::new().await;
        let reach = Arc::clone(&host.reach);
        let unsent = Arc::clone(&reach.unsent);
        drop(lane);
        host.close();
        let last = requests(&mut sent).pop().unwrap();
        assert_eq!(last.body, Some(to_server::Body::Bye(messages::Empty {})));
        assert!(!host.is_closed());
        drop(unsent);
        assert!(host.is_closed());
    }

    /// Formerly, a digest of a huge file that its caller had given up, and repeated, went on.
    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_is_cancelled() {
        let path = || Bytes::from_static(b"file");
        let whole = messages::ReadWhole { paths: vec![path()], limit: 7 };
        for request in [
            to_server::Body::Digest(messages::DigestOf { path: path(), kind: 1 }),
            to_server::Body::ReadWhole(whole),
            to_server::Body::Metadata(messages::PathOf { path: path() }),
        ] {
            let World { host, session, lane, mut sent, .. } = World::new().await;
            host.forget_early().await;
            drop(requests(&mut sent));
            // Its caller drops it, or the limit ends it.
            for is_dropped in [true, false] {
                let outcome = host.request_on(Arc::clone(&lane), request.clone());
                let limit = Duration::from_secs(if is_dropped { 5 } else { 86_400 });
                let outcome = timeout(limit, outcome).await;
                assert_eq!(outcome.is_err(), is_dropped);
                let sent = requests(&mut sent);
                let cancel = messages::Cancel { id: sent[0].id, once: false };
                assert_eq!(sent[0].body, Some(request.clone()));
                assert_eq!(sent[1].body, Some(to_server::Body::Cancel(cancel)));
            }
            // One that has its response is not.
            let outcome = host.request_on(Arc::clone(&lane), request.clone());
            let responding = async {
                while !session.is_waiting() {
                    tokio::task::yield_now().await;
                }
                let id = loop {
                    match requests(&mut sent).pop() {
                        Some(request) => break request.id,
                        None => tokio::task::yield_now().await,
                    }
                };
                respond(&session, id, to_client::Body::Done(messages::Empty {}));
            };
            let (outcome, ()) = tokio::join!(outcome, responding);
            outcome.unwrap();
            assert!(requests(&mut sent).is_empty());
        }
    }

    /// Formerly, a lane that the pool released meanwhile was closed right after the request, and the response was lost.
    #[tokio::test]
    async fn a_released_lane_is_closed_only_after_the_response() {
        let World { host, session, lane, mut sent, .. } = World::new().await;
        host.forget_early().await;
        let path = messages::PathOf { path: Bytes::from_static(b"file") };
        let mut request = Box::pin(host.request_on(lane, to_server::Body::Metadata(path)));
        timeout(Duration::from_millis(20), &mut request).await.unwrap_err();
        let is_bye =
            |request: &messages::ToServer| matches!(request.body, Some(to_server::Body::Bye(_)));
        let before = requests(&mut sent);
        assert!(!before.iter().any(is_bye), "{before:?}");
        let id = before.last().unwrap().id;
        respond(&session, id, to_client::Body::Metadata(messages::Metadata::default()));
        request.await.unwrap();
        assert!(requests(&mut sent).iter().any(is_bye));
    }
}
