//! Renames a finished file or folder to its name, where a file and a split folder may replace each
//! other.
//!
//! No system call replaces a folder that is not empty, so the old entry is first renamed to
//! `.NAME.haul-old`, and removed when the new one is in place. If a run is killed in between, the
//! next one that writes to the name restores the old entry first ([`Shared::recover`]).

use haul_storage::{EntryKind, Error, ErrorKind, RelPath, Result, StorageExt as _, aside_name};

use super::Shared;

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

    /// Renames `from` to `to`; `from` is a folder if `is_folder`, else a file.
    pub(super) async fn rename_into_place(
        &self,
        from: &RelPath,
        is_folder: bool,
        to: &RelPath,
        replace: bool,
    ) -> Result<()> {
        let present = self.present(to).await?;
        let refusal = match present {
            Present::Nothing => None,
            _ if !replace => Some(ErrorKind::AlreadyExists),
            Present::Directory => Some(ErrorKind::IsADirectory),
            Present::File | Present::SplitFolder => None,
        };
        if let Some(kind) = refusal {
            return Err(Error::new(kind, "commit").at(self.inner.location().display(to)));
        }
        let in_the_way = present == Present::SplitFolder || (is_folder && present == Present::File);
        if !in_the_way {
            return self.inner.rename(from, to).await;
        }
        self.replace_via_rename(to, self.inner.rename(from, to)).await
    }

    /// Renames `path` aside and runs `work`, then removes the old entry, or restores it after an
    /// error.
    pub(super) async fn replace_via_rename(
        &self,
        path: &RelPath,
        work: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let aside = aside_path(path)?;
        remove_if_exists(self, &aside).await?;
        self.inner.rename(path, &aside).await?;
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
