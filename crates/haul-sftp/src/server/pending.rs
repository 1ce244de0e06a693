//! Reports the end of a job, on whichever thread it runs, to the session, even if the job panics.

use bytes::{Bytes, BytesMut};
use haul_storage::Block;
use tokio::sync::mpsc::UnboundedSender;

use super::files::Open;
use super::hashing::Hashing;
use super::order::Scope;
use super::status::{Refusal, status_response};
use crate::codec::Status;

/// A finished job.
pub(super) struct Ended {
    /// `None` if no other request waits for it.
    pub(super) scope: Option<Scope>,
    /// Number of requests that it executed.
    pub(super) requests: usize,
    pub(super) held: usize,
    pub(super) kind: Kind,
    pub(super) outcome: Outcome,
}

/// Kinds of jobs that the session distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Open,
    /// Computing a digest, or opening its file.
    Hash,
    /// A READ. Responses of one handle are sent in the order of its requests.
    Read {
        handle: u32,
        id: u32,
    },
    Other,
}

pub(super) enum Outcome {
    Packet(Bytes),
    Packets(Vec<Bytes>),
    Opened {
        id: u32,
        outcome: Result<Open, Refusal>,
    },
    /// The file to be hashed is open.
    Hashing {
        id: u32,
        outcome: Result<Hashing, Refusal>,
    },
}

/// Notifies the session when a job ends, even if it panics.
pub(super) struct Pending {
    scope: Option<Scope>,
    ids: Vec<u32>,
    held: usize,
    kind: Kind,
    ending: Option<UnboundedSender<Ended>>,
}

impl Pending {
    /// For request `id`, which holds `held` bytes.
    pub(super) fn new(
        scope: Option<Scope>,
        id: u32,
        held: usize,
        kind: Kind,
        ending: UnboundedSender<Ended>,
    ) -> Self {
        Self { scope, ids: vec![id], held, kind, ending: Some(ending) }
    }

    /// Adds a request that is executed by the same job.
    pub(super) fn add(&mut self, id: u32, held: usize) {
        self.ids.push(id);
        self.held += held;
    }

    /// Ends the job with its outcome.
    pub(super) fn end(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Outcome) {
        let Some(ending) = self.ending.take() else { return };
        let (scope, requests) = (self.scope, self.ids.len());
        let ended = Ended { scope, requests, held: self.held, kind: self.kind, outcome };
        // Fails if the session is gone, which needs no responses.
        drop(ending.send(ended));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.ending.is_none() {
            // It ended with an outcome.
            return;
        }
        let response = status_response(Status::Failure, "the server failed");
        let packets = self.ids.iter().map(|id| response.encode(*id)).collect();
        self.send(Outcome::Packets(packets));
    }
}

/// A copy that does not keep the buffer of the original alive.
pub(super) fn copied(body: &Block) -> Block {
    let mut bytes = BytesMut::with_capacity(body.len());
    for piece in body.pieces() {
        bytes.extend_from_slice(piece);
    }
    bytes.freeze().into()
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn a_job_ends_once_with_its_outcome_or_with_a_failure_of_each_request() {
        let (ending, mut ended) = unbounded_channel();
        let pending = || {
            let mut pending = Pending::new(None, 1, 10, Kind::Other, ending.clone());
            pending.add(2, 20);
            pending
        };
        pending().end(Outcome::Packet(Bytes::from_static(b"done")));
        let completed = ended.try_recv().unwrap();
        assert!(matches!(completed.outcome, Outcome::Packet(packet) if packet == b"done"[..]));
        assert!(ended.try_recv().is_err());
        drop(pending());
        let dropped = ended.try_recv().unwrap();
        assert_eq!((dropped.requests, dropped.held), (2, 30));
        let failed = |id| status_response(Status::Failure, "the server failed").encode(id);
        assert!(matches!(dropped.outcome, Outcome::Packets(all) if all == [failed(1), failed(2)]));
        assert!(ended.try_recv().is_err());
    }
}
