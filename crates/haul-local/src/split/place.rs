//! Renames a finished file or folder to its name, where a file and a split folder may replace each
//! other.
//!
//! No system call replaces a folder that is not empty, so the old entry is first renamed to
//! `.NAME.haul-old`, and removed when the new one is in place. If a run is killed in between, the
//! next one that writes to the name restores the old entry first ([`Shared::recover`]).

use std::any::Any;

use haul_storage::{
    CommitOptions, EntryKind, Error, ErrorKind, RelPath, Result, StorageExt as _, aside_name,
};

use super::Shared;
use crate::storage::LocalStorage;

/// What exists at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Present {
    Nothing,
    /// A file, a link or a special file: renaming a file to its name replaces it, renaming a folder fails.
    File,
    SplitFolder,
    Directory,
}

impl Shared {
    pub(super) async fn present(&self, path: &RelPath) -> Result<Present> {
        Ok(match self.inner.find(path).await?.map(|entry| entry.kind) {
            None => Present::Nothing,
            Some(EntryKind::Directory) if self.layout(path).await?.is_some() => {
                Present::SplitFolder
            }
            Some(EntryKind::Directory) => Present::Directory,
            Some(_) => Present::File,
        })
    }

    /// Renames `from` to `to`; `from` is a folder if `is_folder`, else a file. Of the options, those about replacing
    /// and syncing matter.
    pub(super) async fn rename_into_place(
        &self,
        (from, is_folder): (&RelPath, bool),
        to: &RelPath,
        options: &CommitOptions,
    ) -> Result<()> {
        let present = self.present(to).await?;
        let refusal = match present {
            Present::Nothing => None,
            _ if !options.replace => Some(ErrorKind::AlreadyExists),
            Present::Directory => Some(ErrorKind::IsADirectory),
            Present::File | Present::SplitFolder => None,
        };
        if let Some(kind) = refusal {
            return Err(Error::new(kind, "commit").at(self.inner.location().display(to)));
        }
        let in_the_way = present == Present::SplitFolder || (is_folder && present == Present::File);
        let renamed = async {
            self.inner.rename(from, to).await?;
            match options.sync {
                true => self.sync_name(to).await,
                false => Ok(()),
            }
        };
        if !in_the_way {
            return renamed.await;
        }
        // The new name is durable before the old entry is removed.
        self.replace_via_rename(to, renamed).await
    }

    /// Makes the name of `path` durable. Servers have no request for that.
    async fn sync_name(&self, path: &RelPath) -> Result<()> {
        let inner: &dyn Any = &*self.inner;
        match inner.downcast_ref::<LocalStorage>() {
            Some(local) => local.sync_name(path).await,
            None => Ok(()),
        }
    }

    /// Renames `path` aside and runs `work`, then removes the old entry, or restores it after an
    /// error.
    pub(super) async fn replace_via_rename(
        &self,
        path: &RelPath,
        work: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let aside = aside_path(path)?;
        if let Err(error) = self.inner.rename(path, &aside).await {
            // If there is no entry any more, another machine is replacing it on the same server, and what is aside is
            // the only old version.
            if self.inner.find(path).await?.is_none() {
                return Err(error);
            }
            // Left by an earlier run, and older than the entry that has the name.
            remove_if_exists(self, &aside).await?;
            self.inner.rename(path, &aside).await?;
        }
        match work.await {
            Ok(()) => remove_if_exists(self, &aside).await,
            Err(error) => {
                // The first error is the one to report. An entry that cannot be restored stays
                // aside.
                let _ = self.inner.rename(&aside, path).await;
                Err(error)
            }
        }
    }

    /// Restores or removes the old entry that a killed run had moved aside.
    pub(super) async fn recover(&self, path: &RelPath) -> Result<()> {
        let aside = aside_path(path)?;
        if self.inner.find(&aside).await?.is_none() {
            return Ok(());
        }
        match self.inner.find(path).await? {
            None => self.inner.rename(&aside, path).await,
            Some(_) => remove_if_exists(self, &aside).await,
        }
    }

    /// Like [`Shared::recover`], but only where large files are split. Elsewhere, split files are rare, and this would
    /// cost a lookup for every small file.
    pub(super) async fn recover_if_split(&self, path: &RelPath) -> Result<()> {
        match self.rule() {
            Some(_) => self.recover(path).await,
            None => Ok(()),
        }
    }
}

/// The temporary path of the old entry.
fn aside_path(path: &RelPath) -> Result<RelPath> {
    beside(path, &aside_name(path.name()))
}

/// The entry called `name` in the directory of `path`.
pub(super) fn beside(path: &RelPath, name: &[u8]) -> Result<RelPath> {
    path.with_name(name).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "create").at(path).because(error.to_string())
    })
}

pub(super) async fn remove_if_exists(shared: &Shared, path: &RelPath) -> Result<()> {
    match shared.inner.remove_all(path).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
