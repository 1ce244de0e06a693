//! Looks at a file that are made behind its last READs, so that to know whether it has changed
//! meanwhile takes no round trip of its own.
//!
//! A server that does one after the other has answered all READs of a lane when it looks. So from
//! when the end of the file has been asked for, every lane looks behind its last READ. What the
//! looks see together is what one look after the last READ would see.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_net::pool::SharedLane;
use haul_storage::Result;
use tokio::task::JoinHandle;

use super::part::Part;
use super::session::Session;
use crate::codec::{Request, Response};

/// On a shorter way a round trip more costs nothing.
pub(super) const LONG: Duration = Duration::from_millis(10);

/// The last look on each lane, once the end of the file has been asked for.
#[derive(Debug, Default)]
pub(super) struct TrailingCheck(Mutex<Option<Looks>>);

/// By lane; none where it could not be looked, so that nothing can be said.
type Looks = HashMap<usize, Option<Look>>;

#[derive(Debug)]
struct Look {
    answer: JoinHandle<(Result<Response>, Instant)>,
    rtt: Duration,
}

impl TrailingCheck {
    /// Looks behind `part`, if the end was asked for; behind everything, if it is the end.
    pub(super) fn look(
        &self,
        part: &Part,
        is_end: bool,
        lanes: impl FnOnce() -> Vec<Arc<Session>>,
        question: &Request,
    ) {
        let mut looks = self.lock();
        if is_end && looks.is_none() {
            let others = lanes().into_iter().filter(|lane| lane.id() != part.session.id());
            let looked = others.map(|lane| (lane.id(), look_on(&lane, question)));
            *looks = Some(looked.collect());
        }
        if let Some(looks) = &mut *looks {
            looks.insert(part.session.id(), look_on(&part.session, question));
        }
    }

    /// What was seen, if that is as new as an answer to a question of now would be: the last look is
    /// no older than a round trip.
    pub(super) async fn seen(&self) -> Option<Vec<Response>> {
        let asked = Instant::now();
        let looks = self.lock().take()?;
        let mut newest: Option<Instant> = None;
        let mut longest = Duration::ZERO;
        let mut seen = Vec::new();
        for look in looks.into_values() {
            let look = look?;
            let (answer, at) = look.answer.await.ok()?;
            seen.push(answer.ok()?);
            newest = newest.max(Some(at));
            longest = longest.max(look.rtt);
        }
        newest.filter(|newest| *newest + longest >= asked).map(|_| seen)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Looks>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks on a lane where that tells something and is worth it.
fn look_on(lane: &Session, question: &Request) -> Option<Look> {
    let rtt = lane.rtt().filter(|_| lane.is_in_turn())?;
    (rtt >= LONG).then(|| {
        let pending = lane.request(question);
        let answer = tokio::spawn(async move { (pending.answer().await, Instant::now()) });
        Look { answer, rtt }
    })
}
