//! Copies on the server (`copy-data`). They are done in steps, between which the disk threads serve
//! others.

use std::sync::Arc;

use bytes::Bytes;
use haul_storage::WorkPool;

use super::files::Open;
use super::pending::{Outcome, Pending};
use super::status::{Refusal, ok};
use crate::codec::{Extended, Request};

/// Bytes of a step.
const STEP: u64 = 32 << 20;

/// A copy on its way.
pub(super) struct Copying {
    from: Arc<Open>,
    to: Arc<Open>,
    offset: u64,
    length: u64,
    to_offset: u64,
    /// Where it ends in `from`; not known before it begins.
    end: Option<u64>,
    in_kernel: bool,
}

impl Copying {
    /// The copy that a request asks for, if it asks for one.
    pub(super) fn of(request: &Request, from: Arc<Open>, to: Arc<Open>) -> Option<Self> {
        let Request::Extended(Extended::CopyData { from_offset, length, to_offset, .. }) = *request
        else {
            return None;
        };
        let (offset, end) = (from_offset, None);
        Some(Self { from, to, offset, length, to_offset, end, in_kernel: true })
    }

    /// Does a step, and the next behind whatever else is to be done by then.
    pub(super) fn run(mut self, pool: &WorkPool, id: u32, pending: Pending) {
        let again = pool.clone();
        pool.submit(move || {
            let packet: Bytes = match self.step() {
                Ok(true) => ok().encode(id),
                Ok(false) => return self.run(&again, id, pending),
                Err(refusal) => refusal.response().encode(id),
            };
            // What is copied may be closed as soon as the answer is out.
            drop(self);
            pending.end(Outcome::Packet(packet));
        });
    }

    /// Copies some of it; whether that was all.
    fn step(&mut self) -> Result<bool, Refusal> {
        let (from, to) = (self.from.as_file()?, self.to.as_file()?);
        let end = match self.end {
            Some(end) => end,
            None => from.end_of_copy((self.offset, self.length), to, self.to_offset)?,
        };
        self.end = Some(end);
        let pause = end.min(self.offset.saturating_add(STEP));
        while self.offset < pause {
            let most = usize::try_from(pause - self.offset).unwrap_or(usize::MAX);
            let how = (most, &mut self.in_kernel);
            let copied = from.copy_some(self.offset, to, self.to_offset, how)? as u64;
            if copied == 0 {
                return Ok(true);
            }
            self.offset += copied;
            self.to_offset += copied;
        }
        Ok(self.offset >= end)
    }
}
