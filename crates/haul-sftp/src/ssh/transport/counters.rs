//! Counters of a connection, shared with its user.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the RTTs that were waited for. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct RttCounter(Arc<AtomicU32>);

impl RttCounter {
    /// Adds RTTs.
    pub fn add(&self, count: u32) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The RTTs so far.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts completed key exchanges. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct KeyExchanges(Arc<AtomicU32>);

impl KeyExchanges {
    /// Adds a key exchange.
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The key exchanges so far.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}
