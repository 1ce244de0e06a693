//! Old versions are kept under another name before something takes their place.
//!
//! Where the destination has hard links the old file keeps its name until the new one has it. Elsewhere it is
//! renamed just before that, and back if the new one does not make it.

use haul_storage::{
    Capabilities, Entry, Error, ErrorKind, LinkKind, RelPath, Result, Storage, StorageExt,
};

use crate::Backup;
use crate::context::Context;
use crate::job::NumberedJob;
use crate::plan::Item;

/// Runs `commit`, which puts something at the destination of an item, and keeps what is there.
pub async fn around<T>(
    context: &Context,
    item: &Item,
    commit: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(backup) = context.settings.backup.as_ref().filter(|_| !item.there.is_nothing()) else {
        return commit.await;
    };
    let destination = &*item.job.job.destination;
    let aside = keep(destination, backup, &item.destination)
        .await
        .map_err(|error| error.at(item.job.destination_name(&item.destination)))?;
    let committed = commit.await;
    if let (Err(_), Some(aside)) = (&committed, aside) {
        put_back(context, &item.job, &aside, &item.destination).await;
    }
    committed
}

/// Gives a file or link of the destination its backup name, since it is to go. `false` without backups.
pub async fn take_away(context: &Context, job: &NumberedJob, path: &RelPath) -> Result<bool> {
    let Some(backup) = &context.settings.backup else { return Ok(false) };
    let destination = &*job.job.destination;
    let aside = ready(destination, backup, path).await?;
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

/// Keeps what is at `path`. Returns its new path if it was renamed.
async fn keep(
    destination: &dyn Storage,
    backup: &Backup,
    path: &RelPath,
) -> Result<Option<RelPath>> {
    let Some(existing) = destination.find(path).await?.filter(|existing| !existing.is_dir()) else {
        return Ok(None);
    };
    let aside = ready(destination, backup, path).await?;
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

/// The backup name of `path`, whose directory is there.
async fn ready(destination: &dyn Storage, backup: &Backup, path: &RelPath) -> Result<RelPath> {
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

/// The new version did not make it. A failure is reported with the name that the old one has now.
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
    /// Where the old version of `path` goes.
    fn name_of(&self, path: &RelPath) -> Result<RelPath, haul_storage::RelPathError> {
        let name = [path.name(), &self.suffix].concat();
        let Some(directory) = &self.directory else { return path.with_name(name) };
        let base = self.base.components().count();
        let parent = path.parent().unwrap_or_default();
        let below = parent.components().skip(base);
        below.into_iter().try_fold(directory.clone(), |path, name| path.join(name))?.join(name)
    }
}

/// Whether a hard link is what cannot be had, so that a copy can take its place: the file has too many names, or
/// the file system or server has no links, or a rule against this one.
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
