//! What the spool records about a file, in the head of its spool file.
//!
//! The head has two slots that are written in turns, each with a number and a checksum: the valid one with the higher
//! number counts, so that a crash while one is written leaves the other. Ranges that are too many for a slot are in a
//! map, a file beside the spool file, of which the slot has the digest.

use haul_storage::{FileId, Identity, Range, RangeSet, RelPath, Timestamp};
use serde::{Deserialize, Serialize};

use super::conflict::{ConflictCopy, Reason};
use super::sent::{Attempt, Sent};

/// Length of a slot, and of the head: the content of the file begins after it.
const SLOT: usize = 64 << 10;
pub(super) const HEAD: u64 = 2 * SLOT as u64;

const MAGIC: &[u8; 8] = b"haulspl1";
/// Magic, number, length, checksum.
const FRAME: usize = 8 + 8 + 8 + 32;

/// Most ranges of [`Record::present`] in a slot: more may not fit.
const MOST_RANGES: usize = 500;
/// Bytes of a range in a map.
const RANGE: usize = 16;

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
    /// Uploads that may have reached the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) attempts: Vec<RecordedAttempt>,
    /// It is a copy, of which the user does not know yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) copy: Option<RecordedCopy>,
}

/// An [`Attempt`] to upload it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedAttempt {
    /// The path below the mounted directory, unless it is that of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<Vec<u8>>,
    size: u64,
    modified: Option<(i64, u32)>,
    digest: Option<String>,
    has_part: bool,
}

/// A [`ConflictCopy`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecordedCopy {
    /// The name of the original, which is in the same directory.
    name: Vec<u8>,
    reason: Reason,
}

/// Ranges of a file, as start and end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Present {
    end: u64,
    /// Left out if the map has them: versions of haul without maps take no record without this field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<(u64, u64)>,
    /// The other bytes can no longer be fetched.
    #[serde(default, skip_serializing_if = "is_false")]
    is_lost: bool,
    /// The digest of the map that has the ranges, in a slot for which they are too many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    map: Option<String>,
}

/// A slot as it is written.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) bytes: Vec<u8>,
    /// Its offset in the file.
    pub(super) offset: u64,
    /// Its map, which has to be durable before the slot is.
    pub(super) map: Option<Map>,
}

/// Ranges that are too many for a slot.
#[derive(Debug, Clone)]
pub(super) struct Map {
    /// The digest of `bytes`, in hexadecimal.
    pub(super) digest: String,
    pub(super) bytes: Vec<u8>,
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

impl RecordedAttempt {
    /// The record of an attempt, in the record of a file at `path`; both are below `root`.
    pub(super) fn of(attempt: &Attempt, path: &RelPath, root: &RelPath) -> Option<Self> {
        let other =
            if attempt.path == *path { None } else { Some(attempt.path.strip_prefix(root)?) };
        let Sent { size, modified, digest } = &attempt.sent;
        Some(Self {
            path: other.map(<[u8]>::to_vec),
            size: *size,
            modified: modified.map(|time| (time.seconds, time.nanos)),
            digest: digest.map(|digest| digest.to_hex().to_string()),
            has_part: attempt.has_part,
        })
    }

    /// The attempt, in the record of a file at `path`.
    pub(super) fn attempt(&self, path: &RelPath, root: &RelPath) -> Option<Attempt> {
        let path = match &self.path {
            Some(other) => root.join_path(&RelPath::parse(other).ok()?),
            None => path.clone(),
        };
        let sent = Sent {
            size: self.size,
            modified: self.modified.map(|(seconds, nanos)| Timestamp { seconds, nanos }),
            digest: self.digest.as_ref().and_then(|digest| blake3::Hash::from_hex(digest).ok()),
        };
        Some(Attempt { path, sent, has_part: self.has_part })
    }

    /// Bytes of a path of its own.
    pub(super) fn path_length(&self) -> usize {
        self.path.as_ref().map_or(0, Vec::len)
    }
}

impl RecordedCopy {
    pub(super) fn of(copy: &ConflictCopy) -> Self {
        Self { name: copy.original.name().to_vec(), reason: copy.reason }
    }

    /// The copy that is at `path`.
    pub(super) fn copy(&self, path: &RelPath) -> Option<ConflictCopy> {
        let original = path.with_name(self.name.clone()).ok()?;
        Some(ConflictCopy { original, reason: self.reason })
    }
}

impl Present {
    /// The ranges of `present`. In the gaps before `end`, the content is that of the base.
    pub(super) fn of(present: &RangeSet, end: u64, is_lost: bool) -> Self {
        let ranges = present.iter().map(|range| (range.start(), range.end())).collect();
        Self { end, ranges, is_lost, map: None }
    }

    /// Whether the content in the gaps can no longer be fetched.
    pub(super) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Before this offset, bytes that are not in [`Present::ranges`] are those of the base.
    pub(super) const fn end(&self) -> u64 {
        self.end
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

    /// It would replace a version, and was not closed since its content has changed.
    pub(super) const fn is_left_open(&self) -> bool {
        self.base.is_some() && !self.closed
    }

    /// The content is about to change, or has changed, since it was recorded as complete.
    pub(super) fn reopen(&mut self) {
        (self.closed, self.digest) = (false, None);
        self.generation += 1;
    }

    /// The slot with this number; `None` if the record is too long for one.
    pub(super) fn slot(&self, number: u64) -> Option<Slot> {
        let map = self.map();
        let text = match (&self.present, &map) {
            (Some(present), Some(map)) => {
                let digest = Some(map.digest.clone());
                let present = Present { ranges: Vec::new(), map: digest, ..present.clone() };
                serde_json::to_vec(&Self { present: Some(present), ..self.clone() })
            }
            _ => serde_json::to_vec(self),
        };
        let text = text.ok()?;
        let length = u64::try_from(text.len()).ok()?;
        if FRAME + text.len() > SLOT {
            return None;
        }
        let mut bytes = Vec::with_capacity(FRAME + text.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(checksum(number, &text).as_bytes());
        bytes.extend_from_slice(&text);
        Some(Slot { bytes, offset: (number % 2) * SLOT as u64, map })
    }

    /// The map of its ranges, if they are too many for a slot.
    pub(super) fn map(&self) -> Option<Map> {
        let present = self.present.as_ref()?;
        let is_long = present.ranges.len() > MOST_RANGES;
        let range = |(start, end): &(u64, u64)| [start.to_le_bytes(), end.to_le_bytes()].concat();
        is_long.then(|| {
            let bytes: Vec<_> = present.ranges.iter().flat_map(range).collect();
            Map { digest: blake3::hash(&bytes).to_hex().to_string(), bytes }
        })
    }

    /// The latest record in a head, and its number; `None` if there is none. A record whose map is missing or damaged
    /// does not count. `map` reads the map of a digest.
    pub(super) fn read(head: &[u8], map: impl Fn(&str) -> Option<Vec<u8>>) -> Option<(Self, u64)> {
        let slots = head.chunks(SLOT).filter_map(parsed);
        let slots = slots.filter_map(|(record, number)| Some((record.with_map(&map)?, number)));
        slots.max_by_key(|(_, number)| *number)
    }

    /// The record in a head, of which the ranges may be missing.
    pub(super) fn without_map(head: &[u8]) -> Option<Self> {
        let slots = head.chunks(SLOT).filter_map(parsed);
        slots.max_by_key(|(_, number)| *number).map(|(record, _)| record)
    }

    /// Takes its ranges from the map, if they are there; `None` if the map is missing or damaged.
    fn with_map(mut self, map: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Self> {
        if let Some(present) = &mut self.present
            && let Some(digest) = present.map.take()
        {
            let map = map(&digest).filter(|map| *blake3::hash(map).to_hex() == *digest)?;
            present.ranges = ranges_of(&map);
        }
        Some(self)
    }

    /// Whether a head from which [`Record::read`] gets no record has something of another version of haul, or a record
    /// whose map is missing or damaged.
    pub(super) fn is_of_other(head: &[u8]) -> bool {
        let is_other = |magic: &[u8]| magic != MAGIC && magic.iter().any(|byte| *byte != 0);
        let mut slots = head.chunks(SLOT);
        slots.any(|slot| framed(slot).is_some() || slot.get(..MAGIC.len()).is_some_and(is_other))
    }
}

/// For `skip_serializing_if`.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
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

/// The ranges in a map: start and end of each, little-endian.
fn ranges_of(map: &[u8]) -> Vec<(u64, u64)> {
    let range = |bytes: &[u8]| {
        let (start, end) = bytes.split_first_chunk()?;
        Some((u64::from_le_bytes(*start), u64::from_le_bytes(end.try_into().ok()?)))
    };
    map.chunks(RANGE).filter_map(range).collect()
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
            present: Some(Present::of(&ranges, 9, false)),
            mode: Some(0o640),
            modified: (1, 2),
            generation,
            closed: true,
            digest: None,
            failure: Some("no".to_owned()),
            attempts: Vec::new(),
            copy: None,
        }
    }

    fn head(slots: &[&Slot]) -> Vec<u8> {
        let mut head = vec![0; HEAD as usize];
        for slot in slots {
            head[slot.offset as usize..][..slot.bytes.len()].copy_from_slice(&slot.bytes);
        }
        head
    }

    fn read(head: &[u8]) -> Option<(Record, u64)> {
        Record::read(head, |_| None)
    }

    #[test]
    fn the_later_record_counts_and_a_torn_one_does_not() {
        let (old, new) = (record(1).slot(4).unwrap(), record(2).slot(5).unwrap());
        assert_ne!(old.offset, new.offset);
        let mut head = head(&[&old, &new]);
        assert_eq!(read(&head), Some((record(2), 5)));
        head[new.offset as usize + FRAME + 3] ^= 1;
        assert_eq!(read(&head), Some((record(1), 4)));
        assert_eq!(read(&[0; 100]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn a_version_is_the_same_after_it_was_recorded() {
        let identity = Identity::from(record(1).base.as_ref().unwrap());
        assert_eq!(Version::from(&identity), record(1).base.unwrap());
        assert_eq!(identity.tag.as_deref(), Some("\"x\""));
    }

    /// A record with a path and ranges that are as long as possible.
    fn long(count: usize) -> Record {
        let mut ranges = RangeSet::new();
        let far = u64::MAX - (1 << 20);
        (0..count as u64).for_each(|at| ranges.insert(Range::new(far + 2 * at, 1)));
        let present = Some(Present::of(&ranges, u64::MAX, true));
        Record { path: vec![255; 4096], present, ..record(1) }
    }

    #[test]
    fn the_most_ranges_fit_into_a_slot() {
        assert!(long(MOST_RANGES).slot(1).unwrap().map.is_none());
    }

    /// Formerly there was no record of them.
    #[test]
    fn more_ranges_are_in_a_map() {
        let many = long(100_000);
        let slot = many.slot(3).unwrap();
        let map = slot.map.clone().unwrap();
        let older = record(1).slot(2).unwrap();
        let head = head(&[&older, &slot]);
        let found = Record::read(&head, |digest| (digest == map.digest).then(|| map.bytes.clone()));
        assert_eq!(found, Some((many, 3)));
        // A map that was not written as a whole.
        assert_eq!(Record::read(&head, |_| Some(vec![0; RANGE])), Some((record(1), 2)));
        assert_eq!(read(&head), Some((record(1), 2)));
        assert!(Record::is_of_other(&head));
    }
}
