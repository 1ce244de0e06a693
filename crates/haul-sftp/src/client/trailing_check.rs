//! Stat requests that are sent right behind the last READs of a file, so that the check whether it has changed costs no
//! RTT of its own.
//!
//! A server that processes requests in order has performed all READs of a lane before the stat behind them. So once the
//! end of the file has been requested, each lane sends a stat behind its last READ. Together these show what a single
//! stat after all READs would show.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_net::pool::SharedLane;
use haul_storage::Result;
use tokio::task::JoinHandle;

use super::part::Part;
use super::prefetch::LONG;
use super::session::Session;
use crate::codec::{Request, Response};

/// The last stat on each lane, once the end of the file has been requested.
#[derive(Debug, Default)]
pub(super) struct TrailingCheck(Mutex<Option<Stats>>);

/// Stat requests by lane; `None` for a lane on which a stat would prove or save nothing, which makes the whole check
/// void.
type Stats = HashMap<usize, Option<PendingStat>>;

#[derive(Debug)]
struct PendingStat {
    response: JoinHandle<(Result<Response>, Instant)>,
    rtt: Duration,
}

impl TrailingCheck {
    /// Sends `stat` behind the READ of `part`, if the end of the file has been requested. The first time that `part` is
    /// the end of the file, also sends it on all other `lanes`.
    pub(super) fn send(
        &self,
        part: &Part,
        is_end: bool,
        lanes: impl FnOnce() -> Vec<Arc<Session>>,
        stat: &Request,
    ) {
        let mut stats = self.lock();
        if is_end && stats.is_none() {
            let others = lanes().into_iter().filter(|lane| lane.id() != part.session.id());
            let sent = others.map(|lane| (lane.id(), stat_on(&lane, stat)));
            *stats = Some(sent.collect());
        }
        if let Some(stats) = &mut *stats {
            stats.insert(part.session.id(), stat_on(&part.session, stat));
        }
    }

    /// The responses, if none is missing and the last one arrived at most an RTT ago: older ones would miss later
    /// changes.
    pub(super) async fn responses(&self) -> Option<Vec<Response>> {
        let called = Instant::now();
        let stats = self.lock().take()?;
        let mut newest: Option<Instant> = None;
        let mut longest = Duration::ZERO;
        let mut responses = Vec::new();
        for pending in stats.into_values() {
            let pending = pending?;
            let (response, at) = pending.response.await.ok()?;
            responses.push(response.ok()?);
            newest = newest.max(Some(at));
            longest = longest.max(pending.rtt);
        }
        newest.filter(|newest| *newest + longest >= called).map(|_| responses)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Stats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a stat on a lane, if its server processes requests in order and its RTT is long.
fn stat_on(lane: &Session, stat: &Request) -> Option<PendingStat> {
    let rtt = lane.rtt().filter(|_| lane.is_in_turn())?;
    (rtt >= LONG).then(|| {
        let pending = lane.request(stat);
        let response = tokio::spawn(async move { (pending.response().await, Instant::now()) });
        PendingStat { response, rtt }
    })
}
