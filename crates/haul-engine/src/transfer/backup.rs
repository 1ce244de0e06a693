//! Backups: old versions of files are kept under another name before they are replaced or removed.
//!
//! Where the destination supports hard links, the old file keeps its name until the new one takes it.
//! Elsewhere the old file is renamed just before that, and renamed back if the new one fails.
//!
//! If this run copies something to the name of a backup (editors leave `f~` beside `f`), the backup is numbered, such
//! as `f.~1~`, and replaces nothing. The number is one with which no other file has a backup of the same name:
//!
//! | copied | backup of `f` |
//! |---|---|
//! | `f` | `f~` |
//! | `f`, `f~` | `f.~1~`, or the next number that is free |
//! | `f`, `f~`, `f.~1` | `f.~2~`, since `f.~1~` is the backup of `f.~1` |
//!
//! The same if `f.~1` exists only at the destination: `--delete` may remove it, and back it up.

use haul_storage::{
    Capabilities, Entry, Error, ErrorKind, LinkKind, RelPath, Result, Storage, StorageExt,
};

use crate::Backup;
use crate::context::Context;
use crate::job::NumberedJob;
use crate::plan::Item;

/// Backs up what exists at the destination of an item, then runs `commit`, which replaces it.
pub async fn with_backup<T>(
    context: &Context,
    item: &Item,
    commit: impl Future<Output = Result<T>>,
) -> Result<T> {
    with_known_backup(context, item, commit).await.map(|(committed, _)| committed)
}

/// As [`with_backup`]. Also returns the path of the backup, if there was something to back up.
pub async fn with_known_backup<T>(
    context: &Context,
    item: &Item,
    commit: impl Future<Output = Result<T>>,
) -> Result<(T, Option<RelPath>)> {
    let Some(backup) = context.settings.backup.as_ref().filter(|_| !item.existing.is_nothing())
    else {
        return Ok((commit.await?, None));
    };
    let aside = set_aside(context, &item.job, backup, &item.destination)
        .await
        .map_err(|error| error.at(item.job.destination_name(&item.destination)))?;
    match (commit.await, aside) {
        (Ok(committed), aside) => Ok((committed, aside.map(|aside| aside.path))),
        (Err(error), Some(Aside { path, is_link: false })) => {
            put_back(context, &item.job, &path, &item.destination).await;
            Err(error)
        }
        (Err(error), _) => Err(error),
    }
}

/// Withdraws a new version that has its name and turned out to be wrong: the backup of the old version, if there is
/// one, replaces it, otherwise it is removed. Returns a message about which was done.
///
/// # Errors
/// Those of renaming, whose cause names the backup, or of removing.
pub async fn take_back(item: &Item, backup: Option<&RelPath>) -> Result<&'static str> {
    let destination = &*item.job.job.destination;
    let Some(aside) = backup else {
        destination.remove(&item.destination).await?;
        return Ok("the copy was removed");
    };
    rename(destination, aside, &item.destination).await.map_err(|error| {
        let cause = error.cause();
        error.because(format!("{cause}; its old version is {}", item.job.destination_name(aside)))
    })?;
    Ok("the old version has its name again")
}

/// Renames a file or link that is to be removed to its backup name. Returns `false` if backups are off.
pub async fn move_to_backup(context: &Context, job: &NumberedJob, path: &RelPath) -> Result<bool> {
    let Some(backup) = &context.settings.backup else { return Ok(false) };
    let destination = &*job.job.destination;
    let aside = prepare(context, job, backup, path).await?;
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

/// The backup of a file that is about to be replaced.
struct Aside {
    path: RelPath,
    /// Whether it is a hard link to the file, which still has its own name.
    is_link: bool,
}

/// Backs up the file or link at `path`, if there is one.
async fn set_aside(
    context: &Context,
    job: &NumberedJob,
    backup: &Backup,
    path: &RelPath,
) -> Result<Option<Aside>> {
    let destination = &*job.job.destination;
    let Some(existing) = destination.find(path).await?.filter(|existing| !existing.is_dir()) else {
        return Ok(None);
    };
    let aside = prepare(context, job, backup, path).await?;
    if destination.capabilities().hard_links && existing.is_file() {
        let link = LinkKind::Hard(path.clone());
        match destination.create_link(&aside, &link, true).await {
            Ok(()) => return Ok(Some(Aside { path: aside, is_link: true })),
            Err(error) if refuses_links(error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
    rename(destination, path, &aside).await?;
    Ok(Some(Aside { path: aside, is_link: false }))
}

/// Returns the backup path of `path`, and creates its directory.
async fn prepare(
    context: &Context,
    job: &NumberedJob,
    backup: &Backup,
    path: &RelPath,
) -> Result<RelPath> {
    let destination = &*job.job.destination;
    let aside = free_name(context, job, backup, path).await?;
    if let (Some(_), Some(parent)) = (&backup.directory, aside.parent()) {
        destination.create_dir_all(&parent).await?;
    }
    Ok(aside)
}

/// The backup path of `path`: numbered if this run copies something to the usual one.
async fn free_name(
    context: &Context,
    job: &NumberedJob,
    backup: &Backup,
    path: &RelPath,
) -> Result<RelPath> {
    let invalid = |error: haul_storage::RelPathError| {
        Error::new(ErrorKind::InvalidInput, "back up").because(error.to_string())
    };
    let (copied, settings) = (&context.roots.destinations, &context.settings);
    let usual = backup.name_of(path, path.name()).map_err(invalid)?;
    if !copied.has_source(job, &usual, settings).await? {
        return Ok(usual);
    }
    for number in 1_u64.. {
        let name = [path.name(), format!(".~{number}").as_bytes()].concat();
        let aside = backup.name_of(path, &name).map_err(invalid)?;
        // Its usual backup would have the same name, now or when `--delete` removes it.
        let other = path.with_name(name).map_err(invalid)?;
        let is_free = job.job.destination.find(&aside).await?.is_none()
            && job.job.destination.find(&other).await?.is_none()
            && !copied.has_source(job, &aside, settings).await?
            && !copied.has_source(job, &other, settings).await?;
        if is_free {
            return Ok(aside);
        }
    }
    Ok(usual)
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
    /// The backup path of `path` with `name` in place of its own.
    fn name_of(&self, path: &RelPath, name: &[u8]) -> Result<RelPath, haul_storage::RelPathError> {
        let name = [name, &self.suffix].concat();
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
        assert_eq!(backup.name_of(&path("d/a/x"), b"x").unwrap(), path("d/a/x~"));
        backup.directory = Some(path("d/old"));
        backup.suffix.clear();
        assert_eq!(backup.name_of(&path("d/a/x"), b"x").unwrap(), path("d/old/a/x"));
        assert_eq!(backup.name_of(&path("d/x"), b"x.~1").unwrap(), path("d/old/x.~1"));
    }
}
