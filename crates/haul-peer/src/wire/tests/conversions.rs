//! Every value of `haul_storage` is the same after it was encoded and decoded.

use std::fmt::Debug;

use bytes::Bytes;
use haul_storage::{
    Capabilities, CommitOptions, CreateOptions, Entry, Error, Held, Identity, LinkKind, Medium,
    Metadata, Range, RangeSet, RelPath, SmallFile, Space, Timestamp, Whole,
};
use proptest::prelude::*;

use super::generators as some;
use crate::wire::messages::{self, code};
use crate::wire::{WireError, convert};

/// The message, after it was encoded and decoded.
fn sent<M: prost::Message + Default + PartialEq + Debug>(message: &M) -> M {
    let decoded = M::decode(Bytes::from(message.encode_to_vec())).unwrap();
    assert_eq!(decoded, *message);
    decoded
}

fn round_trip<M, T>(value: &T)
where
    M: prost::Message + Default + PartialEq + Debug + for<'a> From<&'a T>,
    T: TryFrom<M, Error = WireError> + PartialEq + Debug,
{
    assert_eq!(T::try_from(sent(&M::from(value))).as_ref(), Ok(value));
}

proptest! {
    #[test]
    fn entries_survive(entry in some::entries()) {
        round_trip::<messages::Entry, Entry>(&entry);
        let outcome = sent(&convert::entry_outcome(&Ok(entry.clone())));
        prop_assert_eq!(convert::entry_result(outcome).unwrap(), entry);
    }

    #[test]
    fn identities_survive(identity in some::identities()) {
        round_trip::<messages::Identity, Identity>(&identity);
    }

    #[test]
    fn metadata_survives(metadata in some::metadata()) {
        round_trip::<messages::Metadata, Metadata>(&metadata);
    }

    #[test]
    fn times_survive(time in some::times()) {
        let message = sent(&messages::Time::from(time));
        prop_assert_eq!(Timestamp::try_from(message), Ok(time));
    }

    #[test]
    fn digest_kinds_survive(kind in some::digest_kinds()) {
        let number = code::DigestKind::from(kind).number();
        prop_assert_eq!(convert::digest_kind(number), Ok(kind));
    }

    #[test]
    fn errors_survive(error in some::errors()) {
        let again = Error::from(sent(&messages::Error::from(&error)));
        prop_assert_eq!((again.kind(), again.retry()), (error.kind(), error.retry()));
        prop_assert_eq!(again.hint(), error.hint());
        prop_assert_eq!(again.to_string(), error.to_string());
        let outcome = sent(&convert::entry_outcome(&Err(error.again())));
        prop_assert_eq!(convert::entry_result(outcome).unwrap_err().to_string(), error.to_string());
    }

    #[test]
    fn ranges_survive(range in some::ranges(), set in some::range_sets(), held in some::held()) {
        let message = sent(&messages::Range::from(range));
        prop_assert_eq!(Range::try_from(message), Ok(range));
        round_trip::<messages::Ranges, RangeSet>(&set);
        if !matches!(&held, Held::StartedOver(reason) if reason.len() > convert::TEXT_MAX) {
            round_trip::<messages::Held, Held>(&held);
        }
    }

    #[test]
    fn options_survive(create in some::create_options(), commit in some::commit_options()) {
        round_trip::<messages::CreateOptions, CreateOptions>(&create);
        round_trip::<messages::CommitOptions, CommitOptions>(&commit);
    }

    #[test]
    fn links_survive(link in some::links()) {
        round_trip::<messages::Link, LinkKind>(&link);
    }

    #[test]
    fn small_files_survive(whole in some::wholes(), file in some::small_files()) {
        let again = convert::whole_result(sent(&convert::whole_outcome(&Ok(whole.clone()))));
        let Whole { bytes, identity, metadata, .. } = again.unwrap();
        prop_assert_eq!((bytes, identity, metadata), (whole.bytes, whole.identity, whole.metadata));
        let again = SmallFile::try_from(sent(&messages::WriteWhole::from(&file))).unwrap();
        prop_assert_eq!((again.path, again.bytes), (file.path, file.bytes));
        prop_assert_eq!(again.options, file.options);
    }

    #[test]
    fn spaces_survive(space in some::spaces()) {
        round_trip::<messages::Space, Space>(&space);
    }

    #[test]
    fn capabilities_survive(can in some::capabilities()) {
        let message = sent(&messages::Capabilities::from(&can));
        prop_assert_eq!(convert::capabilities(message), Ok(can));
    }

    #[test]
    fn paths_survive(paths in prop::collection::vec(some::paths(), 0..5)) {
        let bytes: Vec<_> = paths.iter().map(convert::path_bytes).collect();
        prop_assert_eq!(convert::paths(&bytes), Ok(paths));
    }
}

#[test]
fn an_empty_message_is_the_least_capable_share() {
    let least = convert::capabilities(messages::Capabilities::default());
    assert_eq!(least, Ok(Capabilities::least(Medium::Link)));
}

#[test]
fn capabilities_of_later_versions_are_the_least() {
    let message = messages::Capabilities {
        medium: 9,
        writes: 9,
        digests: vec![9, 2, 2, -1],
        ..Default::default()
    };
    let can = convert::capabilities(message).unwrap();
    let expected = Capabilities::least(Medium::Link);
    assert_eq!((can.medium, can.writes), (expected.medium, expected.writes));
    assert_eq!(can.digests, [haul_storage::DigestKind::Sha256]);
}

#[test]
fn the_content_of_a_small_file_is_not_copied() {
    let data = Bytes::from(vec![7; 1000]);
    let write = messages::WriteWhole { data, ..Default::default() };
    let bytes = Bytes::from(prost::Message::encode_to_vec(&write));
    let write: messages::WriteWhole = prost::Message::decode(bytes.clone()).unwrap();
    assert!(bytes.as_ptr_range().contains(&write.data.as_ptr()));
}

#[test]
fn ranges_beyond_the_maximum_are_left_out() {
    let mut set = RangeSet::new();
    for at in 0..convert::RANGES_MAX as u64 + 5 {
        set.insert(Range::new(3 * at, 1));
    }
    let sent = RangeSet::try_from(messages::Ranges::from(&set)).unwrap();
    assert_eq!(sent.total(), convert::RANGES_MAX as u64);
    assert_eq!(sent.prefix(), 1);
    // With the longest numbers, the message is within its limit.
    let longest = messages::Ranges { steps: vec![u64::MAX; 2 * convert::RANGES_MAX] };
    let body = messages::to_server::Body::Record(messages::Record {
        handle: u32::MAX,
        ranges: Some(longest),
    });
    let message = messages::ToServer { id: 1, body: Some(body), again: false };
    assert!(crate::wire::message_frame(&message).is_ok());
}

#[test]
fn tags_and_targets_beyond_the_maximum_are_not_sent() {
    let path = RelPath::parse("a").unwrap();
    let mut entry = Entry::new(path.clone(), haul_storage::EntryKind::File, 1);
    entry.tag = Some("x".repeat(convert::TAG_MAX + 1));
    assert_eq!(messages::Entry::from(&entry).tag, None);
    let target = vec![b'x'; convert::TARGET_MAX + 1];
    let link = Entry::new(path, haul_storage::EntryKind::Symlink(target), 0);
    let error = convert::entry_result(convert::entry_outcome(&Ok(link))).unwrap_err();
    assert_eq!(error.to_string(), "cannot list (a: the target of the link is too long)");
}

#[test]
fn the_debug_output_of_a_welcome_has_no_secret() {
    let token = Bytes::from_static(b"token of the session");
    let name = "photos".to_owned();
    let welcome = messages::Welcome { token, name, ..Default::default() };
    let body = Some(messages::to_client::Body::Welcome(welcome));
    let shown = format!("{:?}", messages::ToClient { id: 0, body });
    assert!(shown.contains("photos") && !shown.contains("token of"), "{shown}");
}
