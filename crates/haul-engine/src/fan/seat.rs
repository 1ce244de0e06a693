//! A host's number among those that share the store.

use std::sync::Arc;

use super::store::Store;

/// A host's number among those that share the store; it is free again when the host's view and its readers are dropped.
#[derive(Debug)]
pub struct Seat {
    store: Arc<Store>,
    number: usize,
}

impl Seat {
    /// Takes a seat; `None` if all are taken.
    pub fn take(store: &Arc<Store>) -> Option<Arc<Self>> {
        let number = store.sit()?;
        Some(Arc::new(Self { store: Arc::clone(store), number }))
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Its number.
    pub const fn number(&self) -> usize {
        self.number
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.store.leave(self.number);
    }
}
