//! Invalid and hostile messages are refused, with errors that are safe to print.

use bytes::Bytes;
use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, Held, Identity, LinkKind, Metadata, Range, RangeSet, Retry,
    SourceVersion, Space, SpecialKind, Timestamp,
};
use proptest::prelude::*;

use crate::wire::messages::{self, ToClient, ToServer, code, entry_outcome::Outcome, to_server};
use crate::wire::{ITEMS_MAX, WireError, convert, decode};

fn entry() -> messages::Entry {
    messages::Entry {
        path: Bytes::from_static(b"a/b"),
        kind: code::EntryKind::File.number(),
        ..Default::default()
    }
}

#[test]
fn entries_with_invalid_fields_are_refused() {
    let time = |nanos| Some(messages::Time { seconds: 0, nanos });
    let link = code::EntryKind::Symlink.number();
    let long = Bytes::from(vec![b'x'; convert::PATH_MAX + 1]);
    let digest = messages::Digest { kind: 1, bytes: Bytes::from_static(&[1; 31]) };
    let tag = Some("x".repeat(convert::TAG_MAX + 1));
    for (entry, expected) in [
        (messages::Entry { kind: 0, ..entry() }, WireError::Missing("kind of entry")),
        (messages::Entry { kind: -1, ..entry() }, WireError::Missing("kind of entry")),
        (messages::Entry { mode: Some(0o10000), ..entry() }, WireError::Invalid("mode")),
        (messages::Entry { modified: time(1_000_000_000), ..entry() }, WireError::Invalid("time")),
        (
            messages::Entry { kind: link, target: long.clone(), ..entry() },
            WireError::LongField("link target"),
        ),
        (messages::Entry { path: long, ..entry() }, WireError::LongField("path")),
        (messages::Entry { digest: Some(digest), ..entry() }, WireError::Invalid("digest")),
        (messages::Entry { tag, ..entry() }, WireError::LongField("tag")),
    ] {
        assert_eq!(Entry::try_from(entry), Err(expected));
    }
}

#[test]
fn a_path_that_leaves_the_root_becomes_an_error_that_names_it() {
    for (path, shown) in [
        (&b"../x"[..], "../x: a path has a component '.' or '..'"),
        (&b"/etc"[..], "/etc: a path has an empty component"),
        (&b"a//b"[..], "a//b: a path has an empty component"),
        (&b"\x1b\0"[..], "\\033\\000: a path has a NUL byte in it"),
    ] {
        let entry = messages::Entry { path: Bytes::copy_from_slice(path), ..entry() };
        let outcome = messages::EntryOutcome { outcome: Some(Outcome::Entry(Box::new(entry))) };
        let error = convert::entry_result(outcome).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert_eq!(error.to_string(), format!("cannot list ({shown})"));
    }
    assert!(convert::paths(&[Bytes::from_static(b"a"), Bytes::from_static(b"..")]).is_err());
}

#[test]
fn unknown_or_missing_values_become_general_ones_or_errors() {
    let later = messages::Entry { kind: 99, ..entry() };
    let kind = Entry::try_from(later).unwrap().kind;
    assert_eq!(kind, EntryKind::Special(SpecialKind::Unknown));
    let digest = Some(messages::Digest { kind: 99, bytes: Bytes::from_static(&[1; 64]) });
    assert_eq!(Entry::try_from(messages::Entry { digest, ..entry() }).unwrap().digest, None);
    let error = messages::Error {
        kind: 99,
        retry: 99,
        operation: "teleport".to_owned(),
        ..Default::default()
    };
    let error = Error::from(error);
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Other, Retry::Never));
    assert_eq!(error.to_string(), "cannot complete the request (failed)");
    assert_eq!(Held::try_from(messages::Held::default()), Ok(Held::Unrecorded));
    assert_eq!(convert::digest_kind(99), Err(WireError::Invalid("kind of digest")));
    let link = LinkKind::try_from(messages::Link::default());
    assert_eq!(link, Err(WireError::Missing("kind of link")));
    let nothing = convert::entry_result(messages::EntryOutcome::default()).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::Protocol);
}

#[test]
fn error_texts_are_truncated_and_shown_without_control_characters() {
    let error = Error::from(messages::Error {
        cause: "ä\x1b".repeat(5000),
        hint: Some("run \x1b[2J this\n".to_owned()),
        ..Default::default()
    });
    assert!(error.cause().len() <= convert::TEXT_MAX && error.cause().ends_with('…'));
    assert!(!error.to_string().contains('\x1b'));
    assert_eq!(error.hint(), Some("run \\033[2J this\\012"));
    for length in convert::TEXT_MAX - 3..convert::TEXT_MAX + 3 {
        let clipped = convert::clipped(&"é".repeat(length));
        assert!(clipped.len() <= convert::TEXT_MAX);
    }
}

#[test]
fn ranges_that_overflow_are_refused() {
    let range = messages::Range { start: u64::MAX, length: 1 };
    assert_eq!(Range::try_from(range), Err(WireError::Invalid("range")));
    for steps in [vec![1], vec![u64::MAX, 1], vec![5, u64::MAX], vec![0, 9, u64::MAX, 0]] {
        let set = RangeSet::try_from(messages::Ranges { steps });
        assert_eq!(set, Err(WireError::Invalid("set of ranges")));
    }
    let steps = vec![1; 2 * convert::RANGES_MAX + 2];
    assert_eq!(RangeSet::try_from(messages::Ranges { steps }), Err(WireError::TooMany));
}

#[test]
fn extended_attributes_are_bounded() {
    let metadata = |xattrs: Vec<(usize, usize)>| {
        let xattr = |(name, value)| messages::Xattr {
            name: vec![b'x'; name].into(),
            value: vec![0; value].into(),
        };
        let xattrs = messages::Xattrs { xattrs: xattrs.into_iter().map(xattr).collect() };
        Metadata::try_from(messages::Metadata { xattrs: Some(xattrs), ..Default::default() })
    };
    let long = Err(WireError::LongField("attribute"));
    let most = convert::XATTR_MAX;
    assert!(metadata(vec![(1, most)]).is_ok());
    assert_eq!(metadata(vec![(1, most + 1)]), long);
    assert_eq!(metadata(vec![(most + 1, 0)]), long);
    assert!(metadata(vec![(1, most - 1); 16]).is_ok());
    assert_eq!(metadata(vec![(1, most); 16]), long);
    assert_eq!(metadata(vec![(0, 1)]), Err(WireError::Invalid("name of an attribute")));
}

#[test]
fn the_number_of_items_is_checked_before_they_are_decoded() {
    let stat = |paths: usize| {
        let body = to_server::Body::Stat(messages::Stat { paths: vec![Bytes::new(); paths] });
        let message = ToServer { id: 1, body: Some(body), again: false };
        Bytes::from(prost::Message::encode_to_vec(&message))
    };
    assert!(decode::<ToServer>(stat(ITEMS_MAX)).is_ok());
    assert_eq!(decode::<ToServer>(stat(ITEMS_MAX + 1)), Err(WireError::TooMany));
    // Bodies of the same kind are joined by the decoder.
    let several = [stat(ITEMS_MAX), stat(1)].concat();
    assert_eq!(decode::<ToServer>(several.into()), Err(WireError::TooMany));
}

/// Formerly, the items behind a group were decoded and not counted.
#[test]
fn items_behind_an_unknown_group_are_counted() {
    let stat = |paths: usize| {
        let body = [&[0x7b, 0x7c][..], &[0x0a, 0].repeat(paths)].concat();
        let empty = to_server::Body::Stat(messages::Stat::default());
        let message = ToServer { id: 1, body: Some(empty), again: false };
        let mut bytes = prost::Message::encode_to_vec(&message);
        // The length of the body, which is empty, comes last.
        assert_eq!(bytes.pop(), Some(0));
        prost::encode_length_delimiter(body.len(), &mut bytes).unwrap();
        Bytes::from([bytes, body].concat())
    };
    let Some(to_server::Body::Stat(few)) = decode::<ToServer>(stat(3)).unwrap().body else {
        panic!("another body")
    };
    assert_eq!(few.paths.len(), 3);
    assert_eq!(decode::<ToServer>(stat(ITEMS_MAX)), Err(WireError::TooMany));
    assert_eq!(decode::<ToServer>(stat(131_000)), Err(WireError::TooMany));
}

#[test]
fn a_missing_field_or_one_of_the_wrong_length_is_an_error() {
    let source = SourceVersion::try_from(messages::SourceVersion::default());
    assert_eq!(source, Err(WireError::Missing("version of the source")));
    assert_eq!(convert::fixed::<16>(&[0; 15], "session"), Err(WireError::Invalid("session")));
    let error = Error::from(WireError::Missing("handle"));
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(error.to_string(), "cannot understand the peer (a message has no valid handle)");
    assert_eq!(Error::from(WireError::WrongHash { offset: 0 }).kind(), ErrorKind::Corrupt);
}

/// Converts everything in a message that can be converted.
fn convert_all(message: ToClient) {
    use messages::to_client::Body;

    match message.body {
        Some(Body::Welcome(welcome)) => {
            drop(welcome.capabilities.map(|can| convert::capabilities(*can)));
        }
        Some(Body::Failed(error)) => drop(Error::from(error)),
        Some(Body::Entries(entries)) => drop(convert::entries(entries)),
        Some(Body::Opened(opened)) => drop(opened.identity.map(Identity::try_from)),
        Some(Body::Metadata(metadata)) => drop(Metadata::try_from(metadata)),
        Some(Body::Wholes(wholes)) => {
            wholes.outcomes.into_iter().for_each(|whole| drop(convert::whole_result(whole)));
        }
        Some(Body::SpaceIs(space)) => drop(space.space.map(|space| Space::try_from(*space))),
        Some(Body::Created(created)) => drop(created.held.map(Held::try_from)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn random_messages_never_panic(
        body in 2u8..16,
        data in prop::collection::vec(any::<u8>(), 0..120),
        nanos: u32,
    ) {
        let _ = decode::<ToServer>(Bytes::from(data.clone()));
        // With a valid head, so that the bodies are reached.
        let mut message = vec![body << 3 | 2, data.len() as u8];
        message.extend(&data);
        let _ = decode::<ToServer>(Bytes::from(message.clone()));
        if let Ok(message) = decode::<ToClient>(Bytes::from(message)) {
            convert_all(message);
        }
        let _ = Timestamp::try_from(messages::Time { seconds: i64::MIN, nanos });
    }
}
