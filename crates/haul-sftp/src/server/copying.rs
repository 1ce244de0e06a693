//! Copies on the server (`copy-data`), done in steps so that the disk threads also serve other
//! requests.

use std::sync::Arc;

use bytes::Bytes;
use haul_storage::WorkPool;

use super::files::Open;
use super::pending::{Outcome, Pending};
use super::status::{Refusal, ok};
use crate::codec::{Extended, Request};

/// Bytes per step.
const STEP: u64 = 32 << 20;

/// A copy in progress.
pub(super) struct Copying {
    from: Arc<Open>,
    to: Arc<Open>,
    offset: u64,
    length: u64,
    to_offset: u64,
    /// Its end in `from`; unknown before the first step.
    end: Option<u64>,
    in_kernel: bool,
}

impl Copying {
    /// The copy that a request asks for; `None` for other requests.
    pub(super) fn of(request: &Request, from: Arc<Open>, to: Arc<Open>) -> Option<Self> {
        let Request::Extended(Extended::CopyData { from_offset, length, to_offset, .. }) = *request
        else {
            return None;
        };
        let (offset, end) = (from_offset, None);
        Some(Self { from, to, offset, length, to_offset, end, in_kernel: true })
    }

    /// Does one step, and queues the next behind other work.
    pub(super) fn run(mut self, pool: &WorkPool, id: u32, pending: Pending) {
        let again = pool.clone();
        pool.submit(move || {
            let packet: Bytes = match self.step() {
                Ok(true) => ok().encode(id),
                Ok(false) => return self.run(&again, id, pending),
                Err(refusal) => refusal.response().encode(id),
            };
            // The files may be closed as soon as the response is sent.
            drop(self);
            pending.end(Outcome::Packet(packet));
        });
    }

    /// Copies one step; returns whether the copy is complete.
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
