//! Differential torture test: random trees, mutations and options of `haul cp` and `haul sync`, with kills
//! in between. Results are checked against a model of haul's specification and against rsync.
//!
//! An [`Episode`](episode::Episode) is a seed, a [`Target`](target::Target) and a number of steps. Each
//! step
//!
//! 1. changes the source, and sometimes the destination ([`grow`]),
//! 2. runs haul with random [`options`], perhaps killing it a few times ([`run`]),
//! 3. runs rsync with equivalent options on a copy of the destination, except on targets that change names,
//! 4. compares both results ([`compare`]) with the tree that the [`model`] computes from the trees before
//!    the step ([`tree`]). haul must match exactly. rsync must match too, except where the model applied
//!    a named [`rule`], so that neither the model nor haul can drift from what users of rsync expect,
//! 5. runs haul once more, which must copy nothing, unless an option makes every run copy.
//!
//! All randomness comes from the seed ([`chance`]), except the exact moment of a kill.

pub mod acl;
pub mod chance;
pub mod compare;
pub mod counts;
pub mod deletion;
pub mod episode;
pub mod extras;
pub mod filter;
pub mod grow;
pub mod model;
pub mod names;
pub mod options;
mod quoted;
pub mod rule;
pub mod run;
pub mod seeds;
mod step;
pub mod target;
pub mod tree;

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;

/// An I/O error whose message names the operation and the path.
pub(crate) fn at(what: &str, path: &Path, error: &dyn Display) -> io::Error {
    io::Error::other(format!("{what} {}: {error}", path.display()))
}

/// Removes the entry at `path`, if there is one, and everything below it.
pub(crate) fn clear(path: &Path) -> io::Result<()> {
    let Ok(stat) = fs::symlink_metadata(path) else { return Ok(()) };
    let removed = if stat.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.map_err(|error| at("removing", path, &error))
}
