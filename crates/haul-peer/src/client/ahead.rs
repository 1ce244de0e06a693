//! The beginning of a file, read in the same RTT in which the file is opened. Reads within it take their blocks from
//! here instead of requesting them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::{Block, Range};
use tokio::sync::Notify;

use super::reading::Reading;

/// Bytes that are read with the open. They keep the path busy while the request for more is in flight.
pub(super) const AHEAD: u64 = 512 << 10;

/// Blocks that were not taken yet, and the read in progress that delivers more.
pub(super) struct Ahead {
    end: u64,
    state: Mutex<State>,
    /// Locked by the task that receives the next block, which another task may need; `None` once the read has ended.
    reading: tokio::sync::Mutex<Option<Reading>>,
    /// Notified when a block has arrived, or no further one will.
    arrived: Notify,
}

#[derive(Default)]
struct State {
    /// By their offsets.
    blocks: BTreeMap<u64, Block>,
    /// The end of what has arrived.
    arrived: u64,
    has_ended: bool,
}

impl Ahead {
    /// The blocks of `reading`, which starts at offset 0.
    pub(super) fn new(reading: Reading) -> Self {
        let end = reading.end();
        let reading = tokio::sync::Mutex::new(Some(reading));
        Self { end, state: Mutex::default(), reading, arrived: Notify::new() }
    }

    /// The block at the start of `range`; `None` if it has to be requested.
    pub(super) async fn take(&self, range: Range) -> Option<Block> {
        if range.start() >= self.end {
            return None;
        }
        loop {
            let mut arrived = pin!(self.arrived.notified());
            // From here on, no notification is missed.
            arrived.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(block) = state.cut(range) {
                    return Some(block);
                }
                // The block was taken before and is read again, or it will not arrive.
                if range.start() < state.arrived || state.has_ended {
                    return None;
                }
            }
            tokio::select! {
                // A block that has arrived may be the wanted one, even if the lock is free as well.
                biased;
                () = arrived => {}
                mut reading = self.reading.lock() => {
                    let outcome = match reading.as_mut() {
                        Some(reading) => reading.next().await,
                        None => Ok(None),
                    };
                    let mut state = self.lock();
                    match outcome {
                        Ok(Some(block)) => {
                            let at = state.arrived;
                            state.arrived += block.len() as u64;
                            state.blocks.insert(at, block);
                        }
                        // The caller requests the rest. That fails with the same error, unless only a lane was lost.
                        Ok(None) | Err(_) => {
                            state.has_ended = true;
                            *reading = None;
                        }
                    }
                    drop(state);
                    self.arrived.notify_waiters();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the bytes at the start of `range`: up to the end of their block or of `range`.
    fn cut(&mut self, range: Range) -> Option<Block> {
        let (&at, block) = self.blocks.range(..=range.start()).next_back()?;
        let before = usize::try_from(range.start() - at).ok()?;
        if before >= block.len() {
            return None;
        }
        let mut earlier = self.blocks.remove(&at)?;
        let mut block = earlier.split_off(before);
        if !earlier.is_empty() {
            self.blocks.insert(at, earlier);
        }
        let length = usize::try_from(range.len()).unwrap_or(usize::MAX);
        if block.len() > length {
            let later = block.split_off(length);
            self.blocks.insert(range.end(), later);
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures_util::FutureExt as _;

    use super::super::testing::{World, requests};
    use super::*;
    use crate::wire::messages::{self, to_server};
    use crate::wire::{BulkHeader, piece_hash};

    /// Formerly, with n tasks waiting, a block was taken only after n more had arrived, RTTs later.
    #[tokio::test]
    async fn a_block_is_taken_at_once_however_many_tasks_wait() {
        let World { session, lane, .. } = World::new().await;
        let read = messages::Read { length: AHEAD, ..messages::Read::default() };
        let responses = session.register(lane.number, &to_server::Body::Read(read));
        let id = responses.id;
        let ahead = Ahead::new(Reading::new(Arc::clone(&lane), responses, Range::new(0, AHEAD)));
        let piece = |offset: u64| {
            let data = Block::from(Bytes::from_static(b"content"));
            let (hash, is_subtree) = piece_hash(offset, &data, None);
            let header = BulkHeader { id, handle: 7, offset, is_last: false, is_subtree, hash };
            session.piece(header, data);
        };
        let take = |number: u64| Box::pin(ahead.take(Range::new(number * 7, 7)));
        let mut waiting: Vec<_> = (0..4).map(take).collect();
        for first in &mut waiting {
            assert!(first.as_mut().now_or_never().is_none());
        }
        for number in 0..4 {
            piece(number * 7);
            // The task that receives may be polled last.
            let mut done = Vec::new();
            for _ in 0..2 {
                for (at, task) in waiting.iter_mut().enumerate() {
                    if at as u64 >= number
                        && !done.contains(&at)
                        && task.as_mut().now_or_never().is_some()
                    {
                        done.push(at);
                    }
                }
            }
            assert_eq!(done, [number as usize]);
        }
    }

    /// Formerly, the client cancelled a read that the server had finished, for each small file.
    #[tokio::test]
    async fn a_read_is_cancelled_unless_all_of_it_has_been_taken() {
        let World { session, lane, mut sent, .. } = World::new().await;
        requests(&mut sent);
        for takes_all in [true, false] {
            let read = messages::Read { length: AHEAD, ..messages::Read::default() };
            let responses = session.register(lane.number, &to_server::Body::Read(read));
            let id = responses.id;
            let reading = Reading::new(Arc::clone(&lane), responses, Range::new(0, AHEAD));
            // The file has 14 bytes.
            let ahead = Ahead::new(reading.until(14));
            for offset in [0, 7] {
                let data = Block::from(Bytes::from_static(b"content"));
                let (hash, is_subtree) = piece_hash(offset, &data, None);
                let (handle, is_last) = (7, false);
                let header = BulkHeader { id, handle, offset, is_last, is_subtree, hash };
                session.piece(header, data);
            }
            assert_eq!(ahead.take(Range::new(0, 7)).await.unwrap().len(), 7);
            if takes_all {
                assert_eq!(ahead.take(Range::new(7, 7)).await.unwrap().len(), 7);
            }
            drop(ahead);
            let cancel = Some(to_server::Body::Cancel(messages::Cancel { id, once: false }));
            let is_cancelled = requests(&mut sent).iter().any(|request| request.body == cancel);
            assert_eq!(is_cancelled, !takes_all);
        }
    }
}
