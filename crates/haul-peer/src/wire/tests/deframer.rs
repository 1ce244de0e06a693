//! Tests of frames: their encoding and limits, and that the split of the input does not matter.

use bytes::{Bytes, BytesMut};
use haul_storage::Block;
use proptest::prelude::*;

use crate::wire::messages::{Empty, ToServer, to_server};
use crate::wire::{
    BULK_HEADER, BulkHeader, Deframer, FRAME_HEADER, Frame, Limits, PADDING_MAX, WireError,
    bulk_head, decode, message_frame, padding_frame,
};

fn header() -> BulkHeader {
    BulkHeader {
        id: 0x0102_0304,
        handle: 7,
        offset: 0x0506_0708_090a_0b0c,
        is_last: true,
        is_subtree: false,
        hash: [0xab; 32],
    }
}

fn ping() -> ToServer {
    ToServer { id: 9, body: Some(to_server::Body::Ping(Empty {})), again: false }
}

fn stream() -> Vec<u8> {
    let data = b"sixteen bytes...";
    let unknown = [0, 0, 0, 4, 200, 1, 2, 3];
    [
        &message_frame(&ping()).unwrap()[..],
        &bulk_head(&header(), data.len())[..],
        &data[..],
        &padding_frame(3)[..],
        &unknown[..],
        &bulk_head(&header(), 0)[..],
        &message_frame(&ToServer::default()).unwrap()[..],
    ]
    .concat()
}

fn frames(deframer: &mut Deframer) -> Result<Vec<Frame>, WireError> {
    let mut frames = Vec::new();
    while let Some(frame) = deframer.next_frame()? {
        frames.push(frame);
    }
    Ok(frames)
}

/// Blocks are equal only if their pieces are.
fn joined(frame: Frame) -> Frame {
    match frame {
        Frame::Bulk(header, data) => Frame::Bulk(header, Block::from(data.into_bytes())),
        frame => frame,
    }
}

fn expected() -> Vec<Frame> {
    vec![
        Frame::Message(Bytes::copy_from_slice(&message_frame(&ping()).unwrap()[FRAME_HEADER..])),
        Frame::Bulk(header(), Block::from(Bytes::from_static(b"sixteen bytes..."))),
        Frame::Skipped,
        Frame::Skipped,
        Frame::Bulk(header(), Block::new()),
        Frame::Message(Bytes::new()),
    ]
}

#[test]
fn frames_are_the_same_at_every_split_of_the_input() {
    let stream = stream();
    for first in 0..=stream.len() {
        for second in [first, (first + 3).min(stream.len()), stream.len()] {
            let mut deframer = Deframer::new(Limits::FULL);
            let mut found = Vec::new();
            for piece in [&stream[..first], &stream[first..second], &stream[second..]] {
                deframer.push(Bytes::copy_from_slice(piece));
                found.extend(frames(&mut deframer).unwrap().into_iter().map(joined));
            }
            assert_eq!(found, expected(), "split at {first} and {second}");
            assert!(!deframer.is_within_frame());
        }
    }
}

#[test]
fn the_missing_bytes_complete_a_frame() {
    let stream = stream();
    let mut deframer = Deframer::new(Limits::FULL);
    let (mut at, mut found) = (0, Vec::new());
    while at < stream.len() {
        let missing = deframer.missing();
        assert!(missing > 0);
        deframer.push(Bytes::copy_from_slice(&stream[at..at + missing]));
        at += missing;
        found.extend(frames(&mut deframer).unwrap().into_iter().map(joined));
    }
    assert_eq!(found, expected());
}

#[test]
fn the_bytes_of_a_piece_are_those_of_the_documentation() {
    let head = bulk_head(&header(), 16);
    let mut bytes = vec![0, 0, 0, 66, 2, 1, 2, 3, 4, 0, 0, 0, 7, 5, 6, 7, 8, 9, 10, 11, 12, 3];
    bytes.extend([0xab; 32]);
    assert_eq!(head[..], bytes[..]);
    assert_eq!(message_frame(&ping()).unwrap()[..], [0, 0, 0, 6, 1, 8, 9, 0xf2, 1, 0]);
}

#[test]
fn data_that_arrives_in_one_piece_is_not_copied() {
    let mut bytes = BytesMut::from(&bulk_head(&header(), 4)[..]);
    bytes.extend_from_slice(b"data");
    let bytes = bytes.freeze();
    let at = bytes[FRAME_HEADER + BULK_HEADER..].as_ptr();
    let mut deframer = Deframer::new(Limits::FULL);
    deframer.push(bytes);
    let Some(Frame::Bulk(_, data)) = deframer.next_frame().unwrap() else { panic!("no piece") };
    assert_eq!(data.pieces()[0].as_ptr(), at);
}

#[test]
fn limits_apply_before_a_payload_has_arrived() {
    let refused = |limits, kind: u8, payload: usize| {
        let [a, b, c, d] = u32::try_from(payload + 1).unwrap().to_be_bytes();
        let mut deframer = Deframer::new(limits);
        deframer.push(Bytes::copy_from_slice(&[a, b, c, d, kind]));
        deframer.next_frame().err()
    };
    let too_long = |length, limit| Some(WireError::TooLong { length, limit });
    let (early, full) = (Limits::EARLY, Limits::FULL);
    assert_eq!(refused(full, 1, 256 << 10), None);
    assert_eq!(refused(full, 1, (256 << 10) + 1), too_long((256 << 10) + 1, 256 << 10));
    assert_eq!(refused(full, 77, (256 << 10) + 1), too_long((256 << 10) + 1, 256 << 10));
    let most = (1 << 20) + BULK_HEADER;
    assert_eq!(refused(full, 2, most), None);
    assert_eq!(refused(full, 2, most + 1), too_long(most + 1, most));
    assert_eq!(refused(full, 2, 48), Some(WireError::ShortBulk(48)));
    assert_eq!(refused(full, 3, PADDING_MAX + 1), too_long(PADDING_MAX + 1, PADDING_MAX));
    assert_eq!(refused(early, 1, 4 << 10), None);
    assert_eq!(refused(early, 1, (4 << 10) + 1), too_long((4 << 10) + 1, 4 << 10));
    assert_eq!(refused(early, 2, 100), Some(WireError::EarlyBulk));
    let mut deframer = Deframer::new(full);
    deframer.push(Bytes::from_static(&[0, 0, 0, 0, 1]));
    assert_eq!(deframer.next_frame(), Err(WireError::Empty));
}

#[test]
fn a_raised_limit_applies_to_frames_that_have_arrived() {
    let mut deframer = Deframer::new(Limits::EARLY);
    deframer.push(Bytes::from(stream()));
    assert!(matches!(deframer.next_frame(), Ok(Some(Frame::Message(_)))));
    assert_eq!(deframer.next_frame(), Err(WireError::EarlyBulk));
    deframer.set_limit(Limits::FULL);
    assert_eq!(frames(&mut deframer).unwrap().len(), expected().len() - 1);
}

#[test]
fn a_message_beyond_the_limit_is_not_sent() {
    let write = to_server::Body::WriteWhole(crate::wire::messages::WriteWhole {
        data: vec![0; 256 << 10].into(),
        ..Default::default()
    });
    let message = ToServer { id: 1, body: Some(write), again: false };
    assert!(matches!(message_frame(&message), Err(WireError::TooLong { .. })));
}

#[test]
fn fields_and_bodies_of_later_versions_are_ignored() {
    // Field 1 is the id, fields 100 and 101 are unknown: bytes and a number.
    let message = [8, 5, 0xa2, 6, 3, 1, 2, 3, 0xa8, 6, 1];
    let decoded: ToServer = decode(Bytes::copy_from_slice(&message)).unwrap();
    assert_eq!(decoded, ToServer { id: 5, ..ToServer::default() });
}

proptest! {
    #[test]
    fn random_bytes_never_panic(
        data in prop::collection::vec(any::<u8>(), 0..300),
        kinds in prop::collection::vec((0u8..5, 0u16..200), 0..8),
    ) {
        // Frames with valid headers, followed by noise.
        let mut stream = Vec::new();
        for (kind, length) in kinds {
            stream.extend((u32::from(length) + 1).to_be_bytes());
            stream.push(kind);
            stream.extend(data.iter().cycle().take(if data.is_empty() { 0 } else { length.into() }));
        }
        stream.extend(&data);
        for limits in [Limits::EARLY, Limits::FULL] {
            let mut deframer = Deframer::new(limits);
            deframer.push(Bytes::from(stream.clone()));
            while let Ok(Some(frame)) = deframer.next_frame() {
                if let Frame::Message(message) = frame {
                    let _ = decode::<ToServer>(message);
                }
            }
        }
    }
}
