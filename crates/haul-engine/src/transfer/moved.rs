//! With `remove_source` a file or link is removed from the source once its copy is complete.
//!
//! Two checks precede the removal. If the source has changed since it was read, it stays. And the copy may
//! be the source itself under another name: a linked directory, a server's view of a local disk, a file
//! system that ignores case. So the source is first renamed. If the copy is gone then, it was the source, and
//! the source gets its name back.

use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, Identity, Medium, RelPath, Result, Storage, StorageExt,
    UNKNOWN_SIZE, moving_name, unique,
};

use crate::context::Context;
use crate::plan::Item;

/// The properties that a copy must have.
#[derive(Debug, Clone)]
pub enum Expected {
    /// A file of this length.
    File(u64),
    /// A link to the target of the source.
    Link,
}

/// Removes the source of an item, with `remove_source` and without `dry_run`; `seen` is the version that was copied.
///
/// # Errors
///
/// `Changed` if it is another version now or the copy is not what was written, `InvalidInput` if source and
/// destination are the same file; in all three cases it stays. Also the errors of the storages.
pub async fn remove_source(
    context: &Context,
    item: &Item,
    seen: &Identity,
    expected: &Expected,
) -> Result<()> {
    if !context.settings.remove_source || context.settings.dry_run {
        return Ok(());
    }
    let (source, path) = (&*item.job.job.source, &item.source.path);
    let removed = remove(item, source, path, seen, expected).await;
    removed.map_err(|error| error.at(item.job.source_name(path)))
}

async fn remove(
    item: &Item,
    source: &dyn Storage,
    path: &RelPath,
    seen: &Identity,
    expected: &Expected,
) -> Result<()> {
    let now = source.stat(path).await?;
    if !is_version(source, seen, &now) {
        return Err(changed(seen, &now));
    }
    let aside = aside(path)?;
    let removed = async {
        source.rename(path, &aside).await?;
        check(item, source, &aside, seen, expected).await?;
        source.remove(&aside).await
    };
    match removed.await {
        Ok(()) => Ok(()),
        // Also if renaming failed: perhaps only the response was lost.
        Err(error) => match source.find(&aside).await {
            Ok(None) => Err(error),
            _ => Err(restore(source, &aside, path, error).await),
        },
    }
}

/// Checks the renamed source and the copy.
async fn check(
    item: &Item,
    source: &dyn Storage,
    aside: &RelPath,
    seen: &Identity,
    expected: &Expected,
) -> Result<()> {
    // On a server a renamed file may have another tag or time.
    if source.capabilities().medium == Medium::Disk {
        let now = source.stat(aside).await?;
        if !is_version(source, seen, &now) {
            return Err(changed(seen, &now));
        }
    }
    let destination = &item.job.job.destination;
    let not_removed = |kind, why: &str| {
        Err(Error::new(kind, "remove").because(format!("{why}; the source stays")))
    };
    match destination.find(&item.destination).await? {
        None => not_removed(ErrorKind::InvalidInput, "source and destination are the same file"),
        Some(found) if expected.matches(&found, &item.source) => Ok(()),
        Some(_) => not_removed(ErrorKind::Changed, "the copy is not what was written"),
    }
}

impl Expected {
    fn matches(&self, found: &Entry, source: &Entry) -> bool {
        match self {
            Self::File(bytes) => {
                found.is_file() && found.known_size().is_none_or(|size| size == *bytes)
            }
            Self::Link => matches!(found.kind, EntryKind::Symlink(_)) && found.kind == source.kind,
        }
    }
}

/// Whether an entry is the version that was seen. Opening and listing a file may give different attributes;
/// only those that both have are compared.
fn is_version(source: &dyn Storage, seen: &Identity, now: &Entry) -> bool {
    let step_ns = source.capabilities().stored_times.step_ns;
    let now = now.identity();
    let sizes = [seen.size, now.size];
    let times = seen.modified.zip(now.modified);
    let tags = seen.tag.as_ref().zip(now.tag.as_ref());
    (sizes.contains(&UNKNOWN_SIZE) || seen.size == now.size)
        && times.is_none_or(|(a, b)| a.rounded_down(step_ns) == b.rounded_down(step_ns))
        && seen.id.zip(now.id).is_none_or(|(a, b)| a == b)
        && tags.is_none_or(|(a, b)| a.trim_start_matches("W/") == b.trim_start_matches("W/"))
}

fn changed(seen: &Identity, now: &Entry) -> Error {
    let now = now.identity();
    Error::new(ErrorKind::Changed, "remove")
        .because(format!("it changed after it was copied, and stays: {seen} became {now}"))
}

/// The name of the source between renaming and removing.
fn aside(path: &RelPath) -> Result<RelPath> {
    path.with_name(moving_name(path.name(), &unique()))
        .map_err(|error| Error::new(ErrorKind::InvalidInput, "remove").with_source(error))
}

/// Gives the source its name back, unless something else has it now. Returns the error to report.
async fn restore(source: &dyn Storage, aside: &RelPath, path: &RelPath, error: Error) -> Error {
    let outcome = match source.find(path).await {
        Ok(None) => source.rename(aside, path).await,
        Ok(Some(_)) => Err(Error::new(ErrorKind::AlreadyExists, "rename")),
        Err(error) => Err(error),
    };
    let Err(failure) = outcome else { return error };
    let cause = format!(
        "{}; its name is {} now, since it cannot be renamed back ({})",
        error.cause(),
        source.location().display(aside),
        failure.cause()
    );
    Error::new(error.kind(), "remove").because(cause)
}
