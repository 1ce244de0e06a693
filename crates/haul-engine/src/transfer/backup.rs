//! Backups: old versions of files are kept under another name before they are replaced or removed.
//!
//! Where the destination supports hard links, the old file keeps its name until the new one takes it.
//! Elsewhere the old file is renamed just before that, and renamed back if the new one fails.

use haul_storage::{
    Capabilities, Entry, Error, ErrorKind, LinkKind, RelPath, Result, Storage, StorageExt,
};

use crate::Backup;
use crate::context::Context;
use crate::job::NumberedJob;
use crate::plan::{Existing, Item};

/// Backs up what exists at the destination of an item, then runs `commit`, which replaces it.
pub async fn with_backup<T>(
    context: &Context,
    item: &Item,
    commit: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(backup) = context.settings.backup.as_ref().filter(|_| !item.existing.is_nothing())
    else {
        return commit.await;
    };
    let destination = &*item.job.job.destination;
    let aside = set_aside(destination, backup, &item.destination)
        .await
        .map_err(|error| error.at(item.job.destination_name(&item.destination)))?;
    let committed = commit.await;
    if let (Err(_), Some(aside)) = (&committed, aside) {
        put_back(context, &item.job, &aside, &item.destination).await;
    }
    committed
}

/// Takes a new version back that got its name and is not as it should be: the backup of this run gets the name, or the
/// file is removed. Returns which of them was done.
pub async fn take_back(context: &Context, item: &Item) -> Result<&'static str> {
    let destination = &*item.job.job.destination;
    if let Some(backup) = &context.settings.backup
        && let Existing::Found(existing) = &item.existing
        && !existing.is_dir()
    {
        let aside = backup.name_of(&item.destination).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "back up").because(error.to_string())
        })?;
        if destination.find(&aside).await?.is_some() {
            rename(destination, &aside, &item.destination).await?;
            return Ok("the old version has its name again");
        }
    }
    destination.remove(&item.destination).await?;
    Ok("the copy was removed")
}

/// Renames a file or link that is to be removed to its backup name. Returns `false` if backups are off.
pub async fn move_to_backup(context: &Context, job: &NumberedJob, path: &RelPath) -> Result<bool> {
    let Some(backup) = &context.settings.backup else { return Ok(false) };
    let destination = &*job.job.destination;
    let aside = prepare(destination, backup, path).await?;
    rename(destination, path, &aside).await?;
    Ok(true)
}

/// Whether an entry of the destination is a backup, or the directory of all backups.
pub fn is_backup(context: &Context, entry: &Entry) -> bool {
    let Some(backup) = &context.settings.backup else { return false };
    match &backup.directory {
        Some(directory) => entry.path == *directory,
        None => entry.path.name().ends_with(&backup.suffix),
    }
}

/// Backs up the file or link at `path`, if there is one. Returns its new path if it was renamed.
async fn set_aside(
    destination: &dyn Storage,
    backup: &Backup,
    path: &RelPath,
) -> Result<Option<RelPath>> {
    let Some(existing) = destination.find(path).await?.filter(|existing| !existing.is_dir()) else {
        return Ok(None);
    };
    let aside = prepare(destination, backup, path).await?;
    if destination.capabilities().hard_links && existing.is_file() {
        let link = LinkKind::Hard(path.clone());
        match destination.create_link(&aside, &link, true).await {
            Ok(()) => return Ok(None),
            Err(error) if refuses_links(error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
    rename(destination, path, &aside).await?;
    Ok(Some(aside))
}

/// Returns the backup path of `path`, and creates its directory.
async fn prepare(destination: &dyn Storage, backup: &Backup, path: &RelPath) -> Result<RelPath> {
    let aside = backup.name_of(path).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "back up").because(error.to_string())
    })?;
    if let (Some(_), Some(parent)) = (&backup.directory, aside.parent()) {
        destination.create_dir_all(&parent).await?;
    }
    Ok(aside)
}

async fn rename(destination: &dyn Storage, from: &RelPath, to: &RelPath) -> Result<()> {
    let Capabilities { rename: replaces, .. } = destination.capabilities();
    if !replaces && destination.find(to).await?.is_some() {
        destination.remove(to).await?;
    }
    destination.rename(from, to).await
}

/// Renames an old version back, after the new one has failed. If that fails too, a warning names the backup.
async fn put_back(context: &Context, job: &NumberedJob, aside: &RelPath, path: &RelPath) {
    let destination = &*job.job.destination;
    let outcome = match destination.find(path).await {
        Ok(None) => destination.rename(aside, path).await,
        Ok(Some(_)) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        let message = format!("its old version is {} ({error})", job.destination_name(aside));
        context.tally.warn(job.destination_name(path), message);
    }
}

impl Backup {
    /// The backup path of `path`.
    fn name_of(&self, path: &RelPath) -> Result<RelPath, haul_storage::RelPathError> {
        let name = [path.name(), &self.suffix].concat();
        let Some(directory) = &self.directory else { return path.with_name(name) };
        let base = self.base.components().count();
        let parent = path.parent().unwrap_or_default();
        let below = parent.components().skip(base);
        below.into_iter().try_fold(directory.clone(), |path, name| path.join(name))?.join(name)
    }
}

/// Whether an error refuses only the hard link, so that renaming or copying may still work: the file has too
/// many links, or the file system or server supports none, or forbids this one.
pub const fn refuses_links(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::Interrupted
            | ErrorKind::Unreachable
            | ErrorKind::Unauthenticated
            | ErrorKind::Busy
            | ErrorKind::NoSpace
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn backups_are_beside_the_file_or_in_a_tree_of_their_own() {
        let mut backup = Backup { base: path("d"), directory: None, suffix: b"~".to_vec() };
        assert_eq!(backup.name_of(&path("d/a/x")).unwrap(), path("d/a/x~"));
        backup.directory = Some(path("d/old"));
        backup.suffix.clear();
        assert_eq!(backup.name_of(&path("d/a/x")).unwrap(), path("d/old/a/x"));
        assert_eq!(backup.name_of(&path("d/x")).unwrap(), path("d/old/x"));
    }
}
