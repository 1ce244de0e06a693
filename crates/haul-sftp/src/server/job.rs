//! An unfinished request, and the share of the session's budget that its response takes.

use super::limits;
use super::order::Scope;
use crate::codec::{DATA_HEAD, Request};

/// Largest response to READDIR: names of 255 bytes, twice, and numbers.
const LISTING: usize = limits::ENTRIES * 700;

/// Largest response with a path: the path, twice, and numbers.
pub(super) const NAMED: usize = 2 * haul_net::PATH_MAX + 64;

/// An unfinished request, waiting or in progress.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) id: u32,
    /// Number of requests admitted before it.
    pub(super) number: u64,
    pub(super) scope: Scope,
    pub(super) request: Request,
    /// Length of its packet's body in bytes, which count as held until the job ends.
    pub(super) held: usize,
}

impl Job {
    /// Bytes of its response that count against a budget of `most` bytes.
    pub(super) fn cost(&self, most: usize) -> u32 {
        let bytes = match &self.request {
            Request::Read { length, .. } => DATA_HEAD + limits::read_length(*length),
            Request::Readdir(_) => LISTING,
            _ => NAMED,
        };
        u32::try_from(bytes.min(most)).unwrap_or(u32::MAX)
    }
}
