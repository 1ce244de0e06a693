//! Single READs in flight, and those that lanes have prefetched along with their greeting or an open.

use std::sync::{Arc, Mutex, PoisonError};

use haul_storage::{Identity, Range};

use super::session::{Pending, Session};
use crate::codec::{Handle, Request};

/// Longest range whose first READs are short on a long path.
const SHORT_RANGE: u64 = 512 << 10;

/// Length of the first READ of such a range, in bytes: what a program reads first through a mount, and about what a new
/// TCP connection carries in its first RTT.
const FIRST_READ: u64 = 16 << 10;

/// A READ in flight.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) range: Range,
    /// The bytes that were requested: more than the range, if the end of the file was not known.
    pub(super) requested: u64,
    /// Whether it was sent before the handle was known.
    pub(super) is_guessed: bool,
    pub(super) session: Arc<Session>,
    pub(super) handle: Handle,
    pub(super) pending: Pending,
}

impl Part {
    /// Requests a range, which must not be longer than the server's limit (a 32-bit number).
    pub(super) fn request(session: &Arc<Session>, handle: &Handle, range: Range) -> Self {
        let pending = session.request(&read(handle, range));
        Self { is_guessed: false, ..Self::guessed(session, handle, range, pending) }
    }

    /// A range that was requested before the handle was known.
    pub(super) fn guessed(
        session: &Arc<Session>,
        handle: &Handle,
        range: Range,
        pending: Pending,
    ) -> Self {
        let (session, handle) = (Arc::clone(session), handle.clone());
        Self { range, requested: range.len(), is_guessed: true, session, handle, pending }
    }
}

/// Divides a range into READs of at most `most` bytes. On a long path, those of a short range begin short and double: a
/// response can be used only once all of it has arrived, which takes several RTTs over a connection that is new or was
/// idle.
pub(super) fn reads(range: Range, most: u64, is_long: bool) -> Vec<Range> {
    let mut length =
        if is_long && range.len() <= SHORT_RANGE { FIRST_READ.min(most) } else { most };
    let (mut reads, mut rest) = (Vec::new(), range);
    while !rest.is_empty() {
        let (read, after) = rest.split_at(length);
        reads.push(read);
        rest = after;
        length = length.saturating_mul(2).min(most);
    }
    reads
}

/// The request for a range, which must not be longer than the server's limit (a 32-bit number).
pub(super) fn read(handle: &Handle, range: Range) -> Request {
    let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
    Request::Read { handle: handle.clone(), offset: range.start(), length }
}

/// Prefetched pieces of a file that have not been used, each with the version of the file it belongs to.
#[derive(Debug, Default)]
pub(super) struct Pieces(Mutex<Vec<(Identity, Part)>>);

impl Pieces {
    /// Adds the pieces that a lane has prefetched with `handle`, of version `found`.
    pub(super) fn add(&self, session: &Arc<Session>, handle: &Handle, found: &Identity) {
        let pieces = session.pieces(handle).into_iter().map(|(range, pending)| {
            (found.clone(), Part::guessed(session, handle, range, pending))
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(pieces);
    }

    /// Adds a prefetched piece of version `found`.
    pub(super) fn put(&self, found: Identity, part: Part) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((found, part));
    }

    /// Removes and returns a piece of this version at the start of `range`.
    pub(super) fn take(&self, range: Range, version: &Identity) -> Option<Part> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pieces.iter().position(|(found, part)| {
            part.range.start() == range.start()
                // The piece must not extend beyond the range, unless that ends at the end of the file.
                && (part.range.end() <= range.end() || range.end() == version.size)
                && found == version
                && !part.session.is_ended()
        })?;
        let mut part = pieces.swap_remove(at).1;
        part.range = part.range.intersection(range);
        (!part.range.is_empty()).then_some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn lengths(range: Range, most: u64, is_long: bool) -> Vec<u64> {
        let reads = reads(range, most, is_long);
        assert_eq!(reads.first().map(|read| read.start()), Some(range.start()));
        assert!(reads.windows(2).all(|pair| pair[0].end() == pair[1].start()));
        assert_eq!(reads.last().map(|read| read.end()), Some(range.end()));
        reads.iter().map(|read| read.len() / KIB).collect()
    }

    #[test]
    fn a_short_range_begins_with_short_reads_on_a_long_path() {
        let block = Range::new(7 * KIB, 128 * KIB);
        assert_eq!(lengths(block, 256 * KIB, true), [16, 32, 64, 16]);
        assert_eq!(lengths(block, 256 * KIB, false), [128]);
        assert_eq!(lengths(block, 8 * KIB, true), [8; 16]);
        let long = Range::new(0, 1024 * KIB);
        assert_eq!(lengths(long, 256 * KIB, true), [256; 4]);
        assert!(reads(Range::new(5, 0), 1, true).is_empty());
    }
}
