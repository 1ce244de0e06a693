//! Files that stay although nothing shows that they are up to date: the source or the destination reports no
//! modification time, and no digest of a common kind.

use haul_storage::Entry;

use super::compare::Verdict;
use crate::context::Context;
use crate::plan::Item;
use crate::{Compare, Overwrite};

/// Reports an existing file that stays by `verdict`. Each file that certainly differs is reported; of the others, only
/// the first one of the transfer.
pub fn report(context: &Context, item: &Item, source: &Entry, existing: &Entry, verdict: Verdict) {
    let settings = &context.settings;
    let end = match (source.modified, existing.modified) {
        (None, _) => "source",
        (_, None) => "destination",
        (Some(_), Some(_)) => return,
    };
    let (by_digest, sizes) =
        (source.same_content(existing), source.known_size().zip(existing.known_size()));
    let same_size = sizes.map(|(source, existing)| source == existing);
    let is_newer = settings.overwrite == Overwrite::Newer;
    let by_time = settings.overwrite == Overwrite::Different
        && settings.compares() == Compare::SizeAndTime
        && by_digest.is_none();
    match verdict {
        Verdict::Leave if is_newer && (by_digest == Some(false) || same_size == Some(false)) => {
            let message = format!(
                "differs from its source and stays: the {end} reports no modification time, so \
                 --overwrite newer cannot tell which of them is newer"
            );
            context.tally.skipped(item.job.destination_name(&item.destination), message);
        }
        Verdict::Leave if is_newer && by_digest.is_none() => warn(context, item, end, same_size),
        Verdict::Keep if by_time => warn(context, item, end, same_size),
        _ => {}
    }
}

fn warn(context: &Context, item: &Item, end: &str, same_size: Option<bool>) {
    if context.times.is_first_untimed() {
        let reason = match same_size {
            Some(_) => "its size is that of the source",
            None => "the sizes cannot be compared",
        };
        let settings = &context.settings;
        // `--checksum` is refused together with `--overwrite newer`. `mv` compares contents without it.
        let option = match settings.overwrite {
            Overwrite::Newer if settings.remove_source => "--overwrite different",
            Overwrite::Newer => "--checksum instead of --overwrite newer",
            _ => "--checksum",
        };
        let message = format!(
            "stays, since {reason}, and the {end} reports no modification time; {option} compares contents; \
             this is reported once"
        );
        context.tally.warn(item.job.destination_name(&item.destination), message);
    }
}
