//! A storage in memory, for tests of the layers above storages.
//!
//! It is a complete backend, with directories, files, links, attributes, part files that outlive
//! their writer, locks and holes; it passes the conformance suite. Beyond that a test can
//!
//! - disable capabilities ([`Builder::with_capabilities`]),
//! - inject faults ([`Faults`]),
//! - simulate a long link in virtual time ([`SimulatedLink`]),
//! - move files of many GiB without storing them ([`Pattern`]),
//! - prepare and inspect contents directly: see `inspect.rs`.
//!
//! Files: `tree` has names and nodes, `data` the content of a file; `storage`, `read` and `write`
//! implement the traits; `shared` passes calls through `faults` and `link`.

mod builder;
mod data;
mod faults;
mod inspect;
mod link;
mod lock;
mod path;
mod pattern;
mod read;
mod shared;
mod storage;
mod tree;
mod write;

use std::sync::Arc;

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
    /// Injects faults and counts calls.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// The traffic over the simulated link; zero without one.
    pub fn traffic(&self) -> LinkTraffic {
        self.shared.link.as_ref().map(|link| link.traffic()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
