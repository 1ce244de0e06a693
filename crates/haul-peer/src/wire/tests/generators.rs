//! Arbitrary values of `haul_storage`, within the limits of the protocol.

use bytes::Bytes;
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Digest, DigestKind, Entry, EntryKind, Error,
    ErrorKind, FileId, Held, Identity, LinkKind, Medium, Metadata, Range, RangeSet, RelPath, Retry,
    SmallFile, SourceVersion, Space, SpecialKind, StoredTimes, Timestamp, UNKNOWN_SIZE, Volume,
    Whole, Writes,
};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

pub(super) fn times() -> impl Strategy<Value = Timestamp> {
    let seconds = prop_oneof![any::<i64>(), -5i64..5, Just(i64::MIN), Just(i64::MAX)];
    (seconds, 0u32..1_000_000_000).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

pub(super) fn paths() -> impl Strategy<Value = RelPath> {
    let name = vec(any::<u8>(), 1..12).prop_map(|mut name| {
        name.iter_mut()
            .filter(|byte| matches!(byte, 0 | b'/' | b'.'))
            .for_each(|byte| *byte = b'x');
        name
    });
    vec(name, 0..4).prop_map(|names| RelPath::parse(names.join(&b'/')).unwrap())
}

pub(super) fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0u64..3, Just(UNKNOWN_SIZE)]
}

fn ids() -> impl Strategy<Value = FileId> {
    any::<(u64, u64)>().prop_map(|(device, inode)| FileId { device, inode })
}

pub(super) fn digest_kinds() -> impl Strategy<Value = DigestKind> {
    prop_oneof![Just(DigestKind::Blake3), Just(DigestKind::Sha256)]
}

pub(super) fn digests() -> impl Strategy<Value = Digest> {
    (digest_kinds(), any::<[u8; 32]>()).prop_map(|(kind, bytes)| Digest { kind, bytes })
}

fn kinds() -> impl Strategy<Value = EntryKind> {
    let special = |kind| Just(EntryKind::Special(kind));
    prop_oneof![
        Just(EntryKind::File),
        Just(EntryKind::Directory),
        vec(any::<u8>(), 0..40).prop_map(EntryKind::Symlink),
        special(SpecialKind::Fifo),
        special(SpecialKind::Socket),
        special(SpecialKind::BlockDevice),
        special(SpecialKind::CharDevice),
        special(SpecialKind::Unknown),
    ]
}

pub(super) fn entries() -> impl Strategy<Value = Entry> {
    let first = (paths(), kinds(), sizes(), of(times()), of(0u32..0o10000));
    let rest =
        (of(any::<(u32, u32)>()), of(ids()), any::<u64>(), of(any::<String>()), of(digests()));
    (first, rest).prop_map(
        |((path, kind, size, modified, mode), (owner, id, links, tag, digest))| {
            let size = if kind == EntryKind::File { size } else { 0 };
            let mut entry = Entry::new(path, kind, size);
            entry.modified = modified;
            entry.mode = mode;
            entry.owner = owner;
            entry.id = id;
            entry.links = links;
            entry.tag = tag;
            entry.digest = digest;
            entry
        },
    )
}

pub(super) fn identities() -> impl Strategy<Value = Identity> {
    (sizes(), of(times()), of(ids()), of(any::<String>()))
        .prop_map(|(size, modified, id, tag)| Identity { size, modified, id, tag })
}

pub(super) fn metadata() -> impl Strategy<Value = Metadata> {
    let xattr = (vec(1u8.., 1..10), vec(any::<u8>(), 0..10));
    (of(0u32..0o10000), of(times()), of(any::<(u32, u32)>()), of(vec(xattr, 0..4)))
        .prop_map(|(mode, modified, owner, xattrs)| Metadata { mode, modified, owner, xattrs })
}

pub(super) fn errors() -> impl Strategy<Value = Error> {
    let kind = prop::sample::select(vec![
        ErrorKind::NotFound,
        ErrorKind::PermissionDenied,
        ErrorKind::AlreadyExists,
        ErrorKind::IsADirectory,
        ErrorKind::NotADirectory,
        ErrorKind::NotEmpty,
        ErrorKind::NoSpace,
        ErrorKind::Changed,
        ErrorKind::Corrupt,
        ErrorKind::Unsupported,
        ErrorKind::Unauthenticated,
        ErrorKind::Unreachable,
        ErrorKind::Busy,
        ErrorKind::Protocol,
        ErrorKind::Interrupted,
        ErrorKind::InvalidInput,
        ErrorKind::Io,
        ErrorKind::Other,
    ]);
    let retry = prop_oneof![Just(Retry::Never), Just(Retry::Later), Just(Retry::FromStart)];
    let operation = prop::sample::select(vec!["open", "read", "create directory", "rename"]);
    (kind, retry, operation, "\\PC{1,40}", of("[a-z ]{1,40}")).prop_map(
        |(kind, retry, operation, cause, hint)| {
            let error = Error::new(kind, operation).because(cause).with_retry(retry);
            match hint {
                Some(hint) => error.hinting(hint),
                None => error,
            }
        },
    )
}

pub(super) fn ranges() -> impl Strategy<Value = Range> {
    prop_oneof![
        (any::<u64>(), any::<u64>()).prop_map(|(start, end)| Range::between(start, end)),
        (0u64..100, 0u64..100).prop_map(|(start, length)| Range::new(start, length)),
    ]
}

pub(super) fn range_sets() -> impl Strategy<Value = RangeSet> {
    vec(ranges(), 0..20).prop_map(|ranges| {
        let mut set = RangeSet::new();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    })
}

pub(super) fn held() -> impl Strategy<Value = Held> {
    prop_oneof![
        Just(Held::Unrecorded),
        range_sets().prop_map(Held::Ranges),
        any::<String>().prop_map(Held::StartedOver),
    ]
}

pub(super) fn create_options() -> impl Strategy<Value = CreateOptions> {
    let source = (any::<String>(), identities())
        .prop_map(|(name, identity)| SourceVersion { name, identity });
    (of(source), any::<bool>(), of(any::<u64>()), any::<bool>()).prop_map(
        |(source, resume, size, sparse)| CreateOptions {
            source,
            resume,
            size,
            sparse,
            ..<_>::default()
        },
    )
}

pub(super) fn commit_options() -> impl Strategy<Value = CommitOptions> {
    (metadata(), any::<bool>(), any::<bool>(), of(identities())).prop_map(
        |(metadata, replace, sync, expected)| CommitOptions { metadata, replace, sync, expected },
    )
}

pub(super) fn links() -> impl Strategy<Value = LinkKind> {
    prop_oneof![
        vec(any::<u8>(), 0..40).prop_map(LinkKind::Symbolic),
        paths().prop_map(LinkKind::Hard),
    ]
}

fn contents() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..100).prop_map(Bytes::from)
}

pub(super) fn wholes() -> impl Strategy<Value = Whole> {
    (contents(), identities(), metadata())
        .prop_map(|(bytes, identity, metadata)| Whole::new(bytes, identity, metadata))
}

pub(super) fn small_files() -> impl Strategy<Value = SmallFile> {
    (paths(), contents(), commit_options())
        .prop_map(|(path, bytes, options)| SmallFile::new(path, bytes, options))
}

pub(super) fn spaces() -> impl Strategy<Value = Space> {
    let volume = (any::<String>(), any::<u64>()).prop_map(|(host, number)| Volume { host, number });
    (any::<(u64, u64, u64)>(), of(volume), any::<bool>(), any::<bool>()).prop_map(
        |((free, most, block), volume, compact, shares)| Space {
            free,
            most,
            block,
            volume,
            compact,
            shares,
        },
    )
}

fn stored_times() -> impl Strategy<Value = StoredTimes> {
    (1u64.., times(), times()).prop_map(|(step_ns, one, other)| StoredTimes {
        step_ns,
        earliest: one.min(other),
        latest: one.max(other),
    })
}

pub(super) fn capabilities() -> impl Strategy<Value = Capabilities> {
    let numbers = (any::<u64>(), of(1usize..), of(any::<u64>()), any::<u64>());
    let digests = prop::sample::subsequence(vec![DigestKind::Blake3, DigestKind::Sha256], 0..=2);
    (any::<[bool; 20]>(), numbers, digests, stored_times()).prop_map(
        |(bits, (write_bytes, max_lanes, max_file_size, whole_limit), digests, stored_times)| {
            let medium = if bits[0] { Medium::Disk } else { Medium::Link };
            Capabilities::least(medium).with(|can| {
                can.writes = if bits[1] { Writes::AnyOrder } else { Writes::InOrder };
                for (field, bit) in [
                    &mut can.ranged_reads,
                    &mut can.rename,
                    &mut can.server_copy,
                    &mut can.symlinks,
                    &mut can.hard_links,
                    &mut can.sync,
                    &mut can.resume,
                    &mut can.lock,
                    &mut can.times,
                    &mut can.mode,
                    &mut can.owner,
                    &mut can.xattrs,
                    &mut can.long_reads,
                    &mut can.pipelined_reads,
                    &mut can.pipelined_writes,
                    &mut can.bounded_reads,
                    &mut can.complete_lists,
                    &mut can.conditional_commits,
                ]
                .into_iter()
                .zip(&bits[2..])
                {
                    *field = *bit;
                }
                can.stored_times = stored_times;
                can.digests = digests;
                can.write_bytes = write_bytes;
                can.max_lanes = max_lanes;
                can.max_file_size = max_file_size;
                can.whole_limit = whole_limit;
            })
        },
    )
}
