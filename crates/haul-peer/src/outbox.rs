//! Bulk data that a session has to send. All its lanes take from one queue, so the next piece goes to the first lane
//! that can send it, and no slow lane holds up the others. Pieces leave by priority.
//!
//! If several lanes wait, the one that has waited longest gets the next piece: the others may still have packets in
//! flight. So pieces are spread over all idle lanes, each of which can send only 14 KiB in the first RTT.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use haul_storage::{Block, Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::wire::PIECE;

/// Length of the first pieces.
const SHORTEST: u64 = 8 << 10;

/// Maximum length of a piece if many lanes share a path: each lane holds one that it has not sent yet.
const LONGEST_OF_MANY: u64 = 64 << 10;

/// A read of at most this length is spread over all lanes: a process probably waits for it.
const SHORT_READ: u64 = 256 << 10;

/// Lanes that are expected at first: the second one comes an RTT after the first.
const EXPECTED_LANES: usize = 16;

/// One bulk frame to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// The request that it belongs to.
    pub(crate) id: u32,
    /// Pieces of a higher priority leave first.
    pub(crate) priority: u32,
    /// The head of the frame, with everything but the data.
    pub(crate) head: Bytes,
    pub(crate) data: Block,
    /// Room in the outbox, released when the piece has been sent.
    pub(crate) room: OwnedSemaphorePermit,
}

/// The queue of a session.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    room: Arc<Semaphore>,
    /// Bytes that lanes have taken so far.
    taken: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Outgoing>,
    /// Lanes that wait for a piece, the longest waiting first. If any does, the queue is empty.
    idle: VecDeque<oneshot::Sender<Outgoing>>,
    is_closed: bool,
}

/// A lane that waits for a piece.
struct Turn<'a> {
    outbox: &'a Outbox,
    given: oneshot::Receiver<Outgoing>,
}

/// A piece that was given to a lane that no longer waits goes to another lane.
impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.given.close();
        match self.given.try_recv() {
            Ok(piece) => self.outbox.add(piece, true),
            Err(_) => self.outbox.lock().idle.retain(|lane| !lane.is_closed()),
        }
    }
}

impl Outbox {
    /// A queue for at most `bytes` bytes, including those that lanes are sending.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            room: Arc::new(Semaphore::new(bytes)),
            taken: AtomicU64::new(0),
        }
    }

    /// Waits for room for `bytes` bytes.
    ///
    /// # Errors
    /// If the session has ended.
    pub(crate) async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await;
        room.map_err(|_| Error::new(ErrorKind::Unreachable, "send").because("the session ended"))
    }

    /// The length of the next piece, given the number of lanes; pieces end at multiples of it. It grows with what a
    /// lane has sent: TCP sends 14 KiB in the first RTT and doubles that with each RTT, so a lane that has just been
    /// opened would need several RTTs for a long piece, while others have nothing to send. A short read of `length`
    /// bytes is divided among all lanes.
    pub(crate) fn piece(&self, lanes: usize, length: u64) -> u64 {
        let each = self.taken.load(Ordering::Relaxed) / lanes.max(EXPECTED_LANES) as u64;
        let longest = if lanes > EXPECTED_LANES / 2 { LONGEST_OF_MANY } else { PIECE };
        let part = match length {
            ..=SHORT_READ => length / lanes.max(1) as u64,
            _ => longest,
        };
        (each / 4).min(part).next_power_of_two().clamp(SHORTEST, longest)
    }

    /// Gives a piece to the lane that has waited longest, or queues it behind all others of at least its priority.
    pub(crate) fn push(&self, piece: Outgoing) {
        self.add(piece, false);
    }

    /// `is_first`: whether the piece precedes others of its priority.
    fn add(&self, piece: Outgoing, is_first: bool) {
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        let mut piece = piece;
        while let Some(lane) = state.idle.pop_front() {
            match lane.send(piece) {
                Ok(()) => return,
                // The lane waits no longer.
                Err(back) => piece = back,
            }
        }
        let precedes = |other: &&Outgoing| match is_first {
            true => other.priority <= piece.priority,
            false => other.priority < piece.priority,
        };
        let after = state.queue.iter().rev().take_while(precedes).count();
        let at = state.queue.len() - after;
        state.queue.insert(at, piece);
    }

    /// Takes the next piece; waits until there is one.
    pub(crate) async fn next(&self) -> Outgoing {
        loop {
            let mut turn = {
                let mut state = self.lock();
                if let Some(piece) = state.queue.pop_front() {
                    return self.count(piece);
                }
                let (lane, given) = oneshot::channel();
                state.idle.push_back(lane);
                Turn { outbox: self, given }
            };
            if let Ok(piece) = (&mut turn.given).await {
                return self.count(piece);
            }
        }
    }

    /// Takes the next piece, if there is one.
    pub(crate) fn take(&self) -> Option<Outgoing> {
        let piece = self.lock().queue.pop_front();
        piece.map(|piece| self.count(piece))
    }

    fn count(&self, piece: Outgoing) -> Outgoing {
        self.taken.fetch_add(piece.data.len() as u64, Ordering::Relaxed);
        piece
    }

    /// Drops the queued pieces of a request.
    pub(crate) fn cancel(&self, id: u32) {
        self.lock().queue.retain(|piece| piece.id != id);
    }

    /// Drops all queued pieces.
    pub(crate) fn clear(&self) {
        self.lock().queue.clear();
    }

    /// Drops all queued pieces; none can be added any more.
    pub(crate) fn close(&self) {
        self.room.close();
        let mut state = self.lock();
        state.is_closed = true;
        state.queue.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::time::timeout;

    use super::*;

    async fn piece(outbox: &Outbox, id: u32, length: usize) -> Outgoing {
        let data = Block::from(Bytes::from(vec![0; length]));
        let room = outbox.room(length).await.unwrap();
        Outgoing { id, priority: 0, head: Bytes::new(), data, room }
    }

    #[tokio::test]
    async fn pieces_of_a_higher_priority_leave_first_and_equal_ones_in_order() {
        let outbox = Outbox::new(100);
        for (id, priority) in [(1, 0), (2, 5), (3, 0), (4, 5), (5, 1)] {
            let piece = piece(&outbox, id, 1).await;
            outbox.push(Outgoing { priority, ..piece });
        }
        let left: Vec<u32> = std::iter::from_fn(|| outbox.take()).map(|piece| piece.id).collect();
        assert_eq!(left, [2, 4, 5, 1, 3]);
    }

    #[tokio::test]
    async fn pieces_leave_in_order_and_those_of_a_cancelled_request_do_not() {
        let outbox = Outbox::new(100);
        for id in [1, 2, 1, 3] {
            outbox.push(piece(&outbox, id, 10).await);
        }
        outbox.cancel(1);
        assert_eq!((outbox.next().await.id, outbox.next().await.id), (2, 3));
        assert!(outbox.take().is_none());
        assert_eq!(outbox.room.available_permits(), 100);
    }

    #[tokio::test]
    async fn pieces_grow_with_what_each_lane_has_sent() {
        let outbox = Outbox::new(64 << 20);
        let mut lengths = Vec::new();
        for _ in 0..64 {
            outbox.push(piece(&outbox, 1, 1 << 20).await);
            lengths.push((outbox.piece(32, 1 << 20) >> 10, outbox.piece(1, 1 << 20) >> 10));
            drop(outbox.take());
        }
        lengths.dedup();
        lengths.sort_unstable();
        lengths.dedup();
        assert_eq!((lengths.first(), lengths.last()), (Some(&(8, 8)), Some(&(64, 256))));
    }

    #[tokio::test]
    async fn a_full_outbox_waits_until_a_piece_is_sent() {
        let outbox = Outbox::new(10);
        outbox.push(piece(&outbox, 1, 10).await);
        let mut waiting = Box::pin(outbox.room(1));
        assert!(timeout(Duration::from_millis(20), &mut waiting).await.is_err());
        drop(outbox.next().await);
        drop(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn every_waiting_lane_gets_a_piece() {
        let outbox = Arc::new(Outbox::new(100));
        let lanes: Vec<_> = (0..5)
            .map(|_| {
                let outbox = Arc::clone(&outbox);
                tokio::spawn(async move { outbox.next().await.id })
            })
            .collect();
        tokio::task::yield_now().await;
        for id in 0..5 {
            outbox.push(piece(&outbox, id, 1).await);
        }
        for lane in lanes {
            timeout(Duration::from_secs(60), lane).await.unwrap().unwrap();
        }
    }

    /// Formerly, the lane that had just sent a piece took the next one, before those that waited woke up.
    #[tokio::test]
    async fn pieces_are_spread_over_the_lanes_that_wait() {
        let outbox = Outbox::new(100);
        let mut lanes: Vec<_> = (0..3).map(|_| Box::pin(outbox.next())).collect();
        for lane in &mut lanes {
            assert!(lane.now_or_never().is_none());
        }
        for id in 0..4 {
            outbox.push(piece(&outbox, id, 1).await);
        }
        assert_eq!(outbox.take().unwrap().id, 3);
        assert!(outbox.take().is_none());
        let left: Vec<_> = lanes.into_iter().map(|lane| lane.now_or_never().unwrap().id).collect();
        assert_eq!(left, [0, 1, 2]);
    }

    #[tokio::test]
    async fn no_piece_is_lost_with_a_lane_that_stops_waiting() {
        let outbox = Outbox::new(100);
        let mut lane = Box::pin(outbox.next());
        assert!((&mut lane).now_or_never().is_none());
        for id in 1..3 {
            outbox.push(piece(&outbox, id, 1).await);
        }
        // Piece 1 was given to this lane.
        drop(lane);
        assert_eq!((outbox.take().unwrap().id, outbox.take().unwrap().id), (1, 2));
        for _ in 0..5 {
            assert!(outbox.next().now_or_never().is_none());
        }
        assert!(outbox.lock().idle.is_empty());
    }

    #[test]
    fn a_short_read_is_spread_over_all_lanes() {
        let outbox = Outbox::new(100);
        outbox.taken.store(1 << 30, Ordering::Relaxed);
        let lengths =
            [(4, 64 << 10), (4, 128 << 10), (48, 128 << 10), (48, 1 << 20), (1, 128 << 10)];
        let pieces = lengths.map(|(lanes, length)| outbox.piece(lanes, length) >> 10);
        assert_eq!(pieces, [16, 32, 8, 64, 128]);
    }

    #[tokio::test]
    async fn a_closed_outbox_accepts_nothing() {
        let outbox = Outbox::new(10);
        outbox.push(piece(&outbox, 1, 10).await);
        outbox.close();
        assert!(outbox.take().is_none());
        assert_eq!(outbox.room(1).await.unwrap_err().kind(), ErrorKind::Unreachable);
    }
}
