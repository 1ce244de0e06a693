//! Opens source and part file of a large file, and loads the state of an earlier run from its journal.

use std::path::PathBuf;
use std::sync::Arc;

use haul_storage::{
    CreateOptions, Error, ErrorKind, Identity, Medium, Range, RangeSet, ReadAt, Result, Retry,
    UNKNOWN_SIZE, WriteAt, Writes,
};

use super::listed;
use super::motion::Reads;
use crate::context::Context;
use crate::plan::Item;
use haul_storage::journal::{Journal, Loaded};

/// File size (bytes) from which a journal pays with a large window: creating and removing one costs about
/// as much as writing 100 KiB.
const JOURNAL_FROM: u64 = 2 << 20;
/// Smallest file size (bytes) with a journal, however small the window is.
const JOURNAL_LEAST: u64 = 64 << 10;

/// An opened source and part file, and the ranges already transferred.
pub struct Opened {
    /// The source.
    pub reader: Arc<dyn ReadAt>,
    /// The part file.
    pub writer: Arc<dyn WriteAt>,
    /// The version of the source.
    pub identity: Identity,
    /// The ranges of the part file that an earlier run has written.
    pub written: RangeSet,
    /// The journal, if the file is long enough for one and the destination has a path for it.
    pub journal: Option<Journal>,
    /// Path of the journal.
    pub journal_path: Option<PathBuf>,
}

/// Opens the part file for a source. A part file that cannot be resumed is started over, with a warning
/// that gives the reason.
///
/// # Errors
/// If the source's size is not the listed one, the part file cannot be created, or the journal cannot
/// be started.
pub async fn open(context: &Context, item: &Item, reader: Arc<dyn ReadAt>) -> Result<Opened> {
    let identity = reader.identity().clone();
    listed::check(item, identity.size)?;
    if identity.size == UNKNOWN_SIZE {
        // A source of unknown size has no ranges and no journal.
        let writer = create(item, &CreateOptions::default()).await?;
        let (written, journal, journal_path) = (RangeSet::new(), None, None);
        return Ok(Opened { reader, writer, identity, written, journal, journal_path });
    }
    let journal_from = journal_from(context);
    let has_journal = identity.size >= journal_from && identity.tells_versions_apart();
    // Also look for a part file that cannot be resumed, to warn about it.
    let resume = context.settings.resume && identity.size >= journal_from;
    let first_data = reader.next_data(0).await?;
    let sparse = first_data.is_none_or(|data| data.len() < identity.size);
    let options = CreateOptions { resume, size: Some(identity.size), sparse };
    let mut writer = create(item, &options).await?;
    let journal_path = writer.journal_path().filter(|_| has_journal);
    let journal_path = journal_path.map(ToOwned::to_owned);
    if writer.resumed() && journal_path.is_none() {
        // Without a journal the ranges written so far are unknown.
        drop(writer);
        writer = create(item, &CreateOptions { resume: false, ..options.clone() }).await?;
    }
    let mut written = RangeSet::new();
    if writer.resumed() {
        let found = match &journal_path {
            Some(path) => load_ranges(context, item, &identity, &*writer, path.clone()).await?,
            None if has_journal => Ok(RangeSet::new()),
            None => {
                Err("the source reports neither a time nor a tag that tells its versions apart"
                    .to_owned())
            }
        };
        match found {
            Ok(ranges) => written = ranges,
            Err(why) => {
                let name = item.job.destination_name(&item.destination);
                let message = format!("its partial file cannot be resumed: {why}; starting over");
                context.tally.warn(name, message);
                // Old bytes of the part file would show through holes of the source.
                drop(writer);
                writer = create(item, &CreateOptions { resume: false, ..options }).await?;
            }
        }
    }
    if Reads::from(item.job.job.source.capabilities(), &*reader) == Reads::Whole {
        // Such a source is read from the start, past everything behind the first gap anyway; a second
        // gap would need another pass.
        let first = written.iter().next().filter(|first| first.start() == 0);
        written.remove(Range::between(first.map_or(0, Range::end), u64::MAX));
    }
    let journal = match &journal_path {
        Some(path) => match start_journal(context, item, &identity, &written, path.clone()).await {
            Ok(journal) => Some(journal),
            Err(error) => {
                // The part file has nothing to resume. The error to report is the first one.
                if written.is_empty() {
                    drop(writer.abort(false).await);
                }
                return Err(error);
            }
        },
        None => None,
    };
    Ok(Opened { reader, writer, identity, written, journal, journal_path })
}

/// The file size in bytes from which a file has a journal: a quarter of the window, 64 KiB to 2 MiB.
/// Shorter files hold their permits until the commit, so all that are open at once must fit into the
/// window.
pub fn journal_from(context: &Context) -> u64 {
    (context.flow.decision().window_bytes / 4).clamp(JOURNAL_LEAST, JOURNAL_FROM)
}

/// Creates or resumes a part file.
async fn create(item: &Item, options: &CreateOptions) -> Result<Arc<dyn WriteAt>> {
    let created = item.job.job.destination.create(&item.destination, options).await;
    created.map_err(|error| {
        let error = error.at(item.job.destination_name(&item.destination));
        // On a disk the part file is locked by another run of haul that copies the same file, so a retry
        // is pointless.
        let another_run = error.kind() == ErrorKind::Busy
            && item.job.job.destination.capabilities().medium == Medium::Disk;
        if another_run { error.with_retry(Retry::Never) } else { error }
    })
}

/// The ranges that the journal records as written, or (inner `Err`) why it cannot be used.
async fn load_ranges(
    context: &Context,
    item: &Item,
    identity: &Identity,
    writer: &dyn WriteAt,
    path: PathBuf,
) -> Result<Result<RangeSet, String>> {
    let name = item.job.source_name(&item.source.path);
    let identity = identity.clone();
    let at = path.display().to_string();
    let loaded = context.pool.run(move || Journal::load(&path, &identity, &name)).await;
    let mut ranges = match loaded {
        Ok(Loaded::Ranges(ranges)) => ranges,
        Ok(Loaded::Nothing) => return Ok(Err("it has no journal".to_owned())),
        Ok(Loaded::Unusable(why)) => return Ok(Err(format!("{why} (journal {at})"))),
        Err(error) => return Ok(Err(format!("its journal {at} cannot be read: {error}"))),
    };
    let length = writer.reopen(false).await?.identity().size;
    if item.job.job.destination.capabilities().writes == Writes::InOrder {
        // Bytes in flight when the connection broke are in the journal but not in the part file, which
        // is complete up to its length.
        ranges.remove(Range::between(length, u64::MAX));
    }
    match ranges.iter().last() {
        Some(last) if last.end() > length => {
            Ok(Err(format!("it has {length} bytes, its journal records at least {}", last.end())))
        }
        _ => Ok(Ok(ranges)),
    }
}

async fn start_journal(
    context: &Context,
    item: &Item,
    identity: &Identity,
    written: &RangeSet,
    path: PathBuf,
) -> Result<Journal> {
    let name = item.job.source_name(&item.source.path);
    let at = path.display().to_string();
    let (identity, written) = (identity.clone(), written.clone());
    let started = context.pool.run(move || Journal::start(&path, &identity, &name, &written)).await;
    started.map_err(|error| Error::from_io("start the journal", error).at(at))
}
