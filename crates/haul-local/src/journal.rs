//! The journal beside a local part file. All calls block, and run on disk threads.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use haul_storage::journal::Journal;
use haul_storage::{
    CreateOptions, Held, RangeSet, RelPath, Result, SourceVersion, Writes, journal_name,
};

use crate::dir::Directory;
use crate::stat::size_of;
use crate::volume::Volume;

/// System calls refuse paths of this many bytes (`PATH_MAX` of Linux, which includes the NUL).
const PATH_MAX: usize = 4096;

/// What is recorded about one part file.
#[derive(Debug)]
pub(crate) struct PartRecord {
    file: Option<JournalFile>,
    held: Held,
    resumes: bool,
    journal: Mutex<Option<Journal>>,
}

#[derive(Debug)]
struct JournalFile {
    source: SourceVersion,
    path: PathBuf,
    /// Keeps the directory open that `path` goes through, if the full path would exceed `PATH_MAX`.
    _pinned: Option<OwnedFd>,
}

impl PartRecord {
    /// Reads the journal of the part file `found`; `None` means that there is no part file, or that
    /// it must not be resumed.
    pub(crate) fn look(
        volume: &Volume,
        directory: &Directory,
        path: &RelPath,
        options: &CreateOptions,
        found: Option<&OwnedFd>,
    ) -> Result<Self> {
        let source = options.source.clone();
        let is_recorded = source.is_some();
        let file = source.and_then(|source| JournalFile::of(volume, directory, path, source));
        let held = match (&file, found) {
            (None, _) => Held::Unrecorded,
            (Some(_), None) => Held::Ranges(RangeSet::new()),
            (Some(file), Some(found)) => {
                let stat = rustix::fs::fstat(found);
                let stat = stat.map_err(|errno| volume.error("create", path, errno))?;
                Journal::held(&file.path, &file.source, size_of(&stat), Writes::AnyOrder)
            }
        };
        // Without a source, only the caller can know what the part file contains.
        let resumes = found.is_some() && (!is_recorded || matches!(held, Held::Ranges(_)));
        Ok(Self { file, held, resumes, journal: Mutex::default() })
    }

    /// Whether the part file is resumed; if not, the caller has to empty it.
    pub(crate) fn resumes(&self) -> bool {
        self.resumes
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Starts the journal, once the part file contains the ranges of `held`.
    pub(crate) fn start(&mut self) -> Result<()> {
        let Some(JournalFile { source, path, .. }) = &self.file else { return Ok(()) };
        let journal = Journal::start(path, source, &self.held.ranges())?;
        self.journal = Mutex::new(Some(journal));
        Ok(())
    }

    pub(crate) fn append(&self, ranges: &RangeSet) -> Result<()> {
        self.with(|journal| journal.append(ranges.iter()))
    }

    /// Syncs the part file by `sync`, and records that it was synced.
    pub(crate) fn synced(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        // The lock is held meanwhile: ranges recorded later need not be on disk.
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        sync()?;
        journal.as_mut().map_or(Ok(()), Journal::mark_synced)
    }

    pub(crate) fn remove(&self) -> Result<()> {
        self.with(|journal| journal.remove())
    }

    fn with(&self, work: impl FnOnce(&mut Journal) -> Result<()>) -> Result<()> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.as_mut().map_or(Ok(()), work)
    }
}

impl Volume {
    /// The path of the journal of `path`; `None` if it exceeds `PATH_MAX`.
    pub(crate) fn journal_path(&self, path: &RelPath) -> Option<PathBuf> {
        let mut journal = self.root.clone();
        if let Some(parent) = path.parent() {
            journal.push(OsStr::from_bytes(parent.as_bytes()));
        }
        journal.push(OsStr::from_bytes(&journal_name(path.name())));
        (journal.as_os_str().len() < PATH_MAX).then_some(journal)
    }
}

impl JournalFile {
    /// `None` if no path can name the journal.
    fn of(
        volume: &Volume,
        directory: &Directory,
        path: &RelPath,
        source: SourceVersion,
    ) -> Option<Self> {
        if let Some(path) = volume.journal_path(path) {
            return Some(Self { source, path, _pinned: None });
        }
        let (pinned, to) = volume.platform.pin(directory.as_fd(), b".").ok()??;
        let name = journal_name(path.name());
        let path = Path::new(OsStr::from_bytes(to.as_bytes())).join(OsStr::from_bytes(&name));
        Some(Self { source, path, _pinned: Some(pinned) })
    }
}
