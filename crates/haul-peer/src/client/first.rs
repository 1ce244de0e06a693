//! Announces the location that a command needs first, and takes the responses to the requests that were sent for it
//! with the first Hello (`early`).

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use haul_storage::{Entry, ErrorKind, RelPath, Result};
use tokio::time::Instant;

use super::early::{Early, First, Looked, OPEN};
use super::reach::Phase;
use super::read::{Handle, Opened};
use super::session::Responses;
use super::{Lane, PeerHost, reach};
use crate::wire::convert;
use crate::wire::messages::to_client;

impl PeerHost {
    /// Announces that a location will be looked at, then listed or read. Its requests are sent with the Hello of the
    /// first lane.
    pub fn read_first(&self, path: &RelPath) {
        self.announce(First { path: path.clone(), is_read: true });
    }

    /// Announces that a location will be looked at and written to. Its requests are sent with the Hello of the first
    /// lane.
    pub fn look_first_at(&self, path: &RelPath) {
        self.announce(First { path: path.clone(), is_read: false });
    }

    /// Has no effect once there is a session, or a lane is opening one.
    fn announce(&self, first: First) {
        if matches!(*self.reach.session.borrow(), Phase::None) {
            *reach::lock(&self.reach.prefetch.first) = Some(first);
        }
    }

    /// Discards the early responses, since something is about to change.
    pub(super) async fn forget_early(&self) {
        *self.reach.prefetch.early.lock().await = None;
    }

    /// The entry of a path, or `NotFound`, if it was requested early and is current. A slow response delays only tasks
    /// that need it.
    pub(super) async fn early_stat(&self, path: &RelPath) -> Option<Result<Entry>> {
        let stat = {
            let mut guard = self.reach.prefetch.early.lock().await;
            Arc::clone(&current(&mut guard, path)?.stat)
        };
        let mut looked = stat.lock().await;
        let (entry, arrived) = match &mut *looked {
            Looked::Sent(responses) => {
                let mut entry = pin!(entry_in(responses, path));
                match entry.as_mut().now_or_never() {
                    Some(entry) => (entry, None),
                    None => (entry.await, Some(Instant::now())),
                }
            }
            Looked::Known(outcome) => (Some(again(outcome)), None),
        };
        let mut guard = self.reach.prefetch.early.lock().await;
        // The responses may have been discarded meanwhile, because of a change.
        let early = guard.as_mut().filter(|early| Arc::ptr_eq(&early.stat, &stat))?;
        early.since = arrived.unwrap_or(early.since);
        match &entry {
            Some(entry) => *looked = Looked::Known(Box::new(again(entry))),
            None => *guard = None,
        }
        entry
    }

    /// The listing of a path, if it was requested early and is current.
    pub(super) async fn early_list(&self, path: &RelPath) -> Option<(Arc<Lane>, Responses)> {
        let mut guard = self.reach.prefetch.early.lock().await;
        let early = current(&mut guard, path)?;
        let list = early.list.take()?;
        (!early.lane.is_ended()).then(|| (Arc::clone(&early.lane), list))
    }

    /// The response with the free space at a path, if it was requested early and is current.
    pub(super) async fn early_space(&self, path: &RelPath) -> Option<to_client::Body> {
        let mut guard = self.reach.prefetch.early.lock().await;
        let mut space = current(&mut guard, path)?.space.take()?;
        drop(guard);
        space.message().await.ok()
    }

    /// The file at a path, if it was opened early and is current.
    pub(super) async fn early_open(self: &Arc<Self>, path: &RelPath) -> Option<Opened> {
        let mut guard = self.reach.prefetch.early.lock().await;
        let mut open = current(&mut guard, path)?.open.take()?;
        drop(guard);
        let to_client::Body::Opened(opened) = open.responses.message().await.ok()? else {
            return None;
        };
        open.is_taken = true;
        let session = Arc::clone(&open.lane.session);
        session.confirm(OPEN, false);
        Some((Handle::new(self, &session, opened.handle), opened, open.reading.take()))
    }
}

/// A copy of the outcome.
fn again(outcome: &Result<Entry>) -> Result<Entry> {
    match outcome {
        Ok(entry) => Ok(entry.clone()),
        Err(error) => Err(error.again()),
    }
}

/// The entry in a response, or `NotFound`; `None` if the request has failed otherwise.
async fn entry_in(responses: &mut Responses, path: &RelPath) -> Option<Result<Entry>> {
    let to_client::Body::Entries(entries) = responses.message().await.ok()? else { return None };
    let is_whole = entries.last;
    let outcome = convert::entries(entries).pop().filter(|_| is_whole)?;
    match &outcome {
        Ok(entry) if entry.path == *path => Some(outcome),
        Err(error) if error.kind() == ErrorKind::NotFound => Some(outcome),
        _ => None,
    }
}

/// The early responses, if they are for this path. Discards them if they are not current any more.
fn current<'a>(early: &'a mut Option<Early>, path: &RelPath) -> Option<&'a mut Early> {
    if early.as_ref().is_some_and(|early| !early.is_current()) {
        *early = None;
    }
    early.as_mut().filter(|early| early.path == *path)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use haul_storage::{EntryKind, Error};
    use tokio::time::{advance, sleep, timeout};

    use super::super::early::CURRENT;
    use super::super::testing::{World, requests, respond};
    use super::*;
    use crate::wire::messages::{self, to_server};

    /// Responds to the requests for the entry and the file.
    fn respond_all(world: &World) {
        let entry = Entry::new(world.path.clone(), EntryKind::File, 7);
        let outcomes = vec![convert::entry_outcome(&Ok(entry))];
        let entries = messages::Entries { outcomes, last: true };
        respond(&world.session, 1, to_client::Body::Entries(entries));
        let opened = messages::Opened { handle: 7, ..messages::Opened::default() };
        respond(&world.session, OPEN, to_client::Body::Opened(opened));
    }

    /// Whether the open is cancelled, so that the server closes the file.
    fn closes_file(world: &mut World) -> bool {
        let cancel = messages::Cancel { id: OPEN, once: true };
        let expected = Some(to_server::Body::Cancel(cancel));
        requests(&mut world.sent).iter().any(|request| request.body == expected)
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_was_opened_early_is_taken_once() {
        let mut world = World::new().await;
        respond_all(&world);
        assert_eq!(world.host.early_stat(&world.path).await.unwrap().unwrap().size, 7);
        let (handle, opened, _) = world.host.early_open(&world.path).await.unwrap();
        assert_eq!(opened.handle, 7);
        assert!(world.host.early_open(&world.path).await.is_none());
        world.host.forget_early().await;
        assert!(!closes_file(&mut world));
        drop(handle);
    }

    /// Formerly, the entry was requested once more.
    #[tokio::test(start_paused = true)]
    async fn a_missing_path_is_looked_up_once() {
        let mut world = World::new().await;
        let missing = Err(Error::new(ErrorKind::NotFound, "find"));
        let outcomes = vec![convert::entry_outcome(&missing)];
        let entries = messages::Entries { outcomes, last: true };
        respond(&world.session, 1, to_client::Body::Entries(entries));
        for _ in 0..2 {
            let outcome = world.host.early_stat(&world.path).await.unwrap();
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert!(requests(&mut world.sent).is_empty());
        // Something has been created.
        world.host.forget_early().await;
        assert!(world.host.early_stat(&world.path).await.is_none());
    }

    /// Errors other than `NotFound` may be transient.
    #[tokio::test(start_paused = true)]
    async fn a_transient_error_of_an_early_request_is_not_returned() {
        let world = World::new().await;
        let busy = Err(Error::new(ErrorKind::Busy, "find"));
        let outcomes = vec![convert::entry_outcome(&busy)];
        let entries = messages::Entries { outcomes, last: true };
        respond(&world.session, 1, to_client::Body::Entries(entries));
        assert!(world.host.early_stat(&world.path).await.is_none());
    }

    /// Formerly, an entry counted as current from the first time that it was needed, and a file that was not taken
    /// stayed open.
    #[tokio::test(start_paused = true)]
    async fn old_early_responses_are_discarded() {
        let mut world = World::new().await;
        respond_all(&world);
        advance(CURRENT + Duration::from_millis(1)).await;
        assert!(world.host.early_stat(&world.path).await.is_none());
        assert!(world.host.early_open(&world.path).await.is_none());
        assert!(closes_file(&mut world));
    }

    /// Formerly, they counted as current for two more seconds from the first time that the entry was needed.
    #[tokio::test(start_paused = true)]
    async fn early_responses_count_as_current_from_their_arrival() {
        let mut world = World::new().await;
        respond_all(&world);
        advance(CURRENT - Duration::from_millis(1)).await;
        assert!(world.host.early_stat(&world.path).await.is_some());
        advance(Duration::from_millis(2)).await;
        assert!(world.host.early_open(&world.path).await.is_none());
        assert!(closes_file(&mut world));
        // A server that takes long to respond.
        let world = World::new().await;
        let responding = async {
            sleep(CURRENT - Duration::from_millis(1)).await;
            respond_all(&world);
        };
        let (entry, ()) = tokio::join!(world.host.early_stat(&world.path), responding);
        assert!(entry.is_some());
        advance(CURRENT - Duration::from_millis(1)).await;
        assert!(world.host.early_open(&world.path).await.is_some());
    }

    /// Formerly, requests for other paths, and changes, waited for the entry as well.
    #[tokio::test(start_paused = true)]
    async fn a_slow_entry_delays_only_tasks_that_need_it() {
        let world = World::new().await;
        let stat = world.host.early_stat(&world.path);
        let other = async {
            // Lets the first task begin to wait for its response.
            tokio::task::yield_now().await;
            let other = RelPath::parse("other").unwrap();
            assert!(world.host.early_stat(&other).await.is_none());
            assert!(world.host.early_list(&other).await.is_none());
            assert!(world.host.early_list(&world.path).await.is_some());
            respond_all(&world);
        };
        let both = async { tokio::join!(stat, world.host.early_stat(&world.path), other) };
        let (first, second, ()) = timeout(Duration::from_secs(1), both).await.unwrap();
        assert_eq!((first.unwrap().unwrap().size, second.unwrap().unwrap().size), (7, 7));
        // If something changed while the response was in flight, the entry is requested again.
        let world = World::new().await;
        let change = async {
            tokio::task::yield_now().await;
            world.host.forget_early().await;
            respond_all(&world);
        };
        let (entry, ()) = tokio::join!(world.host.early_stat(&world.path), change);
        assert!(entry.is_none());
    }

    /// Formerly, a file that was replaced at once was described as it had been before.
    #[tokio::test(start_paused = true)]
    async fn a_change_makes_early_responses_obsolete() {
        let mut world = World::new().await;
        respond_all(&world);
        assert!(world.host.early_stat(&world.path).await.is_some());
        let remove = messages::PathOf { path: Bytes::from_static(b"file") };
        let remove = to_server::Body::Remove(remove);
        let removing = world.host.request_on(Arc::clone(&world.lane), remove);
        timeout(Duration::from_millis(1), removing).await.unwrap_err();
        assert!(world.host.early_stat(&world.path).await.is_none());
        assert!(closes_file(&mut world));
    }
}
