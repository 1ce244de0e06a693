//! Copies within the storage: by reflink where the file system can (btrfs, XFS), else within the
//! kernel, else through a pooled buffer. A copy is done in steps, so that the disk threads also serve
//! other tasks.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use haul_storage::{Block, CommitOptions, CreateOptions, Metadata, Range, RelPath, Result};

use crate::read::Opened;
use crate::volume::{Volume, umask};
use crate::write::Part;

/// A copy in progress. Dropping it before its end removes the partial file.
#[derive(Debug)]
pub(crate) struct Copying {
    volume: Arc<Volume>,
    source: Opened,
    part: Part,
    /// Whether a step was done.
    begun: bool,
    /// The part of the current range of data (not a hole) that is still to be copied.
    rest: Range,
    /// The end of the current range, where the search for the next one starts.
    end: u64,
}

impl Copying {
    /// Opens the source and creates the part file.
    pub(crate) fn begin(volume: &Arc<Volume>, from: &RelPath, to: &RelPath) -> Result<Self> {
        let (file, stat) = volume.open_file("copy", from)?;
        let source = Opened::new(Arc::clone(volume), from.clone(), Arc::new(file), stat);
        let part = Part::create(Arc::clone(volume), to, &CreateOptions::default())?;
        let (volume, rest) = (Arc::clone(volume), Range::new(0, 0));
        Ok(Self { volume, source, part, begun: false, rest, end: 0 })
    }

    /// Copies about `bytes` bytes. Returns `None` once the copy is committed under its name, with
    /// the mode of the source less the umask, and the current time.
    pub(crate) fn step(mut self, bytes: u64) -> Result<Option<Self>> {
        if !self.copy_data(bytes)? {
            return Ok(Some(self));
        }
        let mode = self.source.mode() & 0o777 & !umask();
        let metadata = Metadata { mode: Some(mode), ..Metadata::default() };
        let options = CommitOptions { metadata, replace: false, sync: false, expected: None };
        self.part.commit(self.source.size(), &options)?;
        Ok(None)
    }

    /// Copies about `bytes` bytes. Returns whether all data is copied.
    fn copy_data(&mut self, bytes: u64) -> Result<bool> {
        let (source, part) = (&self.source, &self.part);
        let is_first = !std::mem::replace(&mut self.begun, true);
        if is_first && self.volume.platform.clone_whole(source.file.as_fd(), part.file.as_fd()) {
            return Ok(true);
        }
        let whole = Range::between(0, source.size());
        let mut copied = 0;
        loop {
            while !self.rest.is_empty() {
                if copied >= bytes {
                    return Ok(false);
                }
                let most = self.rest.split_at(bytes - copied).0;
                let done = match part.copy(source, most)? {
                    Some(done) => done,
                    None => {
                        let block: Block = source.read(most)?;
                        if block.is_empty() {
                            return Err(source.shrank());
                        }
                        part.write(most.start(), &block)?;
                        block.len() as u64
                    }
                };
                copied += done;
                self.rest = self.rest.split_at(done).1;
            }
            let Some(data) = source.next_data(self.end)? else { return Ok(true) };
            self.rest = data.intersection(whole);
            self.end = data.end();
        }
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        // After the commit there is nothing to remove. Before it, the error that ended the copy is
        // the one to report, so an error here is ignored.
        let _ = self.part.abort(false);
    }
}
