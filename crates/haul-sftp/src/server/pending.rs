//! From a disk thread back to the session: how a job ended, and that it ended whatever happened.

use bytes::{Bytes, BytesMut};
use haul_storage::Block;
use tokio::sync::mpsc::UnboundedSender;

use super::files::Open;
use super::hashing::Hashing;
use super::order::Scope;
use super::status::{Refusal, said};
use crate::codec::Status;

/// What a disk thread has done.
pub(super) struct Ended {
    /// `None`: others do not wait for it.
    pub(super) scope: Option<Scope>,
    /// How many requests it was.
    pub(super) requests: usize,
    pub(super) held: usize,
    pub(super) kind: Kind,
    pub(super) outcome: Outcome,
}

/// What the session counts apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Open,
    /// A digest, or the opening of its file.
    Hash,
    /// Answered in its turn.
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
    /// What is to be hashed is open.
    Hashing {
        id: u32,
        outcome: Result<Hashing, Refusal>,
    },
}

/// Tells the session that a job has ended, even if its work panics.
pub(super) struct Pending {
    scope: Option<Scope>,
    ids: Vec<u32>,
    held: usize,
    kind: Kind,
    ending: Option<UnboundedSender<Ended>>,
}

impl Pending {
    /// Of request `id`, which holds `held` bytes.
    pub(super) fn new(
        scope: Option<Scope>,
        id: u32,
        held: usize,
        kind: Kind,
        ending: UnboundedSender<Ended>,
    ) -> Self {
        Self { scope, ids: vec![id], held, kind, ending: Some(ending) }
    }

    /// One more request is done with the same work.
    pub(super) fn add(&mut self, id: u32, held: usize) {
        self.ids.push(id);
        self.held += held;
    }

    /// Says how it ended.
    pub(super) fn end(mut self, outcome: Outcome) {
        self.send(outcome);
    }

    fn send(&mut self, outcome: Outcome) {
        let Some(ending) = self.ending.take() else { return };
        let (scope, requests) = (self.scope, self.ids.len());
        let ended = Ended { scope, requests, held: self.held, kind: self.kind, outcome };
        // A session that is gone wants no answers.
        drop(ending.send(ended));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let response = said(Status::Failure, "the server failed");
        let packets = self.ids.iter().map(|id| response.encode(*id)).collect();
        self.send(Outcome::Packets(packets));
    }
}

/// A copy that does not hold on to what it came in.
pub(super) fn copied(body: &Block) -> Block {
    let mut bytes = BytesMut::with_capacity(body.len());
    for piece in body.pieces() {
        bytes.extend_from_slice(piece);
    }
    bytes.freeze().into()
}
