//! A range of a file that is being read. Its pieces arrive in any order, on any lanes.

use std::collections::BTreeMap;
use std::sync::Arc;

use haul_storage::{Block, Range, Result};

use super::lane::Lane;
use super::send::{cancel, send_on};
use super::session::{Received, Responses, most_pieces, unexpected};
use crate::wire::messages::{self, to_client, to_server};

/// A range that is being read, and the pieces that have arrived out of order.
pub(super) struct Reading {
    lane: Arc<Lane>,
    responses: Responses,
    next: u64,
    end: u64,
    early: BTreeMap<u64, Block>,
    /// Whether the file ended before the range did.
    pub(super) ended_early: bool,
}

impl Reading {
    pub(super) fn new(lane: Arc<Lane>, responses: Responses, range: Range) -> Self {
        Self {
            lane,
            responses,
            next: range.start(),
            end: range.end(),
            early: BTreeMap::new(),
            ended_early: false,
        }
    }

    /// Reads the first `length` bytes of the file that the request `opened_by` opens, which was sent on this lane.
    pub(super) fn ahead(lane: &Arc<Lane>, opened_by: u32, length: u64) -> Result<Self> {
        let read = messages::Read { length, opened_by, ..messages::Read::default() };
        let responses = send_on(lane, to_server::Body::Read(read))?;
        Ok(Self::new(Arc::clone(lane), responses, Range::new(0, length)))
    }

    /// Shortens the range to `size`, the length of the file.
    pub(super) fn until(mut self, size: u64) -> Self {
        self.end = self.end.min(size);
        self
    }

    /// The end of the range.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Whether no piece that overlaps `start..end` has arrived. Overlapping pieces would leave a gap elsewhere that is
    /// never filled.
    fn is_missing(&self, start: u64, end: u64) -> bool {
        let last = self.early.range(..end).next_back();
        last.is_none_or(|(at, piece)| at + piece.len() as u64 <= start)
    }

    /// The next block in order; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Block>> {
        loop {
            if let Some(block) = self.early.remove(&self.next) {
                self.next += block.len() as u64;
                return Ok(Some(block));
            }
            if self.next >= self.end {
                return Ok(None);
            }
            match self.responses.next().await? {
                Received::Piece(header, data) => {
                    let end = header.offset.saturating_add(data.len() as u64);
                    let is_wanted = header.offset >= self.next && end <= self.end;
                    if data.is_empty() || !is_wanted || !self.is_missing(header.offset, end) {
                        return Err(unexpected());
                    }
                    self.early.insert(header.offset, data);
                    // The session has permitted pieces for the requested length; the file may be shorter.
                    if self.early.len() as u64 > most_pieces(self.end - self.next) {
                        return Err(unexpected());
                    }
                }
                // The file ends at this offset, or all pieces up to it have been sent.
                Received::Message(to_client::Body::ReadEnd(end)) if end.offset <= self.end => {
                    self.ended_early |= end.offset < self.end;
                    self.end = end.offset;
                }
                Received::Message(_) => return Err(unexpected()),
            }
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let id = self.responses.id;
        let was_waiting = self.lane.session.forget(id);
        // Once the last block has been taken, the server has finished the read.
        if self.next < self.end && was_waiting {
            cancel(&self.lane, id);
        }
    }
}
