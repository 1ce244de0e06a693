//! Entries of a source whose names are reserved for temporary files of haul (see [`is_part_name`]).

use std::collections::HashSet;

use haul_storage::{Entry, RelPath, Result, StorageExt, is_moving_name, is_part_name};

use super::folded::fold;
use crate::context::Context;
use crate::job::NumberedJob;
use crate::tree::is_note;

/// An entry of a source, and the source path under which it is copied.
#[derive(Debug)]
pub struct Copied {
    /// The entry.
    pub entry: Entry,
    /// Its former path, if a killed run has renamed it to remove it: it is complete, and is copied as if it still had
    /// that name.
    former: Option<RelPath>,
}

impl Copied {
    /// The source path under which it is copied: its former path, or else its own.
    pub fn path(&self) -> &RelPath {
        self.former.as_ref().unwrap_or(&self.entry.path)
    }
}

/// The files of one directory that a killed run was about to remove from the source. They are copied after all other
/// names of the directory, so that none of those replaces their copies.
#[derive(Debug, Default)]
pub struct Leftovers {
    waiting: Vec<Entry>,
}

impl Leftovers {
    /// The entries of a batch that are copied under their own names. If the run removes its sources, files that a
    /// killed run has renamed are kept for [`Self::copied`]. haul's notes (see [`is_note`]) are left out; for other
    /// entries that are not copied, a warning gives the reason.
    pub fn keep(&mut self, context: &Context, job: &NumberedJob, batch: Vec<Entry>) -> Vec<Copied> {
        let plain = |entry: Entry| {
            let name = entry.path.name();
            if is_note(&entry) {
                return None;
            }
            if !is_part_name(name) {
                return Some(Copied { entry, former: None });
            }
            let former = moved_from(name).filter(|_| !entry.is_dir());
            match former {
                Some(_) if context.settings.remove_source => {
                    self.waiting.push(entry);
                    return None;
                }
                Some(former) => {
                    let message = format!(
                        "is {}, which an interrupted move has not removed; not copied",
                        former.escape_ascii()
                    );
                    context.tally.skipped(job.source_name(&entry.path), message);
                }
                None => {
                    let message = "is an unfinished copy of haul; not copied";
                    context.tally.skipped(job.source_name(&entry.path), message);
                }
            }
            None
        };
        batch.into_iter().filter_map(plain).collect()
    }

    /// The renamed files whose former names are free, after all batches. Of several whose former names some file
    /// system treats as equal, only the first is copied: the others would replace its copy.
    pub async fn copied(self, context: &Context, job: &NumberedJob) -> Vec<Copied> {
        let (mut names, mut copied) = (HashSet::new(), Vec::new());
        let mut waiting = self.waiting;
        waiting.sort_by(|one, other| one.path.cmp(&other.path));
        for entry in waiting {
            let Some(former) = moved_from(entry.path.name()) else { continue };
            let shown = job.source_name(&entry.path);
            match is_free(job, &entry, former).await {
                Ok(Some(path)) if names.insert(fold(former)) => {
                    copied.push(Copied { entry, former: Some(path) });
                }
                Ok(_) => {
                    let message = format!(
                        "was {} when a move was interrupted, and another file has that name now; not moved",
                        former.escape_ascii()
                    );
                    context.tally.skipped(shown, message);
                }
                Err(error) => context.tally.fail(error.at(shown)),
            }
        }
        copied
    }
}

/// The former path of an entry, if nothing has it now.
async fn is_free(job: &NumberedJob, entry: &Entry, former: &[u8]) -> Result<Option<RelPath>> {
    let path = entry.path.with_name(former).map_err(|error| {
        haul_storage::Error::new(haul_storage::ErrorKind::InvalidInput, "move").with_source(error)
    })?;
    Ok(job.job.source.find(&path).await?.is_none().then_some(path))
}

/// The name of a file before it was renamed to be removed. `None` for other names, for shortened ones, and if that name
/// is reserved itself.
fn moved_from(mut name: &[u8]) -> Option<&[u8]> {
    let mut former = None;
    // A run that was killed while it removed such a file has renamed it once more.
    while is_moving_name(name) {
        let stem = name.strip_prefix(b".")?.strip_suffix(b".haul-moving")?;
        let dot = stem.iter().rposition(|byte| *byte == b'.')?;
        name = &stem[..dot];
        former = Some(name);
    }
    former.filter(|name| !name.is_empty() && !is_part_name(name))
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
        assert_eq!(moved_from(b"..f.haul-part.x.haul-moving"), None);
    }
}
