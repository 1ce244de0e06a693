//! The journal beside a local part file. All calls block, and run on disk threads.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use haul_storage::journal::{Journal, JournalPath};
use haul_storage::{
    CreateOptions, Held, RangeSet, RelPath, Result, SourceVersion, Writes, journal_name,
};

use crate::dir::Directory;
use crate::stat::size_of;
use crate::volume::Volume;

/// What is recorded about one part file.
#[derive(Debug)]
pub(crate) struct PartRecord {
    recorded: Option<(SourceVersion, JournalPath)>,
    held: Held,
    resumes: bool,
    journal: Mutex<Option<Journal>>,
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
        let recorded = source.map(|source| (source, volume.journal(directory, path)));
        let held = match (&recorded, found) {
            (None, _) => Held::Unrecorded,
            (Some(_), None) => Held::Ranges(RangeSet::new()),
            (Some((source, journal_path)), Some(found)) => {
                let stat = rustix::fs::fstat(found);
                let stat = stat.map_err(|errno| volume.error("create", path, errno))?;
                Journal::held(journal_path, source, size_of(&stat), Writes::AnyOrder)
            }
        };
        // Without a source, only the caller can know what the part file contains.
        let resumes = found.is_some() && (recorded.is_none() || matches!(held, Held::Ranges(_)));
        Ok(Self { recorded, held, resumes, journal: Mutex::default() })
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
        let Some((source, journal_path)) = &self.recorded else { return Ok(()) };
        let journal = Journal::start(journal_path, source, &self.held.ranges())?;
        self.journal = Mutex::new(Some(journal));
        Ok(())
    }

    pub(crate) fn append(&self, ranges: &RangeSet) -> Result<()> {
        self.with(|journal| journal.append(ranges.iter()))
    }

    /// Syncs the part file by `sync`, and records that it was synced.
    pub(crate) fn synced(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        // The journal stays locked: a range recorded during the sync may not be durable, and must not be marked.
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
    /// The journal of `path`, which is in `directory`.
    pub(crate) fn journal(&self, directory: &Directory, path: &RelPath) -> JournalPath {
        let mut shown = self.root.clone();
        if let Some(parent) = path.parent() {
            shown.push(OsStr::from_bytes(parent.as_bytes()));
        }
        shown.push(OsStr::from_bytes(&journal_name(path.name())));
        JournalPath::within(Arc::clone(directory), shown)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use haul_storage::{Identity, Location};

    use super::*;
    use crate::dir::Tree;
    use crate::options::LocalOptions;
    use crate::platform;

    fn volume(root: &Path) -> Volume {
        let tree = Tree::new(fs::File::open(root).unwrap().into());
        let location = Location::Local(root.to_owned());
        Volume::new(
            location,
            root.to_owned(),
            tree,
            platform::choose(false),
            LocalOptions::default(),
        )
    }

    /// Formerly, the journal was created, replaced and removed by its path, and so in the target of the link.
    #[test]
    fn the_journal_stays_beside_its_part_file_if_a_link_replaces_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let [directory, moved, elsewhere] =
            ["a", "moved", "elsewhere"].map(|name| root.path().join(name));
        fs::create_dir(&directory).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let other = elsewhere.join(".f.haul-journal");
        fs::write(&other, "other").unwrap();
        let volume = volume(root.path());
        let path = RelPath::parse("a/f").unwrap();
        let open = volume.at("create", &path, |directory, _| Ok(Arc::clone(directory))).unwrap();
        let source = Some(SourceVersion { name: "s".to_owned(), identity: Identity::default() });
        let options = CreateOptions { source, ..CreateOptions::default() };
        let mut record = PartRecord::look(&volume, &open, &path, &options, None).unwrap();
        fs::rename(&directory, &moved).unwrap();
        symlink(&elsewhere, &directory).unwrap();
        record.start().unwrap();
        assert!(moved.join(".f.haul-journal").exists());
        record.remove().unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"other");
        assert_eq!(fs::read_dir(&moved).unwrap().count(), 0);
    }
}
