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
pub(super) struct TrailingCheck(Mutex<Option<Looks>>);

/// Stat requests by lane; `None` for a lane on which a stat would prove nothing, which makes the whole check void.
type Looks = HashMap<usize, Option<Look>>;

#[derive(Debug)]
struct Look {
    response: JoinHandle<(Result<Response>, Instant)>,
    rtt: Duration,
}

impl TrailingCheck {
    /// Sends `stat` behind the READs of `part`, if the end of the file has been requested. If `part` is
    /// the end of the file, sends it on every lane.
    pub(super) fn look(
        &self,
        part: &Part,
        is_end: bool,
        lanes: impl FnOnce() -> Vec<Arc<Session>>,
        stat: &Request,
    ) {
        let mut looks = self.lock();
        if is_end && looks.is_none() {
            let others = lanes().into_iter().filter(|lane| lane.id() != part.session.id());
            let looked = others.map(|lane| (lane.id(), look_on(&lane, stat)));
            *looks = Some(looked.collect());
        }
        if let Some(looks) = &mut *looks {
            looks.insert(part.session.id(), look_on(&part.session, stat));
        }
    }

    /// The responses, if none is missing and the last one arrived at most an RTT ago: older ones would miss later
    /// changes.
    pub(super) async fn seen(&self) -> Option<Vec<Response>> {
        let called = Instant::now();
        let looks = self.lock().take()?;
        let mut newest: Option<Instant> = None;
        let mut longest = Duration::ZERO;
        let mut seen = Vec::new();
        for look in looks.into_values() {
            let look = look?;
            let (response, at) = look.response.await.ok()?;
            seen.push(response.ok()?);
            newest = newest.max(Some(at));
            longest = longest.max(look.rtt);
        }
        newest.filter(|newest| *newest + longest >= called).map(|_| seen)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Looks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends a stat on a lane, if its server processes requests in order and its RTT is long.
fn look_on(lane: &Session, stat: &Request) -> Option<Look> {
    let rtt = lane.rtt().filter(|_| lane.is_in_turn())?;
    (rtt >= LONG).then(|| {
        let pending = lane.request(stat);
        let response = tokio::spawn(async move { (pending.answer().await, Instant::now()) });
        Look { response, rtt }
    })
}
