//! What the spool records about a file, in the head of its spool file.
//!
//! The head has two slots that are written in turns, each with a number and a checksum: the valid one with the higher
//! number counts, so that a crash while one is written leaves the other.

use haul_storage::{FileId, Identity, Range, RangeSet, RelPath, Timestamp};
use serde::{Deserialize, Serialize};

/// Length of a slot, and of the head: the content of the file begins after it.
const SLOT: usize = 64 << 10;
pub(super) const HEAD: u64 = 2 * SLOT as u64;

const MAGIC: &[u8; 8] = b"haulspl1";
/// Magic, number, length, checksum.
const FRAME: usize = 8 + 8 + 8 + 32;

/// Most ranges of [`Record::present`]: more may not fit into a slot.
pub(super) const MOST_RANGES: usize = 500;

/// The record of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The path below the mounted directory.
    pub(super) path: Vec<u8>,
    /// The version that it replaces; `None` for a new file.
    pub(super) base: Option<Version>,
    /// Which bytes are in the spool; the others before `end` are those of the base. `None`: all.
    pub(super) present: Option<Present>,
    pub(super) mode: Option<u32>,
    /// Seconds and nanoseconds.
    pub(super) modified: (i64, u32),
    /// Counts changes of the content.
    pub(super) generation: u64,
    /// It was closed; otherwise it may be incomplete.
    pub(super) closed: bool,
    /// The BLAKE3 digest of a short content: another digest means that it was changed after this record.
    pub(super) digest: Option<String>,
    /// Why the last upload failed.
    pub(super) failure: Option<String>,
}

/// Ranges of a file, as start and end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Present {
    pub(super) end: u64,
    pub(super) ranges: Vec<(u64, u64)>,
}

/// A version of a file of the storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Version {
    size: u64,
    modified: Option<(i64, u32)>,
    id: Option<(u64, u64)>,
    tag: Option<String>,
}

impl From<&Identity> for Version {
    fn from(identity: &Identity) -> Self {
        Self {
            size: identity.size,
            modified: identity.modified.map(|time| (time.seconds, time.nanos)),
            id: identity.id.map(|id| (id.device, id.inode)),
            tag: identity.tag.clone(),
        }
    }
}

impl From<&Version> for Identity {
    fn from(version: &Version) -> Self {
        Self {
            size: version.size,
            modified: version.modified.map(|(seconds, nanos)| Timestamp { seconds, nanos }),
            id: version.id.map(|(device, inode)| FileId { device, inode }),
            tag: version.tag.clone(),
        }
    }
}

impl Present {
    /// The ranges of `present`. In the gaps before `end`, the content is that of the base.
    pub(super) fn of(present: &RangeSet, end: u64) -> Self {
        Self { end, ranges: present.iter().map(|range| (range.start(), range.end())).collect() }
    }

    /// The ranges.
    pub(super) fn ranges(&self) -> RangeSet {
        let mut set = RangeSet::new();
        self.ranges.iter().for_each(|(start, end)| set.insert(Range::between(*start, *end)));
        set
    }
}

impl Record {
    /// The path below the mounted directory, unless the record is damaged.
    pub(super) fn rel_path(&self) -> Option<RelPath> {
        RelPath::parse(&self.path).ok().filter(|path| !path.is_root())
    }

    /// The content is about to change, or has changed, since it was recorded as complete.
    pub(super) fn reopen(&mut self) {
        (self.closed, self.digest) = (false, None);
        self.generation += 1;
    }

    /// The slot with this number and its offset in the file; `None` if the record is too long for one.
    pub(super) fn slot(&self, number: u64) -> Option<(Vec<u8>, u64)> {
        let text = serde_json::to_vec(self).ok()?;
        let length = u64::try_from(text.len()).ok()?;
        if FRAME + text.len() > SLOT {
            return None;
        }
        let mut slot = Vec::with_capacity(FRAME + text.len());
        slot.extend_from_slice(MAGIC);
        slot.extend_from_slice(&number.to_le_bytes());
        slot.extend_from_slice(&length.to_le_bytes());
        slot.extend_from_slice(checksum(number, &text).as_bytes());
        slot.extend_from_slice(&text);
        Some((slot, (number % 2) * SLOT as u64))
    }

    /// The record in a head, and its number; `None` if there is none.
    pub(super) fn read(head: &[u8]) -> Option<(Self, u64)> {
        let slots = head.chunks(SLOT).filter_map(parsed);
        slots.max_by_key(|(_, number)| *number)
    }

    /// Whether a head without a record has something of another version of haul.
    pub(super) fn is_of_other(head: &[u8]) -> bool {
        let is_other = |magic: &[u8]| magic != MAGIC && magic.iter().any(|byte| *byte != 0);
        let mut slots = head.chunks(SLOT);
        slots.any(|slot| framed(slot).is_some() || slot.get(..MAGIC.len()).is_some_and(is_other))
    }
}

fn parsed(slot: &[u8]) -> Option<(Record, u64)> {
    let (text, number) = framed(slot)?;
    Some((serde_json::from_slice(text).ok()?, number))
}

/// The text of a slot, if it is complete, and its number.
fn framed(slot: &[u8]) -> Option<(&[u8], u64)> {
    let (magic, rest) = slot.split_first_chunk::<8>()?;
    let (number, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk::<32>()?;
    let number = u64::from_le_bytes(*number);
    let text = rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
    if magic != MAGIC || checksum(number, text).as_bytes() != sum {
        return None;
    }
    Some((text, number))
}

fn checksum(number: u64, text: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(text);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(generation: u64) -> Record {
        let identity = Identity {
            size: 7,
            modified: Some(Timestamp { seconds: -1, nanos: 5 }),
            id: Some(FileId { device: 1, inode: 2 }),
            tag: Some("\"x\"".to_owned()),
        };
        let mut ranges = RangeSet::new();
        ranges.insert(Range::new(3, 4));
        Record {
            path: b"a/\xff".to_vec(),
            base: Some(Version::from(&identity)),
            present: Some(Present::of(&ranges, 9)),
            mode: Some(0o640),
            modified: (1, 2),
            generation,
            closed: true,
            digest: None,
            failure: Some("no".to_owned()),
        }
    }

    fn head(slots: &[(Vec<u8>, u64)]) -> Vec<u8> {
        let mut head = vec![0; HEAD as usize];
        for (slot, at) in slots {
            head[*at as usize..][..slot.len()].copy_from_slice(slot);
        }
        head
    }

    #[test]
    fn the_later_record_counts_and_a_torn_one_does_not() {
        let (old, new) = (record(1).slot(4).unwrap(), record(2).slot(5).unwrap());
        assert_ne!(old.1, new.1);
        let mut head = head(&[old, new.clone()]);
        assert_eq!(Record::read(&head), Some((record(2), 5)));
        head[new.1 as usize + FRAME + 3] ^= 1;
        assert_eq!(Record::read(&head), Some((record(1), 4)));
        assert_eq!(Record::read(&[0; 100]), None);
        assert_eq!(Record::read(&[]), None);
    }

    #[test]
    fn a_version_is_the_same_after_it_was_recorded() {
        let identity = Identity::from(record(1).base.as_ref().unwrap());
        assert_eq!(Version::from(&identity), record(1).base.unwrap());
        assert_eq!(identity.tag.as_deref(), Some("\"x\""));
    }

    #[test]
    fn the_most_ranges_fit_into_a_slot() {
        let mut ranges = RangeSet::new();
        let far = u64::MAX - (1 << 20);
        (0..MOST_RANGES as u64).for_each(|at| ranges.insert(Range::new(far + 2 * at, 1)));
        let path = vec![255; 4096];
        let present = Some(Present::of(&ranges, u64::MAX));
        assert!(Record { path, present, ..record(1) }.slot(1).is_some());
    }
}
