//! Capabilities of a share, and kinds of digests.

use haul_storage::{Capabilities, DigestKind, Medium, StoredTimes, Timestamp, Writes};

use super::super::messages::{self, code};
use super::WireError;

/// A digest function in a request.
///
/// # Errors
/// If this version does not know it.
pub fn digest_kind(kind: i32) -> Result<DigestKind, WireError> {
    match code::DigestKind::of(kind) {
        Some(kind) => Ok(kind.into()),
        None => Err(WireError::Invalid("kind of digest")),
    }
}

impl From<&Capabilities> for messages::Capabilities {
    fn from(can: &Capabilities) -> Self {
        let medium = match can.medium {
            Medium::Disk => code::Medium::Disk,
            Medium::Link => code::Medium::Link,
        };
        let writes = match can.writes {
            Writes::AnyOrder => code::Writes::AnyOrder,
            Writes::InOrder => code::Writes::InOrder,
        };
        let number = |kind: &DigestKind| code::DigestKind::from(*kind).number();
        Self {
            medium: medium.number(),
            ranged_reads: can.ranged_reads,
            writes: writes.number(),
            rename: can.rename,
            server_copy: can.server_copy,
            symlinks: can.symlinks,
            hard_links: can.hard_links,
            sync: can.sync,
            resume: can.resume,
            lock: can.lock,
            times: can.times,
            kept_times: Some(stored_times_to(can.stored_times)),
            mode: can.mode,
            owner: can.owner,
            xattrs: can.xattrs,
            digests: can.digests.iter().map(number).collect(),
            long_reads: can.long_reads,
            pipelined_reads: can.pipelined_reads,
            pipelined_writes: can.pipelined_writes,
            bounded_reads: can.bounded_reads,
            write_bytes: can.write_bytes,
            max_lanes: can.max_lanes.map(|lanes| lanes as u64),
            max_file_size: can.max_file_size,
            whole_limit: can.whole_limit,
            complete_lists: can.complete_lists,
            conditional_commits: can.conditional_commits,
        }
    }
}

/// The capabilities of a share. A field that the message does not have, or whose value is of a later version, is as in
/// [`Capabilities::least`].
///
/// # Errors
/// If the range of modification times is invalid.
pub fn capabilities(message: messages::Capabilities) -> Result<Capabilities, WireError> {
    let medium = match code::Medium::of(message.medium) {
        Some(code::Medium::Disk) => Medium::Disk,
        Some(code::Medium::Link) | None => Medium::Link,
    };
    let stored_times = message.kept_times.map(stored_times_from).transpose()?;
    let mut digests = Vec::new();
    for kind in message.digests.into_iter().filter_map(code::DigestKind::of) {
        let kind = DigestKind::from(kind);
        if !digests.contains(&kind) {
            digests.push(kind);
        }
    }
    Ok(Capabilities::least(medium).with(|can| {
        can.ranged_reads = message.ranged_reads;
        if code::Writes::of(message.writes) == Some(code::Writes::AnyOrder) {
            can.writes = Writes::AnyOrder;
        }
        can.rename = message.rename;
        can.server_copy = message.server_copy;
        can.symlinks = message.symlinks;
        can.hard_links = message.hard_links;
        can.sync = message.sync;
        can.resume = message.resume;
        can.lock = message.lock;
        can.times = message.times;
        can.stored_times = stored_times.unwrap_or(can.stored_times);
        can.mode = message.mode;
        can.owner = message.owner;
        can.xattrs = message.xattrs;
        can.digests = digests;
        can.long_reads = message.long_reads;
        can.pipelined_reads = message.pipelined_reads;
        can.pipelined_writes = message.pipelined_writes;
        can.bounded_reads = message.bounded_reads;
        can.write_bytes = message.write_bytes;
        can.max_lanes =
            message.max_lanes.map(|lanes| usize::try_from(lanes).unwrap_or(usize::MAX).max(1));
        can.max_file_size = message.max_file_size;
        can.whole_limit = message.whole_limit;
        can.complete_lists = message.complete_lists;
        can.conditional_commits = message.conditional_commits;
    }))
}

fn stored_times_to(times: StoredTimes) -> messages::KeptTimes {
    messages::KeptTimes {
        step_ns: times.step_ns,
        earliest: Some(times.earliest.into()),
        latest: Some(times.latest.into()),
    }
}

fn stored_times_from(times: messages::KeptTimes) -> Result<StoredTimes, WireError> {
    let time = |time: Option<messages::Time>, default: Timestamp| {
        time.map_or(Ok(default), Timestamp::try_from)
    };
    let earliest = time(times.earliest, StoredTimes::ALL.earliest)?;
    let latest = time(times.latest, StoredTimes::ALL.latest)?;
    if earliest > latest {
        return Err(WireError::Invalid("range of times"));
    }
    Ok(StoredTimes { step_ns: times.step_ns.max(1), earliest, latest })
}
