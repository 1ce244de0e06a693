//! Copies symbolic links as links.

use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, LinkKind, Metadata, Replaces, Result, StorageExt, Timestamp,
};

use super::moved::{Expected, remove_source};
use super::obstacle::remove_directory;
use super::outcome::replaces;
use super::{backup, times};
use crate::context::Context;
use crate::plan::Item;
use crate::{Action, FileEvent, Overwrite, Reason};

/// Creates a link to the same target at the destination.
pub async fn copy_symlink(context: &Context, item: &Item, target: &[u8]) -> Result<()> {
    let destination = &item.job.job.destination;
    let can = destination.capabilities();
    if !can.symlinks {
        return Err(Error::new(ErrorKind::Unsupported, "create link")
            .at(item.job.destination_name(&item.destination))
            .because("the destination has no symbolic links"));
    }
    let existing = match item.existing.is_nothing() {
        true => None,
        false => destination.find(&item.destination).await?,
    };
    let (mut action, mut reason) = (Action::Linked, Reason::New);
    if existing.is_none() && context.settings.existing_only {
        return Ok(());
    }
    if let Some(existing) = &existing {
        let is_link = matches!(existing.kind, EntryKind::Symlink(_));
        reason = if is_link { Reason::Target } else { Reason::Kind };
    }
    let existing = match existing {
        Some(existing) if existing.is_dir() => {
            remove_directory(context, item, &existing, "create link", "symbolic link").await?
        }
        existing => existing,
    };
    if let Some(existing) = existing {
        let same = existing.kind == item.source.kind;
        if context.settings.overwrite == Overwrite::Never {
            action = Action::Unchanged;
        } else if same {
            action = Action::Unchanged;
            adjust(context, item, &existing).await?;
        }
    }
    if !context.settings.dry_run && action == Action::Linked {
        let link = LinkKind::Symbolic(target.to_vec());
        let replace = replaces(context) != Replaces::Nothing;
        let linking = destination.create_link(&item.destination, &link, replace);
        backup::with_backup(context, item, linking).await?;
        let wanted = wanted_metadata(context, item);
        if wanted != Metadata::default() {
            destination.set_metadata(&item.destination, &wanted).await?;
        }
    }
    context.tally.note(FileEvent {
        job: item.job.index,
        path: item.destination.clone(),
        bytes: 0,
        action,
        reason: (action == Action::Linked).then_some(reason),
        resumed_bytes: 0,
        digest: None,
        private: false,
        dry_run: context.settings.dry_run,
    });
    if context.settings.overwrite == Overwrite::Never && action == Action::Unchanged {
        if context.settings.remove_source {
            let name = item.job.source_name(&item.source.path);
            context.tally.skipped(name, "is not removed: its name exists at the destination");
        }
        return Ok(());
    }
    remove_source(context, item, &item.source.identity(), &Expected::Link).await
}

/// Sets owner and time of a link that has the right target already: they may differ, also because a run was
/// stopped between creating the link and setting them.
async fn adjust(context: &Context, item: &Item, existing: &Entry) -> Result<()> {
    let job = &item.job.job;
    let wanted = wanted_metadata(context, item);
    let is_other = |time: &Timestamp| times::differs(context, item, existing, *time);
    let changed = Metadata {
        modified: wanted.modified.filter(is_other),
        owner: wanted.owner.filter(|owner| Some(*owner) != existing.owner),
        ..Metadata::default()
    };
    if changed == Metadata::default() || context.settings.dry_run {
        return Ok(());
    }
    // A change of owner does not change the time of a link.
    job.destination.set_metadata(&item.destination, &changed).await
}

/// The metadata that a link can have.
fn wanted_metadata(context: &Context, item: &Item) -> Metadata {
    let found = item.source.metadata();
    Metadata { mode: None, ..context.wanted_metadata(found, &item.job, &item.destination, false) }
}
