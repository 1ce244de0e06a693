//! Which sessions have which version of a file open, and the cached pieces, without I/O.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use haul_storage::{Identity, Range, RangeSet, RelPath};

use super::piece::Piece;
use crate::server::limits;
use crate::wire::PIECE;

/// The id of a session.
pub(in crate::server) type SessionId = [u8; 16];

/// Maximum number of ranges of received pieces that are stored for a session and file. Beyond that, the lowest gap
/// counts as received, too: nothing is cached for it, and the session reads it itself. With [`limits::HANDLES`] files,
/// the ranges of a session take 16 MiB.
const RECEIVED: usize = 128;

/// A version of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Version {
    pub(super) path: RelPath,
    pub(super) identity: Identity,
}

/// The session of a membership, and its version of a file.
#[derive(Debug)]
pub(super) struct MembershipId {
    /// The number of the version.
    pub(super) file: u64,
    session: SessionId,
    /// When it began: pieces with a later stamp were read after the file was opened.
    since: u64,
}

/// The versions that sessions have open.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last number or stamp that was used.
    last: u64,
    numbers: HashMap<Version, u64>,
    files: HashMap<u64, Open>,
    /// The cached pieces by stamp, oldest first: file and index.
    order: BTreeMap<u64, (u64, u64)>,
    /// Bytes of the cached pieces.
    bytes: u64,
}

#[derive(Debug)]
struct Open {
    version: Version,
    members: HashMap<SessionId, Member>,
    /// By index: the offset divided by [`PIECE`].
    pieces: HashMap<u64, Cached>,
}

/// A session that has the file open.
#[derive(Debug)]
struct Member {
    memberships: usize,
    /// When its first membership began.
    since: u64,
    /// Indices of the pieces that it has received.
    received: RangeSet,
}

/// A piece that was read, is being read, or is about to be.
#[derive(Debug)]
struct Cached {
    /// When its read was decided.
    stamp: u64,
    piece: Arc<Piece>,
}

impl State {
    /// Joins the sessions that have a version of a file open.
    pub(super) fn join(&mut self, version: Version, session: SessionId) -> MembershipId {
        let number = match self.numbers.get(&version) {
            Some(number) => *number,
            None => {
                let number = self.tick();
                self.numbers.insert(version.clone(), number);
                number
            }
        };
        let since = self.tick();
        let new = || Open { version, members: HashMap::new(), pieces: HashMap::new() };
        let file = self.files.entry(number).or_insert_with(new);
        let new = || Member { memberships: 0, since, received: RangeSet::new() };
        file.members.entry(session).or_insert_with(new).memberships += 1;
        MembershipId { file: number, session, since }
    }

    /// Ends a membership.
    pub(super) fn leave(&mut self, membership: &MembershipId) {
        let Some(file) = self.files.get_mut(&membership.file) else { return };
        let Some(member) = file.members.get_mut(&membership.session) else { return };
        member.memberships -= 1;
        if member.memberships > 0 {
            return;
        }
        file.members.remove(&membership.session);
        let is_alone = file.members.len() < 2;
        let is_spent =
            |(index, cached): &(&u64, &Cached)| is_alone || !file.is_needed(**index, cached.stamp);
        let spent: Vec<u64> = file.pieces.iter().filter(is_spent).map(|(at, _)| *at).collect();
        let is_closed = file.members.is_empty();
        for index in spent {
            self.drop_piece(membership.file, index);
        }
        if is_closed && let Some(closed) = self.files.remove(&membership.file) {
            self.numbers.remove(&closed.version);
        }
    }

    /// Whether several sessions have the file open.
    pub(super) fn is_shared(&self, file: u64) -> bool {
        self.files.get(&file).is_some_and(|file| file.members.len() > 1)
    }

    /// Notes that a session reads these pieces itself. Drops those that no session needs any more.
    pub(super) fn pass(&mut self, membership: &MembershipId, indices: Range) {
        let Some(file) = self.files.get_mut(&membership.file) else { return };
        let Some(member) = file.members.get_mut(&membership.session) else { return };
        member.receive(indices);
        let is_spent = |(index, cached): &(&u64, &Cached)| {
            (indices.start()..indices.end()).contains(*index)
                && !file.is_needed(**index, cached.stamp)
        };
        let spent: Vec<u64> = file.pieces.iter().filter(is_spent).map(|(at, _)| *at).collect();
        for index in spent {
            self.drop_piece(membership.file, index);
        }
    }

    /// The piece of a range, for a session that reads from it now. With `is_last`, the session reads it to its end, and
    /// so has received it. It is cached if a session needs it afterwards.
    pub(super) fn claim(
        &mut self,
        membership: &MembershipId,
        range: Range,
        is_last: bool,
    ) -> Arc<Piece> {
        let (index, stamp) = (range.start() / PIECE, self.tick());
        let Some(file) = self.files.get_mut(&membership.file) else {
            return Arc::new(Piece::new(range));
        };
        if is_last && let Some(member) = file.members.get_mut(&membership.session) {
            member.receive(Range::new(index, 1));
        }
        let cached = file.pieces.get(&index).filter(|cached| cached.stamp > membership.since);
        if let Some(Cached { stamp, piece }) = cached {
            let (piece, is_needed) = (Arc::clone(piece), file.is_needed(index, *stamp));
            if !is_needed {
                self.drop_piece(membership.file, index);
            }
            return piece;
        }
        let piece = Arc::new(Piece::new(range));
        let is_needed = file.is_needed(index, stamp);
        // If a piece is cached here, it was read before this membership began.
        self.drop_piece(membership.file, index);
        if is_needed {
            self.put(membership.file, index, Cached { stamp, piece: Arc::clone(&piece) });
        }
        piece
    }

    /// Caches a piece. If there is no room, drops the oldest ones.
    fn put(&mut self, number: u64, index: u64, cached: Cached) {
        let Some(file) = self.files.get_mut(&number) else { return };
        self.bytes += cached.piece.range().len();
        self.order.insert(cached.stamp, (number, index));
        file.pieces.insert(index, cached);
        while self.bytes > limits::SHARED
            && let Some((_, (number, index))) = self.order.pop_first()
        {
            self.drop_piece(number, index);
        }
    }

    fn drop_piece(&mut self, number: u64, index: u64) {
        let file = self.files.get_mut(&number);
        if let Some(cached) = file.and_then(|file| file.pieces.remove(&index)) {
            self.order.remove(&cached.stamp);
            self.bytes -= cached.piece.range().len();
        }
    }

    /// The next number or stamp.
    const fn tick(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Bytes of the cached pieces.
    #[cfg(test)]
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether no file is open.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let State { numbers, files, order, bytes, .. } = self;
        numbers.is_empty() && files.is_empty() && order.is_empty() && *bytes == 0
    }
}

impl Open {
    /// Whether a session has yet to receive a piece, and can use one with this stamp.
    fn is_needed(&self, index: u64, stamp: u64) -> bool {
        self.members.values().any(|member| stamp > member.since && !member.has(index))
    }
}

impl Member {
    fn receive(&mut self, indices: Range) {
        self.received.insert(indices);
        if self.received.count() > RECEIVED
            && let Some(first) = self.received.first()
            && let Some(next) = self.received.next(first.end())
        {
            self.received.insert(Range::between(first.end(), next.start()));
        }
    }

    fn has(&self, index: u64) -> bool {
        self.received.next(index).is_some_and(|next| next.start() == index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, a client that reads parts of many files could make the server remember 128 MiB for a session.
    #[test]
    fn the_received_ranges_of_a_session_take_bounded_memory() {
        let mut member = Member { memberships: 1, since: 0, received: RangeSet::new() };
        let mut most = 0;
        for index in 0..10_000 {
            member.receive(Range::new(2 * index, 1));
            // What was received is not forgotten.
            assert!(member.has(0) && member.has(2 * index) && !member.has(2 * index + 1));
            most = most.max(member.received.count());
        }
        // A range takes 32 bytes at most: half of a B-tree node may be empty.
        assert!(most * limits::HANDLES * 32 <= 16 << 20, "{most} ranges");
        // Only the lowest gaps count as received.
        assert!(member.has(1) && !member.has(19_997));
    }
}
