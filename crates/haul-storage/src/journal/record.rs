//! The journal's format, version 1.
//!
//! A journal is a sequence of records; each is its payload's length and CRC-32 (both 32 bits,
//! little-endian) and the payload, whose first byte is the type:
//!
//! | type | payload after the type byte |
//! |---|---|
//! | 0 header | `haul journal`, version (16 bits), boot and mount, source identity (both as length and bytes) |
//! | 1 range | offset and length (64 bits each) that have reached the part file |
//! | 2 synced | nothing: everything above is durable |
//!
//! The header comes first. A source identity that is too long for it is stored as its beginning and its
//! SHA-256. Reading stops at the first record that is truncated or has a wrong CRC:
//! whatever follows a torn write is meaningless.

use crate::{Digest, DigestKind, Range};

const MAGIC: &[u8] = b"haul journal";
/// The version that this program writes, and the only one it resumes.
pub const VERSION: u16 = 1;
/// Length of the frame before a payload, in bytes: its length and CRC-32.
const FRAME: usize = 8;
/// Maximum length of a payload in bytes. A longer one is damage, and no memory is allocated for it.
const PAYLOAD_MAX: usize = 16 << 10;
/// Maximum length of a source identity that is stored unchanged, in bytes: the rest of a header takes less than 1 KiB.
const SOURCE_MAX: usize = 15 << 10;
/// Number of characters of a longer one that are stored, for messages.
const SOURCE_SHOWN: usize = 1 << 10;

/// The contents of the first record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Identifies the boot and the mount; unsynced data counts only under the same ones.
    pub boot: Vec<u8>,
    /// The source and its version.
    pub source: Vec<u8>,
}

impl Header {
    /// The header of a journal of `source`, such that its record can be decoded: an escaped path or a URL
    /// may be longer than a record.
    pub fn new(boot: Vec<u8>, source: String) -> Self {
        if source.len() <= SOURCE_MAX {
            return Self { boot, source: source.into_bytes() };
        }
        let digest = Digest::of(DigestKind::Sha256, source.as_bytes());
        let start: String = source.chars().take(SOURCE_SHOWN).collect();
        Self { boot, source: format!("{start}\u{2026} (SHA-256 {digest})").into_bytes() }
    }
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// Identifies the source, boot and mount.
    Header(Header),
    /// The header of an unknown version.
    OtherVersion(u16),
    /// Bytes that have reached the part file.
    Range(Range),
    /// Everything above is durable.
    Synced,
}

impl Record {
    /// Appends the record with its frame to `out`. A header must be one of [`Header::new`], or have been
    /// decoded, to be decoded again.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(17);
        match self {
            Self::Header(header) => {
                payload.push(0);
                payload.extend_from_slice(MAGIC);
                payload.extend_from_slice(&VERSION.to_le_bytes());
                push_bytes(&mut payload, &header.boot);
                push_bytes(&mut payload, &header.source);
            }
            Self::OtherVersion(version) => {
                payload.push(0);
                payload.extend_from_slice(MAGIC);
                payload.extend_from_slice(&version.to_le_bytes());
            }
            Self::Range(range) => {
                payload.push(1);
                payload.extend_from_slice(&range.start().to_le_bytes());
                payload.extend_from_slice(&range.len().to_le_bytes());
            }
            Self::Synced => payload.push(2),
        }
        debug_assert!(payload.len() <= PAYLOAD_MAX, "a record of {} bytes", payload.len());
        out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        out.extend_from_slice(&payload);
    }

    /// The first record of `bytes` and its length with its frame; `None` if it is truncated, damaged,
    /// or of an unknown type.
    pub fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
        let crc = u32::from_le_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
        if length == 0 || length > PAYLOAD_MAX {
            return None;
        }
        let payload = bytes.get(FRAME..FRAME + length)?;
        if crc32fast::hash(payload) != crc {
            return None;
        }
        Some((Self::decode_payload(payload)?, FRAME + length))
    }

    fn decode_payload(payload: &[u8]) -> Option<Self> {
        let (kind, mut rest) = payload.split_first()?;
        match kind {
            0 => {
                rest = rest.strip_prefix(MAGIC)?;
                let version = u16::from_le_bytes(*rest.first_chunk::<2>()?);
                if version != VERSION {
                    return Some(Self::OtherVersion(version));
                }
                let (boot, rest) = take_bytes(&rest[2..])?;
                let (source, rest) = take_bytes(rest)?;
                let header = Header { boot: boot.to_vec(), source: source.to_vec() };
                rest.is_empty().then_some(Self::Header(header))
            }
            1 => {
                let start = u64::from_le_bytes(*rest.first_chunk::<8>()?);
                let length = u64::from_le_bytes(rest.get(8..)?.try_into().ok()?);
                start.checked_add(length)?;
                Some(Self::Range(Range::new(start, length)))
            }
            2 => rest.is_empty().then_some(Self::Synced),
            _ => None,
        }
    }
}

fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take_bytes(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_le_bytes(*bytes.first_chunk::<4>()?) as usize;
    bytes[4..].split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        prop_oneof![
            (
                proptest::collection::vec(any::<u8>(), 0..60),
                proptest::collection::vec(any::<u8>(), 0..300)
            )
                .prop_map(|(boot, source)| Record::Header(Header { boot, source })),
            (0u64..u64::MAX / 2, 0u64..u64::MAX / 2)
                .prop_map(|(start, length)| Record::Range(Range::new(start, length))),
            Just(Record::Synced),
            (2u16..).prop_map(Record::OtherVersion),
        ]
    }

    proptest! {
        #[test]
        fn every_record_survives_encoding_and_decoding(record in any_record()) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            prop_assert_eq!(Record::decode(&bytes), Some((record, bytes.len())));
        }

        #[test]
        fn a_truncated_record_is_not_decoded(record in any_record(), keep in 0.0..1.0f64) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            bytes.truncate((bytes.len() as f64 * keep) as usize);
            prop_assert_eq!(Record::decode(&bytes), None);
        }

        #[test]
        fn a_flipped_bit_changes_the_result(record in any_record(), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert_ne!(Record::decode(&bytes).map(|(record, _)| record), Some(record));
        }

        #[test]
        fn no_input_makes_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            drop(Record::decode(&bytes));
        }
    }
}
