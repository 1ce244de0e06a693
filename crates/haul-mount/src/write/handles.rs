//! The open files of a mount that can be written.
//!
//! A handle reads the storage until its file comes into the spool; from then on, the file there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::pending::Pending;
use crate::fuse::{Body, Reply};
use crate::lock::lock;

/// The open files, by the numbers that the kernel has for them.
#[derive(Debug, Default)]
pub(super) struct Handles {
    state: Mutex<(HashMap<u64, Handle>, u64)>,
}

/// An open file.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    /// The node that was opened.
    pub(super) node: u64,
    /// The handle by which the storage is read.
    pub(super) remote: Option<u64>,
    /// The file in the spool, which comes first.
    pub(super) local: Option<Arc<Pending>>,
    /// It may write.
    pub(super) is_writer: bool,
    /// It writes only at the end.
    pub(super) appends: bool,
    /// Bytes that were read.
    pub(super) read: Arc<AtomicU64>,
}

impl Handle {
    /// A handle of a node, with neither a remote nor a local file.
    pub(super) fn of(node: u64) -> Self {
        let read = Arc::default();
        Self { node, remote: None, local: None, is_writer: false, appends: false, read }
    }

    /// Counts what was read.
    pub(super) fn count(&self, reply: &Reply) {
        if let Body::Data(block) = &reply.body {
            self.read.fetch_add(block.len() as u64, Ordering::Relaxed);
        }
    }
}

impl Handles {
    /// Adds an open file. Returns its number. If it may write, its file has counted it already.
    pub(super) fn add(&self, handle: Handle) -> u64 {
        let mut state = lock(&self.state);
        state.1 += 1;
        let number = state.1;
        state.0.insert(number, handle);
        number
    }

    /// An open file.
    pub(super) fn get(&self, number: u64) -> Option<Handle> {
        lock(&self.state).0.get(&number).cloned()
    }

    /// The file of a node is in the spool now: handles that only read switch to it. A handle that may write keeps its
    /// file, which may have become a conflict copy.
    pub(super) fn attach(&self, node: u64, file: &Arc<Pending>) {
        let reads = |handle: &&mut Handle| handle.node == node && !handle.is_writer;
        for handle in lock(&self.state).0.values_mut().filter(reads) {
            handle.local = Some(Arc::clone(file));
        }
    }

    /// Whether a handle of a node reads a file that is, or was, in the spool.
    pub(super) fn reads_local(&self, node: u64) -> bool {
        lock(&self.state).0.values().any(|handle| handle.node == node && handle.local.is_some())
    }

    /// Whether a handle refers to a file of the spool.
    pub(super) fn refers_to(&self, file: &Arc<Pending>) -> bool {
        let is_it = |local: &Arc<Pending>| Arc::ptr_eq(local, file);
        lock(&self.state).0.values().any(|handle| handle.local.as_ref().is_some_and(is_it))
    }

    /// The open files with their numbers, at most `most` of them, and how many there are.
    pub(super) fn listed(&self, most: usize) -> (Vec<(u64, Handle)>, usize) {
        let state = lock(&self.state);
        let listed = state.0.iter().take(most).map(|(number, handle)| (*number, handle.clone()));
        (listed.collect(), state.0.len())
    }

    /// Closes a handle. Returns it, and whether it was the last one of its file that could write.
    pub(super) fn remove(&self, number: u64) -> Option<(Handle, bool)> {
        let handle = lock(&self.state).0.remove(&number)?;
        let writer = handle.local.as_ref().filter(|_| handle.is_writer);
        let is_last = writer.is_some_and(|file| file.end_writing());
        Some((handle, is_last))
    }
}
