//! A storage in memory, for tests of everything above storages.
//!
//! It is a complete backend, with directories, files, links, attributes, part files that outlive
//! their writer, locks and holes; it passes the conformance kit. Beyond that a test can
//!
//! - take abilities away ([`Builder::with_capabilities`]),
//! - order faults ([`Faults`]),
//! - put a long link before it, in virtual time ([`SimulatedLink`]),
//! - move files of many GiB that nobody stores ([`Pattern`]),
//! - look at everything from behind: see `inspect.rs`.
//!
//! Rooms: `tree` has names and nodes, `data` the content of a file, `storage`, `read` and `write`
//! implement the traits, `shared` leads every call through `faults` and `link`.

mod builder;
mod data;
mod faults;
mod inspect;
mod link;
mod pattern;
mod read;
mod shared;
mod storage;
mod tree;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::RelPath;

pub use builder::Builder;
pub use faults::{Faults, Operation, When};
pub use link::{LinkTraffic, SimulatedLink};
pub use pattern::Pattern;

/// A storage in memory.
#[derive(Debug)]
pub struct MemoryStorage {
    shared: Arc<shared::Shared>,
}

impl MemoryStorage {
    /// An empty storage that can do everything and has no link before it.
    pub fn new() -> Arc<Self> {
        Builder::default().build()
    }

    /// An empty storage with other properties.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// To order faults and to count calls.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// What went over the simulated link; nothing without one.
    pub fn traffic(&self) -> LinkTraffic {
        self.shared.link.as_ref().map(|link| link.traffic()).unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A path given by a test.
fn path(bytes: impl AsRef<[u8]>) -> RelPath {
    match RelPath::parse(&bytes) {
        Ok(path) => path,
        Err(error) => panic!("the path {:?} {error}", bytes.as_ref().escape_ascii().to_string()),
    }
}

#[cfg(test)]
mod tests;
