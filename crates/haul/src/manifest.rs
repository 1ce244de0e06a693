//! `--manifest`: determines the manifest's path, excludes it from the copy, and adds the digests of finished files.

use std::path::Path;
use std::sync::Arc;

use haul_engine::manifest::{FinishOptions, ManifestWriter, default_name};
use haul_engine::{Action, FileEvent, Filter, Job};
use haul_storage::{Error, ErrorKind, Location, RelPath, Result, Storage, StorageExt, WorkPool};

use crate::backends::Storages;
use crate::exit::Stop;
use crate::plan::Plan;
use crate::settings::ManifestChoice;

/// A manifest that is going to be written.
#[derive(Debug)]
pub(crate) struct Manifest {
    storage: Arc<dyn Storage>,
    path: RelPath,
    /// Whether it is in the destination's storage, among the files that it lists.
    beside: bool,
    writer: ManifestWriter,
    /// Whether it lists a file that is not readable by all users.
    private: bool,
    /// The first error in adding or removing an entry; the manifest would be wrong.
    error: Option<Error>,
}

impl Manifest {
    /// Determines the path of the manifest. Nothing is written yet.
    pub(crate) async fn new(
        choice: &ManifestChoice,
        plan: &Plan,
        storages: &Storages<'_>,
    ) -> Result<Self, Stop> {
        let (storage, path, beside) = match &choice.file {
            None => {
                let path = plan.base.join(default_name(choice.digest)).unwrap_or_default();
                (Arc::clone(&plan.destination), path, true)
            }
            Some(file) => Self::locate(file, plan, storages).await?,
        };
        let storage = storages.unsplit(&storage)?;
        let pool = WorkPool::new("manifest", 1)
            .map_err(|error| Error::from_io("start a thread", error))?;
        let scratch = std::env::temp_dir();
        let writer = ManifestWriter::new(choice.digest, plan.base.clone(), &scratch, pool);
        Ok(Self { storage, path, beside, writer, private: false, error: None })
    }

    /// Opens the location of `--manifest=FILE`. Also returns whether it is in DEST.
    async fn locate(
        file: &Path,
        plan: &Plan,
        storages: &Storages<'_>,
    ) -> Result<(Arc<dyn Storage>, RelPath, bool), Stop> {
        let location = match storages.locate(file.as_os_str())? {
            Location::Local(file) => Location::Local(match &plan.local_base {
                // Relative to DEST if that is local, otherwise to the working directory.
                Some(base) => base.join(file),
                None => file,
            }),
            server => server,
        };
        let opened = storages.destination(&location, None).await?;
        if opened.is_directory || location.has_trailing_slash() {
            return Err(Error::new(ErrorKind::IsADirectory, "write manifest").at(&location).into());
        }
        let base = (plan.destination.location(), &plan.base);
        Ok(match below(base, (opened.storage.location(), &opened.path)) {
            Some(rest) => (Arc::clone(&plan.destination), plan.base.join_path(&rest), true),
            None => (opened.storage, opened.path, false),
        })
    }

    /// The manifest's path below the destination of a job; `None` if it is elsewhere.
    fn below(&self, job: &Job) -> Option<RelPath> {
        let inside = self.beside && self.path.starts_with(&job.destination_path);
        let skip = match job.destination_path.as_bytes().len() {
            0 => 0,
            length => length + 1,
        };
        let rest = self.path.as_bytes().get(skip..).filter(|_| inside)?;
        RelPath::parse(rest).ok().filter(|rest| !rest.is_root())
    }

    /// Excludes the manifest's own path, so that no source file is copied to it, and the manifest is
    /// not deleted as missing in the source. A job that copies a file to it is removed. `warn` is called for each
    /// source file that is left out for this.
    pub(crate) async fn guard(
        &self,
        jobs: &mut Vec<Job>,
        filter: Filter,
        mut warn: impl FnMut(&str, &str),
    ) -> Filter {
        const LEFT_OUT: &str = "not copied: the manifest of this copy takes its place";
        let mut left_out = Vec::new();
        for (index, job) in jobs.iter().enumerate() {
            if !self.beside || self.path != job.destination_path {
                continue;
            }
            // A directory is refused by the transfer, which also reports errors.
            let found = job.source.find(&job.source_path).await;
            if found.is_ok_and(|found| found.is_some_and(|found| !found.is_dir())) {
                let location = job.source.location().display(&job.source_path);
                warn(&location.to_string(), LEFT_OUT);
                left_out.push(index);
            }
        }
        left_out.iter().rev().for_each(|index| drop(jobs.remove(*index)));
        if !self.beside {
            return filter;
        }
        for job in &*jobs {
            let Some(path) = self.below(job) else { continue };
            let source = job.source_path.join_path(&path);
            // Errors here are ignored: the transfer reports them.
            if let Ok(Some(_)) = job.source.find(&source).await
                && filter.takes(path.as_bytes(), false)
            {
                let location = job.source.location().display(&source).to_string();
                warn(&location, LEFT_OUT);
            }
        }
        filter.sparing(self.path.clone())
    }

    /// Adds or removes an entry, as the event requires.
    pub(crate) fn note(&mut self, event: &FileEvent) {
        if event.dry_run || self.error.is_some() {
            return;
        }
        self.private |= event.private && event.digest.is_some();
        let noted = match (event.action, &event.digest) {
            (Action::Removed, _) => {
                self.writer.remove(&event.path).and_then(|()| self.writer.remove_below(&event.path))
            }
            (_, Some(digest)) => self.writer.add(&event.path, digest),
            // The link may have replaced a listed file.
            (Action::Linked, None) => self.writer.remove(&event.path),
            (Action::Copied | Action::Unchanged, None) => Ok(()),
        };
        self.error = noted.err();
    }

    /// Writes the manifest, merged with an earlier run's entries for other files. Does nothing if no entry was added or
    /// removed.
    pub(crate) async fn finish(self, sync: bool) -> Result<()> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.writer.is_empty() {
            return Ok(());
        }
        if let Some(parent) = self.path.parent() {
            self.storage.create_dir_all(&parent).await?;
        }
        let options =
            FinishOptions { merge: true, beside: self.beside, sync, private: self.private };
        self.writer.finish(&*self.storage, &self.path, options).await.map(drop)
    }
}

/// The path of a file below a directory, if both are on this machine or on one server. Each is the location of a
/// storage and a path in it.
fn below(directory: (&Location, &RelPath), file: (&Location, &RelPath)) -> Option<RelPath> {
    let are_together = match (directory.0, file.0) {
        (Location::Local(_), Location::Local(_)) => true,
        (
            Location::Remote { scheme, user, host, port, .. },
            Location::Remote { scheme: schema, user: login, host: name, port: number, .. },
        ) => (scheme, user, host, port) == (schema, login, name, number),
        (Location::Peer { ticket, .. }, Location::Peer { ticket: other, .. }) => ticket == other,
        _ => false,
    };
    if !are_together {
        return None;
    }
    let full = |(location, path): (&Location, &RelPath)| {
        let root = location.path_bytes();
        [root.strip_suffix(b"/").unwrap_or(root), b"/", path.as_bytes()].concat()
    };
    let (directory, file) = (full(directory), full(file));
    let directory = directory.strip_suffix(b"/").unwrap_or(&directory);
    let rest = file.strip_prefix(directory)?.strip_prefix(b"/")?;
    RelPath::parse(rest).ok().filter(|rest| !rest.is_root())
}
