//! Symbolic links are copied as links.

use haul_storage::{Error, ErrorKind, LinkKind, Metadata, Result, StorageExt};

use crate::context::Context;
use crate::plan::Item;
use crate::{Action, FileEvent, Overwrite};

/// Makes a link to the same target at the destination.
pub async fn copy_symlink(context: &Context, item: &Item, target: &[u8]) -> Result<()> {
    let destination = &item.job.job.destination;
    let can = destination.capabilities();
    if !can.symlinks {
        return Err(Error::new(ErrorKind::Unsupported, "create link")
            .at(item.job.destination_name(&item.destination))
            .because("the destination has no symbolic links"));
    }
    let existing = if item.fresh { None } else { destination.find(&item.destination).await? };
    let mut action = Action::Linked;
    if let Some(existing) = existing {
        let same = existing.kind == item.source.kind;
        if existing.is_dir() {
            if !context.settings.delete {
                return Err(Error::new(ErrorKind::IsADirectory, "create link")
                    .at(item.job.destination_name(&item.destination))
                    .because("a directory is where a symbolic link is to go"));
            }
            crate::plan::remove(context, &item.job, &existing).await?;
        } else if same || context.settings.overwrite == Overwrite::Never {
            action = Action::Unchanged;
        }
    }
    if !context.settings.dry_run && action == Action::Linked {
        let link = LinkKind::Symbolic(target.to_vec());
        destination.create_link(&item.destination, &link, true).await?;
        let mut wanted =
            context.wanted_metadata(item.source.metadata(), &item.job, &item.destination);
        wanted.mode = None;
        if wanted != Metadata::default() {
            destination.set_metadata(&item.destination, &wanted).await?;
        }
    }
    context.tally.note(FileEvent {
        job: item.job.index,
        path: item.destination.clone(),
        bytes: 0,
        action,
        resumed_bytes: 0,
        digest: None,
        dry_run: context.settings.dry_run,
    });
    Ok(())
}
