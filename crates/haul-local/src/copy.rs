//! Copies within the storage: by reflink where the file system can (btrfs, XFS), else within the
//! kernel, else through a buffer of this thread.

use std::os::fd::AsFd as _;
use std::sync::Arc;

use haul_storage::{Block, CommitOptions, CreateOptions, Metadata, RelPath, Result, WorkPool};

use crate::read::LocalReader;
use crate::stat::mode_of;
use crate::volume::{Volume, umask};
use crate::write::Part;

impl Volume {
    /// Copies a file to a new name. The copy gets the mode of the source, less the umask, and the
    /// current time.
    pub(crate) fn copy(
        self: &Arc<Self>,
        pool: WorkPool,
        from: &RelPath,
        to: &RelPath,
    ) -> Result<()> {
        let (file, stat) = self.open_file("copy", from)?;
        let mode = mode_of(&stat) & 0o777 & !umask();
        let reader = LocalReader::new(Arc::clone(self), pool, from.clone(), Arc::new(file), stat);
        let source = reader.opened();
        let part = Part::create(Arc::clone(self), to, &CreateOptions::default())?;
        let metadata = Metadata { mode: Some(mode), ..Metadata::default() };
        let options = CommitOptions { metadata, replace: false, sync: false };
        let outcome =
            self.copy_data(source, &part).and_then(|()| part.commit(source.size(), &options));
        if outcome.is_err() {
            // The first error is the one to report.
            let _ = part.abort(false);
        }
        outcome
    }

    fn copy_data(&self, source: &crate::read::Opened, part: &Part) -> Result<()> {
        let whole = haul_storage::Range::between(0, source.size());
        if self.platform.clone_whole(source.file.as_fd(), part.file.as_fd()) {
            return Ok(());
        }
        let mut at = 0;
        while let Some(data) = source.next_data(at)? {
            let mut rest = data.intersection(whole);
            while !rest.is_empty() {
                let done = match part.copy(source, rest)? {
                    Some(done) => done,
                    None => {
                        let block: Block = source.read(rest)?;
                        if block.is_empty() {
                            return Err(source.shrank());
                        }
                        part.write(rest.start(), &block)?;
                        block.len() as u64
                    }
                };
                rest = rest.split_at(done).1;
            }
            at = data.end();
        }
        Ok(())
    }
}
