//! Transfers one item: looks its destination up, decides, copies if necessary, and sends the event.

use std::borrow::Cow;
use std::ops::ControlFlow;

use haul_storage::{
    CreateOptions, DigestKind, Entry, EntryKind, Error, ErrorKind, Identity, LinkKind, Medium,
    Metadata, RelPath, Replaces, Result, Retry, StorageExt, StoredTimes, Timestamp, Xattrs,
    journal_name, part_name,
};

use super::compare::{Verdict, verdict};
use super::moved::{Expected, remove_source};
use super::obstacle::remove_directory;
use super::outcome::{Moved, current, is_small, keeps_mode, keeps_out, planned, replaces, report};
use super::{backup, bytes, expected, large, link, listed, open, small, times, untimed};
use crate::context::{Context, FirstGuard, Name};
use crate::digest::Digest;
use crate::mirror::MirrorStorage;
use crate::plan::{Existing, Item};
use crate::retry::Retries;
use crate::{Action, Compare, Overwrite, Reason};

/// How often a file is restarted, after errors with [`Retry::FromStart`]; each mirror adds one.
const MAX_RESTARTS: u32 = 3;

/// Transfers an item and sends its event. The caller reports a failure.
pub async fn move_any(context: &Context, item: &Item) -> Result<()> {
    match &item.source.kind {
        EntryKind::File => move_file(context, item).await,
        EntryKind::Symlink(target) => link::copy_symlink(context, item, target).await,
        EntryKind::Special(kind) => {
            let name = item.job.source_name(&item.source.path);
            context.tally.skipped(name, format!("is a {kind}; not copied"));
            Ok(())
        }
        EntryKind::Directory => Err(Error::new(ErrorKind::IsADirectory, "copy")),
    }
}

async fn move_file(context: &Context, item: &Item) -> Result<()> {
    let existing = existing(context, item).await?;
    if existing.is_none() && context.settings.existing_only {
        context.tally.unplan_file(planned(item));
        return Ok(());
    }
    if let Some(existing) = existing.as_ref().filter(|existing| is_source(item, existing)) {
        // Hard links to one file, as in snapshots: there is nothing to copy.
        let known = match item.job.job.expected {
            Some(expected) => Some(expected::prove(context, item, expected).await?),
            None => None,
        };
        unchanged(context, item, existing, known).await?;
        return remove_unread(context, item).await;
    }
    let (verdict, mut seen, known) = match &existing {
        Some(existing) => {
            let Judged { verdict, identity, digest } = judge(context, item, existing).await?;
            (Some(verdict), identity, digest)
        }
        None => (None, None, None),
    };
    let other_names = link_to_copied(context, item, existing.as_ref(), verdict).await?;
    let ControlFlow::Continue(first) = other_names else {
        return remove_unread(context, item).await;
    };
    let verdict = match (verdict, &existing) {
        (Some(Verdict::Keep), Some(existing)) if !adjust(context, item, existing).await? => {
            Some(Verdict::Replace(Reason::Owner))
        }
        _ => verdict,
    };
    let digest = match (verdict, &existing) {
        (Some(Verdict::Keep), Some(existing)) => {
            remove_leftovers(context, item, existing).await?;
            unchanged(context, item, existing, known).await?
        }
        (Some(Verdict::Leave), Some(existing)) => {
            remove_leftovers(context, item, existing).await?;
            left_alone(context, item, existing).await?
        }
        _ => {
            let moved = copy(context, item, existing.as_ref(), verdict).await?;
            // If the source reports no length, the number of bytes read is its size.
            seen = moved.identity.map(|seen| Identity { size: moved.bytes, ..seen });
            moved.digest
        }
    };
    // A file that was left alone may differ from the source; then no further name is linked to it.
    let is_other = verdict == Some(Verdict::Leave)
        && existing.is_some_and(|existing| {
            let stored_times = context.times.stored(&item.job, &existing);
            let how = (Overwrite::Different, Compare::SizeAndTime);
            judge_by(how, item, &item.source, &existing, stored_times) != Verdict::Keep
        });
    if let Some(first) = first.filter(|_| !is_other) {
        first.done(digest);
    }
    match seen {
        Some(seen) if verdict != Some(Verdict::Leave) => {
            let expected = Expected::File(seen.size);
            remove_source(context, item, &seen, &expected).await
        }
        _ => {
            if context.settings.remove_source && verdict == Some(Verdict::Leave) {
                let name = item.job.source_name(&item.source.path);
                context.tally.skipped(name, "is not removed: its name exists at the destination");
            }
            Ok(())
        }
    }
}

/// Links the item to the copy of another hard link to the same file, if there is one, and returns `Break`; not if the
/// existing file must be left alone, or the destination refuses the link. Otherwise the verdict applies as to a file
/// with one name; other names of the file wait while the returned guard exists.
async fn link_to_copied(
    context: &Context,
    item: &Item,
    existing: Option<&Entry>,
    verdict: Option<Verdict>,
) -> Result<ControlFlow<(), Option<FirstGuard>>> {
    let hard_links =
        context.settings.preserve.hard_links && item.job.job.destination.capabilities().hard_links;
    // For existing files too: a rerun links further names to them.
    let (true, true, Some(id)) = (hard_links, item.source.links > 1, item.source.id) else {
        return Ok(ControlFlow::Continue(None));
    };
    let name = context.hard_links.claim(item.job.index, id, item.source.links, &item.destination);
    match name.await {
        Name::First(guard) => return Ok(ControlFlow::Continue(Some(guard))),
        Name::Other(target, digest) if verdict != Some(Verdict::Leave) => {
            let linked = link_name(context, item, existing, verdict, target, digest).await?;
            let Err(error) = linked else { return Ok(ControlFlow::Break(())) };
            let name = item.job.destination_name(&item.destination);
            context.hard_links.warn_refused(context, name, &error);
        }
        Name::Other(..) | Name::Alone => {}
    }
    Ok(ControlFlow::Continue(None))
}

/// Copies the file, or with `dry_run` only reports it.
async fn copy(
    context: &Context,
    item: &Item,
    existing: Option<&Entry>,
    verdict: Option<Verdict>,
) -> Result<Moved> {
    let moved = if context.settings.dry_run {
        Moved { bytes: planned(item), ..Moved::default() }
    } else {
        let moved = move_bytes(context, item).await?;
        existing.iter().for_each(|old| context.room.free(old));
        if context.settings.verify {
            context.tally.verified();
        }
        times::check_stored_time(context, item).await?;
        Moved { is_private: keeps_mode(context, existing), ..moved }
    };
    let reason = match verdict {
        Some(Verdict::Replace(reason)) => reason,
        _ => Reason::New,
    };
    let moved = Moved { reason: Some(reason), ..moved };
    report(context, item, Action::Copied, &moved);
    Ok(moved)
}

/// Removes the source of a file that did not have to be read: it was linked to the copy of another name, or
/// its destination was the source itself.
async fn remove_unread(context: &Context, item: &Item) -> Result<()> {
    let expected = Expected::File(planned(item));
    remove_source(context, item, &item.source.identity(), &expected).await
}

/// The decision about an existing file.
struct Judged {
    verdict: Verdict,
    /// The version of the source, if its content was compared.
    identity: Option<Identity>,
    /// The digest of the existing file, if it was found to be the expected one.
    digest: Option<Digest>,
}

impl From<Verdict> for Judged {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, identity: None, digest: None }
    }
}

/// Creates the item as a hard link to the copy at `target`. An inner `Err` means that the link was refused,
/// and the file can be copied instead.
async fn link_name(
    context: &Context,
    item: &Item,
    existing: Option<&Entry>,
    verdict: Option<Verdict>,
    target: RelPath,
    digest: Option<Digest>,
) -> Result<Result<(), Error>> {
    let destination = &item.job.job.destination;
    let reason = match verdict {
        Some(Verdict::Replace(reason)) => reason,
        Some(_) => Reason::Target,
        None => Reason::New,
    };
    let action = match existing.and_then(|existing| existing.id) {
        Some(id) if destination.find(&target).await?.is_some_and(|first| first.id == Some(id)) => {
            Action::Unchanged
        }
        _ => Action::Linked,
    };
    if action == Action::Linked && !context.settings.dry_run {
        let link = LinkKind::Hard(target);
        let replace = replaces(context) != Replaces::Nothing;
        let linking = destination.create_link(&item.destination, &link, replace);
        let linked = match verdict {
            Some(Verdict::Replace(_)) => backup::with_backup(context, item, linking).await,
            _ => linking.await,
        };
        match linked {
            // Another program has created a file: a copy would not get the name either.
            Err(error) if !replace && error.kind() == ErrorKind::AlreadyExists => {
                return Err(error.at(item.job.destination_name(&item.destination)));
            }
            Err(error) if backup::refuses_links(error.kind()) => return Ok(Err(error)),
            outcome => outcome?,
        }
    }
    if !context.settings.dry_run {
        remove_begun_copy(item).await?;
    }
    let reason = (action == Action::Linked).then_some(reason);
    let moved = Moved { bytes: planned(item), digest, reason, ..Moved::default() };
    report(context, item, action, &moved);
    Ok(Ok(()))
}

/// The existing entry at the destination, if there is one. Fails if it is a directory that has to stay.
async fn existing(context: &Context, item: &Item) -> Result<Option<Entry>> {
    if !is_small(context, item) {
        item.job.job.destination.prefetch(&item.destination);
    }
    let found = match &item.existing {
        Existing::Nothing => None,
        Existing::Found(entry) => Some(Entry::clone(entry)),
        Existing::Unknown => item.job.job.destination.find(&item.destination).await?,
    };
    let Some(existing) = found else { return Ok(None) };
    if existing.is_dir() {
        return remove_directory(context, item, &existing, "write", "file").await;
    }
    Ok(Some(existing))
}

/// Whether the existing entry is the source itself, under another name.
fn is_source(item: &Item, existing: &Entry) -> bool {
    item.job.is_local() && existing.id.is_some() && existing.id == item.source.id
}

/// Decides by size and time, or by content; by digest if that is known beforehand.
async fn judge(context: &Context, item: &Item, existing: &Entry) -> Result<Judged> {
    let Some(expected) = item.job.job.expected else {
        return judge_by_source(context, item, existing).await;
    };
    let by_digest = context.settings.overwrite == Overwrite::Different && existing.is_file();
    let usual = match by_digest {
        true => Verdict::Replace(Reason::Content),
        false => judge_by_source(context, item, existing).await?.verdict,
    };
    let (verdict, digest) = expected::judge(context, item, existing, expected, usual).await?;
    Ok(Judged { verdict, identity: None, digest })
}

async fn judge_by_source(context: &Context, item: &Item, existing: &Entry) -> Result<Judged> {
    let (overwrite, compare) = (context.settings.overwrite, context.settings.compares());
    let by_time = match overwrite {
        Overwrite::Different => compare == Compare::SizeAndTime,
        Overwrite::Newer => true,
        Overwrite::Never | Overwrite::Always => false,
    };
    if !existing.is_file() {
        // A link or special file is never equal to a file.
        return Ok(match overwrite {
            Overwrite::Never => Verdict::Leave.into(),
            _ => Verdict::Replace(Reason::Kind).into(),
        });
    }
    let stored_times = match overwrite {
        Overwrite::Different if by_time && item.source.size == existing.size => {
            times::probe(context, item, existing).await?
        }
        Overwrite::Newer => times::probe(context, item, existing).await?,
        _ => context.times.stored(&item.job, existing),
    };
    let how = (overwrite, compare);
    let listed = judge_by(how, item, &item.source, existing, stored_times);
    let by_content = overwrite == Overwrite::Different && compare == Compare::Content;
    if by_content && listed == Verdict::Keep {
        let (is_same, identity) = bytes::same_content(context, item).await?;
        let verdict = if is_same { listed } else { Verdict::Replace(Reason::Content) };
        return Ok(Judged { verdict, identity: Some(identity), digest: None });
    }
    let judged = |source: &Entry, verdict| {
        untimed::report(context, item, source, existing, verdict);
        Ok(Judged::from(verdict))
    };
    let is_untimed = item.source.modified.is_none() && existing.modified.is_some();
    if !is_untimed || !by_time || matches!(listed, Verdict::Replace(_)) {
        return judged(&item.source, listed);
    }
    // Index pages of web servers list no reliable times; the file itself usually has one.
    match item.job.job.source.stat(&item.source.path).await {
        Ok(found) if found.is_file() => {
            judged(&found, judge_by(how, item, &found, existing, stored_times))
        }
        Ok(_) => judged(&item.source, listed),
        // The server does not support this request: the listing has to suffice.
        Err(error) if error.kind() == ErrorKind::Unsupported => judged(&item.source, listed),
        Err(error) => Err(error.at(item.job.source_name(&item.source.path))),
    }
}

fn judge_by(
    how: (Overwrite, Compare),
    item: &Item,
    source: &Entry,
    existing: &Entry,
    stored_times: StoredTimes,
) -> Verdict {
    let job = &item.job.job;
    let sets_times = job.destination.capabilities().times;
    let source_step_ns = job.source.capabilities().stored_times.step_ns;
    verdict(how, source, source_step_ns, existing, stored_times, sets_times)
}

/// Sets mode, owner and extended attributes of an unchanged file, and its time if the contents are known to be equal.
/// Returns `false` if it has to be copied instead: another user's file must not get set-ID bits or capabilities.
async fn adjust(context: &Context, item: &Item, existing: &Entry) -> Result<bool> {
    let (source, destination) = (&item.job.job.source, &item.job.job.destination);
    let mut found = item.source.metadata();
    let mut stored = existing.metadata();
    if context.settings.preserve.xattrs
        && source.capabilities().xattrs
        && destination.capabilities().xattrs
    {
        found.xattrs = source.metadata(&item.source.path).await?.xattrs;
        stored.xattrs = match destination.metadata(&item.destination).await {
            Ok(metadata) => metadata.xattrs,
            // The user's own file, made unreadable by its mode: attributes are set without comparison.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
            Err(error) => return Err(error),
        };
    }
    let wanted = context.wanted_metadata(found, &item.job, &item.destination, false);
    let owner = wanted.owner.filter(|owner| Some(*owner) != stored.owner);
    if owner.is_some() && wanted.has_privileges() {
        return Ok(false);
    }
    // A change of owner clears set-ID bits and capabilities.
    let differ = |a: &Xattrs| stored.xattrs.as_ref().is_none_or(|b| !same_xattrs(a, b));
    let xattrs = wanted.xattrs.filter(|xattrs| owner.is_some() || differ(xattrs));
    // An attribute may be an ACL, which changes the mode.
    let mode = wanted.mode;
    let mode = mode.filter(|_| owner.is_some() || xattrs.is_some() || mode != stored.mode);
    // If the contents are equal, the time is set, so that the next run need not read them again.
    let by_content = context.settings.compares() == Compare::Content
        || item.source.same_content(existing) == Some(true);
    let is_other = |time: &Timestamp| times::differs(context, item, existing, *time);
    let modified = wanted.modified.filter(|time| by_content && is_other(time));
    let changed = Metadata { mode, owner, xattrs, modified };
    if changed != Metadata::default() && !context.settings.dry_run {
        destination.set_metadata(&item.destination, &changed).await?;
    }
    Ok(true)
}

/// Whether two lists of attributes are equal, in any order.
fn same_xattrs(a: &Xattrs, b: &Xattrs) -> bool {
    a.len() == b.len() && a.iter().all(|attribute| b.contains(attribute))
}

/// Removes what a run that was killed while it finished a file may have left beside it: a journal without a
/// part file, or the part file's name as a second hard link to the file. The latter occurs where a rename
/// cannot refuse to replace: there the part file is linked to the final name, then its own name is removed.
async fn remove_leftovers(context: &Context, item: &Item, existing: &Entry) -> Result<()> {
    let destination = &item.job.job.destination;
    let can = destination.capabilities();
    let journalled = can.resume && item.source.size >= open::journal_from(context);
    let linked = existing.links > 1 && existing.id.is_some();
    if can.medium != Medium::Disk || context.settings.dry_run || !journalled && !linked {
        return Ok(());
    }
    let name = item.destination.name();
    let part = destination.find(&beside(item, part_name(name))?).await?;
    let is_second_name = part.as_ref().is_some_and(|part| linked && part.id == existing.id);
    if is_second_name {
        remove_beside(item, part_name(name)).await?;
    }
    if journalled && (part.is_none() || is_second_name) {
        remove_beside(item, journal_name(name)).await?;
    }
    Ok(())
}

/// Removes the part file of an item that is now a hard link to another name: a killed run may have begun to copy it,
/// because it reached the other names later, or may have linked it without getting to this removal. If another run is
/// writing it, it stays, where the destination reports that.
async fn remove_begun_copy(item: &Item) -> Result<()> {
    let destination = &item.job.job.destination;
    if destination.capabilities().medium == Medium::Link && item.existing.is_nothing() {
        // This run has created the directory: on a server, names are not looked up in advance.
        return Ok(());
    }
    let name = item.destination.name();
    let part = beside(item, destination.part_name(&item.destination))?;
    if destination.find(&part).await?.is_some_and(|part| part.is_file()) {
        // Opening it takes its lock. It is neither emptied nor created anew: without a lock, another run that has just
        // finished it would rename an empty file.
        let options = CreateOptions { resume: true, ..CreateOptions::default() };
        match destination.create(&item.destination, &options).await {
            Ok(part) => part.abort(false).await?,
            Err(error) if error.kind() == ErrorKind::Busy => return Ok(()),
            // The run that created it may have made it read-only.
            Err(_) => remove(item, &part).await?,
        }
    }
    remove_beside(item, journal_name(name)).await
}

/// The path of a file beside an item's destination.
fn beside(item: &Item, name: Vec<u8>) -> Result<RelPath> {
    let invalid =
        |error| Error::new(ErrorKind::InvalidInput, "name the part file").with_source(error);
    item.destination.with_name(name).map_err(invalid)
}

/// Removes a part file or journal of an item from a disk, if there is one.
async fn remove_beside(item: &Item, name: Vec<u8>) -> Result<()> {
    let destination = &item.job.job.destination;
    if destination.capabilities().medium != Medium::Disk {
        return Ok(());
    }
    remove(item, &beside(item, name)?).await
}

/// Removes a file of an item's destination, if there is one.
async fn remove(item: &Item, path: &RelPath) -> Result<()> {
    match item.job.job.destination.remove(path).await {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

async fn unchanged(
    context: &Context,
    item: &Item,
    existing: &Entry,
    known: Option<Digest>,
) -> Result<Option<Digest>> {
    let (bytes, is_private) =
        (existing.known_size().unwrap_or(0), keeps_mode(context, Some(existing)));
    let mut moved = Moved { bytes, is_private, ..Moved::default() };
    if let Some(kind) = unchanged_digest(context) {
        moved.digest = Some(match known.filter(|known| known.kind == kind) {
            Some(known) => known,
            None => bytes::digest_existing(context, item, kind).await?,
        });
    }
    report(context, item, Action::Unchanged, &moved);
    Ok(moved.digest)
}

/// Reports a file that was left alone. It may differ from the source, so the digest is computed from the
/// destination even over a link.
async fn left_alone(context: &Context, item: &Item, existing: &Entry) -> Result<Option<Digest>> {
    let (bytes, is_private) = (existing.known_size().unwrap_or(0), keeps_out(existing));
    let mut moved = Moved { bytes, is_private, ..Moved::default() };
    if let Some(kind) = unchanged_digest(context).filter(|_| existing.is_file()) {
        moved.digest = Some(bytes::digest_destination(context, item, kind).await?);
    }
    report(context, item, Action::Unchanged, &moved);
    Ok(moved.digest)
}

/// The kind of digest to compute of files that are not copied.
fn unchanged_digest(context: &Context) -> Option<DigestKind> {
    let settings = &context.settings;
    settings.digest.filter(|_| settings.digest_unchanged && !settings.dry_run)
}

/// Transfers the bytes. Retries transient failures; restarts the file, for example if the source changed.
async fn move_bytes(context: &Context, item: &Item) -> Result<Moved> {
    let settings = &context.settings;
    let job = &item.job.job;
    let _admission = context.room.admit_file(job, &item.source, &item.destination).await?;
    let mut retries = Retries::new(settings.retries, settings.retry_pause, item.source.size);
    let mut restarts = 0;
    let mirrors = MirrorStorage::of(&*item.job.job.source).map_or(0, MirrorStorage::count);
    let max_restarts = MAX_RESTARTS + mirrors;
    let mut item = Cow::Borrowed(item);
    loop {
        let outcome = if is_small(context, &item) {
            let _shown = context.in_flight.current.begin(|| current(&item));
            small::move_small(context, &item).await
        } else {
            large::move_large(context, &item).await
        };
        let error = match outcome {
            Ok(moved) => return Ok(moved),
            Err(error) => error.at(item.job.source_name(&item.source.path)),
        };
        let changed = error.kind() == ErrorKind::Changed;
        let (error, pause) = if error.retry() == Retry::FromStart && restarts < max_restarts {
            restarts += 1;
            (error, settings.retry_pause)
        } else {
            // Ranges are retried in `motion`, by their progress. Failures here are those of opening and finishing, of
            // small files, and of files of unknown length.
            retries.next(error, 0)?
        };
        if context.cancel.is_cancelled() {
            return Err(error);
        }
        context.flow.failed(error.kind());
        context.tally.retry(error, restarts + retries.attempt(), pause);
        context.pause(pause).await;
        if changed {
            let now = listed::stat_again(&item).await?;
            if now.identity() == item.source.identity() {
                // Its listing has not changed, only reading shows another version: one more attempt is enough.
                restarts = max_restarts;
            } else {
                let before = planned(&item);
                item.to_mut().source = now;
                context.tally.replan_file(before, planned(&item));
            }
        }
    }
}
