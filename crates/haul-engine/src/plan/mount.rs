//! Where another file system begins.

use haul_storage::Entry;

/// Whether a file system other than `device` is mounted at an entry; false without `device`.
pub fn is_mount(device: Option<u64>, entry: &Entry) -> bool {
    let other = entry.id.map(|id| id.device).filter(|_| entry.is_dir());
    device.zip(other).is_some_and(|(device, other)| device != other)
}
