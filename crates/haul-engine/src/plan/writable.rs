//! Modes of directories whose owner may not change their entries: such a directory is made writable while haul
//! changes them, and gets its former mode back.

use haul_storage::{Entry, Medium, Metadata, RelPath};

use crate::job::NumberedJob;

/// Permission bits that a directory's owner needs to change its entries.
const OWNER_WRITES: u32 = 0o300;

/// Gives a directory its former mode again; does nothing for `None`. Errors are ignored: after a failure, the caller
/// reports that.
pub(super) async fn put_back(job: &NumberedJob, directory: &RelPath, mode: Option<u32>) {
    if mode.is_some() {
        let metadata = Metadata { mode, ..Metadata::default() };
        drop(job.job.destination.set_metadata(directory, &metadata).await);
    }
}

/// Lets the owner of a directory change its entries. Returns its former mode if that was necessary. Failures
/// are ignored: the removals that follow report theirs.
pub(super) async fn make_writable(job: &NumberedJob, directory: &RelPath) -> Option<u32> {
    let destination = &job.job.destination;
    let entry = destination.stat(directory).await.ok()?;
    let metadata = Metadata { mode: Some(writable(&entry)?), ..Metadata::default() };
    destination.set_metadata(directory, &metadata).await.ok()?;
    entry.mode
}

/// [`make_writable`] for a directory that was created with the mode `mode`. One without a mode may have inherited an
/// ACL that does not let its owner change the entries; not looked up on servers.
pub(super) async fn open_new(
    job: &NumberedJob,
    directory: &RelPath,
    mode: Option<u32>,
) -> Option<u32> {
    let can = job.job.destination.capabilities();
    let may_be_closed = mode.is_none() && can.mode && can.medium == Medium::Disk;
    if may_be_closed { make_writable(job, directory).await } else { None }
}

/// The mode that lets a directory's owner change its entries; `None` if the present one does or is unknown, and
/// for entries that are no directories.
pub fn writable(entry: &Entry) -> Option<u32> {
    let mode = entry.mode.filter(|mode| entry.is_dir() && mode & OWNER_WRITES != OWNER_WRITES)?;
    Some(mode | 0o700)
}
