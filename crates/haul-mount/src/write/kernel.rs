//! Notices to the kernel that do not belong to a response.

use std::fmt;
use std::sync::OnceLock;

use crate::fuse::outdated_entry;

/// Sends a notice in the background: the kernel may hold locks during requests.
type Send = dyn Fn(Vec<u8>) + std::marker::Send + Sync;

/// The way to the kernel, once there is a connection.
#[derive(Default)]
pub(super) struct Kernel(OnceLock<Box<Send>>);

impl Kernel {
    /// From now on, notices are sent.
    pub(super) fn connect(&self, send: impl Fn(Vec<u8>) + std::marker::Send + Sync + 'static) {
        // There is one connection.
        drop(self.0.set(Box::new(send)));
    }

    /// A name in a directory belongs to another node now.
    pub(super) fn forget_entry(&self, parent: u64, name: &[u8]) {
        if let Some(send) = self.0.get() {
            send(outdated_entry(parent, name));
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernel")
    }
}
