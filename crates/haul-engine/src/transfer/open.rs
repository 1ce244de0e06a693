//! Opens the part file of a large file, with what an earlier run has left of it.

use std::sync::Arc;

use haul_storage::{
    CreateOptions, ErrorKind, Held, Identity, Location, Medium, Range, RangeSet, ReadAt, Result,
    Retry, SourceVersion, UNKNOWN_SIZE, WriteAt,
};

use super::listed;
use super::motion::Reads;
use super::outcome::replaces;
use crate::context::Context;
use crate::plan::Item;

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
}

/// Opens the part file for a source. A part file that cannot be resumed is started over, with a warning
/// that gives the reason.
///
/// # Errors
/// If the source's size is not the listed one, its first data cannot be found, or the part file or its journal cannot
/// be created.
pub async fn open(context: &Context, item: &Item, reader: Arc<dyn ReadAt>) -> Result<Opened> {
    let identity = reader.identity().clone();
    listed::check(item, identity.size)?;
    let writer = create(item, &options(context, item, &*reader).await?).await?;
    if let Held::StartedOver(why) = writer.held() {
        let name = item.job.destination_name(&item.destination);
        let message = format!("its partial file cannot be resumed: {why}; starting over");
        context.tally.warn(name, message);
    }
    let mut written = writer.held().ranges();
    if Reads::from(item.job.job.source.capabilities(), &*reader) == Reads::Whole {
        // Such a source is read from the start, and each gap would need a pass of its own. So only the bytes
        // before the first gap count.
        written.remove(Range::between(written.prefix(), u64::MAX));
    }
    Ok(Opened { reader, writer, identity, written })
}

/// How the part file is to be created.
async fn options(context: &Context, item: &Item, reader: &dyn ReadAt) -> Result<CreateOptions> {
    let identity = reader.identity();
    let replaces = replaces(context);
    if identity.size == UNKNOWN_SIZE {
        // A source of unknown size has no ranges and no journal.
        return Ok(CreateOptions { replaces, ..CreateOptions::default() });
    }
    let has_journal = identity.size >= journal_from(context) && identity.distinguishes_versions();
    let name = || version_name(item, identity);
    let source = has_journal.then(|| SourceVersion { name: name(), identity: identity.clone() });
    let first_data = reader.next_data(0).await?;
    Ok(CreateOptions {
        resume: context.settings.resume && has_journal,
        source,
        size: Some(identity.size),
        sparse: first_data.is_none_or(|data| data.len() < identity.size),
        replaces,
    })
}

/// The name of the source in the journal. If the source has no tag, the query of its URL is a part of the name: it may
/// select one of several files of the same length and time. If it has one, a file resumes although its URL was signed
/// anew.
fn version_name(item: &Item, identity: &Identity) -> String {
    let name = item.job.source_name(&item.source.path);
    match item.job.job.source.location() {
        // A query may be a secret.
        Location::Remote { query: Some(query), .. } if identity.tag.is_none() => {
            let digest = blake3::hash(query.as_bytes()).to_hex();
            format!("{name} ({})", &digest[..16])
        }
        _ => name,
    }
}

/// The file size in bytes from which a file has a journal: a quarter of the window, 64 KiB to 2 MiB.
/// Between disks, shorter files hold their permits until the commit; with this limit, several of them fit into the
/// window at once.
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
