//! Handles a directory at the destination of a file or symbolic link.

use haul_storage::{Entry, Error, ErrorKind, Result, StorageExt};

use crate::context::Context;
use crate::plan::{Item, remove};

/// Removes the directory `existing`, if `--delete` allows that, and returns what exists there afterwards.
/// `what` is to take its place; errors name it and `operation`.
///
/// # Errors
/// `IsADirectory` if the directory or something below it has to stay, also in a dry run; and the errors of the
/// storages.
pub async fn remove_directory(
    context: &Context,
    item: &Item,
    existing: &Entry,
    operation: &'static str,
    what: &str,
) -> Result<Option<Entry>> {
    let refused = |directory: &str| {
        Error::new(ErrorKind::IsADirectory, operation)
            .at(item.job.destination_name(&item.destination))
            .because(format!("{directory} is in the way of the {what}"))
    };
    let settings = &context.settings;
    if !settings.delete || settings.existing_only {
        return Err(refused("a directory"));
    }
    // It would be removed before all removals are counted.
    if settings.delete_limit.is_some() {
        return Err(refused("a directory that a limit of removals protects"));
    }
    if context.has_failed_listing() && !settings.ignore_errors {
        return Err(refused("a directory that stays because a listing of the source failed"));
    }
    if let Some(why) = remove(context, &item.job, existing).await? {
        return Err(refused(why.directory()));
    }
    if settings.dry_run {
        return Ok(None);
    }
    match item.job.job.destination.find(&item.destination).await? {
        // Created since.
        Some(left) if left.is_dir() => Err(refused("a directory")),
        left => Ok(left),
    }
}
