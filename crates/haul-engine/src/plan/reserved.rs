//! Entries of a source whose names are reserved for temporary files of haul (see [`is_part_name`]).

use std::borrow::Cow;

use haul_storage::{Entry, RelPath, Result, StorageExt, is_moving_name, is_part_name};

use crate::context::Context;
use crate::job::NumberedJob;
use crate::tree::is_note;

/// The path whose copy a source entry becomes. `None` if it is not copied; then a warning gives the reason.
///
/// That is another path than its own only for a file that a killed run was about to remove from the source: it is
/// complete, and goes on as if it still had its name.
pub async fn copied_path<'a>(
    context: &Context,
    job: &NumberedJob,
    entry: &'a Entry,
) -> Option<Cow<'a, RelPath>> {
    let name = entry.path.name();
    if is_note(name) {
        return None;
    }
    if !is_part_name(name) {
        return Some(Cow::Borrowed(&entry.path));
    }
    let shown = job.source_name(&entry.path);
    if let Some(former) = moved_from(name) {
        if !context.settings.remove_source {
            let message = format!(
                "is {}, which an interrupted move has not removed; not copied",
                former.escape_ascii()
            );
            context.tally.skipped(shown, message);
            return None;
        }
        match is_free(job, entry, former).await {
            Ok(Some(path)) => return Some(Cow::Owned(path)),
            Ok(None) => {
                let message = format!(
                    "was {} when a move was interrupted, and another file has that name now; not moved",
                    former.escape_ascii()
                );
                context.tally.skipped(shown, message);
            }
            Err(error) => context.tally.fail(error.at(shown)),
        }
        return None;
    }
    context.tally.skipped(shown, "is an unfinished copy of haul; not copied");
    None
}

/// The former path of an entry, if nothing has it now.
async fn is_free(job: &NumberedJob, entry: &Entry, former: &[u8]) -> Result<Option<RelPath>> {
    let path = entry.path.with_name(former).map_err(|error| {
        haul_storage::Error::new(haul_storage::ErrorKind::InvalidInput, "move").with_source(error)
    })?;
    Ok(job.job.source.find(&path).await?.is_none().then_some(path))
}

/// The name of a file before it was renamed to be removed. `None` for other names, and for shortened ones.
fn moved_from(mut name: &[u8]) -> Option<&[u8]> {
    let mut former = None;
    // A run that was killed while it removed such a file has renamed it once more.
    while is_moving_name(name) {
        let stem = name.strip_prefix(b".")?.strip_suffix(b".haul-moving")?;
        let dot = stem.iter().rposition(|byte| *byte == b'.')?;
        name = &stem[..dot];
        former = Some(name);
    }
    former.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_storage::{moving_name, unique};

    #[test]
    fn the_former_name_of_a_renamed_source_is_found() {
        for name in [&b"f"[..], b".f", b"a.b", b"x.haul-moving"] {
            let once = moving_name(name, &unique());
            assert_eq!(moved_from(&once), Some(name));
            assert_eq!(moved_from(&moving_name(&once, &unique())), Some(name));
            assert_eq!(moved_from(name), None);
        }
        assert_eq!(moved_from(&moving_name(&[b'x'; 250], &unique())), None);
        assert_eq!(moved_from(b".f.haul-part"), None);
    }
}
