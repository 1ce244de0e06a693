//! Property tests: any request or response survives encoding and decoding, however its bytes are split into pieces.
//! Below them, tests of single packets.

use bytes::Bytes;
use haul_storage::Block;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Splits `bytes` into pieces of the given lengths, which repeat.
fn in_pieces(bytes: &[u8], lengths: &[usize]) -> Vec<Bytes> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*length).clamp(1, rest.len()));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = after;
    }
    pieces
}

fn wire(head: &Bytes, payload: Option<&Block>) -> Vec<u8> {
    let mut bytes = head.to_vec();
    for piece in payload.map(Block::pieces).unwrap_or_default() {
        bytes.extend_from_slice(piece);
    }
    bytes
}

fn frames(bytes: &[u8], lengths: &[usize]) -> Vec<Frame> {
    let mut deframer = Deframer::new(1 << 20);
    let mut frames = Vec::new();
    for piece in in_pieces(bytes, lengths) {
        deframer.push(piece);
        while let Some(frame) = deframer.next_frame().unwrap() {
            frames.push(frame);
        }
    }
    assert!(!deframer.is_within_frame());
    frames
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn attrs() -> impl Strategy<Value = Attrs> {
    let extended = vec((bytes(), bytes()), 0..3);
    (
        any::<Option<u64>>(),
        any::<Option<(u32, u32)>>(),
        any::<Option<u32>>(),
        any::<Option<(u32, u32)>>(),
        extended,
    )
        .prop_map(|(size, owner, permissions, times, extended)| Attrs {
            size,
            owner,
            permissions,
            times,
            extended,
        })
}

fn extensions() -> impl Strategy<Value = Extensions> {
    vec((bytes(), bytes()), 0..4).prop_map(Extensions)
}

fn extended() -> impl Strategy<Value = Extended> {
    let copy = (bytes(), any::<u64>(), any::<u64>(), bytes(), any::<u64>());
    prop_oneof![
        (bytes(), bytes()).prop_map(|(from, to)| Extended::PosixRename { from, to }),
        bytes().prop_map(Extended::Fsync),
        (bytes(), bytes()).prop_map(|(from, to)| Extended::Hardlink { from, to }),
        bytes().prop_map(Extended::Statvfs),
        bytes().prop_map(Extended::Fstatvfs),
        (bytes(), attrs()).prop_map(|(path, attrs)| Extended::Lsetstat(path, attrs)),
        copy.prop_map(|(from, from_offset, length, to, to_offset)| Extended::CopyData {
            from,
            from_offset,
            length,
            to,
            to_offset
        }),
        bytes().prop_map(Extended::ExpandPath),
        Just(Extended::Limits),
        (bytes(), bytes(), any::<u64>(), any::<u64>(), any::<u32>()).prop_map(
            |(path, algorithms, offset, length, block)| Extended::CheckFileName {
                path,
                algorithms,
                offset,
                length,
                block
            }
        ),
        bytes().prop_map(|data| Extended::Unknown {
            name: Bytes::from_static(b"x@example.org"),
            data
        }),
    ]
}

fn block() -> impl Strategy<Value = Block> {
    vec(bytes(), 0..4).prop_map(|pieces| {
        let mut block = Block::new();
        pieces.into_iter().for_each(|piece| block.push(piece));
        block
    })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        (bytes(), any::<u32>(), attrs()).prop_map(|(path, flags, attrs)| Request::Open {
            path,
            flags: OpenFlags(flags),
            attrs
        }),
        bytes().prop_map(Request::Close),
        (bytes(), any::<u64>(), any::<u32>()).prop_map(|(handle, offset, length)| Request::Read {
            handle,
            offset,
            length
        }),
        (bytes(), any::<u64>(), block()).prop_map(|(handle, offset, data)| Request::Write {
            handle,
            offset,
            data
        }),
        bytes().prop_map(Request::Lstat),
        bytes().prop_map(Request::Fstat),
        (bytes(), attrs()).prop_map(|(path, attrs)| Request::Setstat(path, attrs)),
        (bytes(), attrs()).prop_map(|(handle, attrs)| Request::Fsetstat(handle, attrs)),
        bytes().prop_map(Request::Opendir),
        bytes().prop_map(Request::Readdir),
        bytes().prop_map(Request::Remove),
        (bytes(), attrs()).prop_map(|(path, attrs)| Request::Mkdir(path, attrs)),
        bytes().prop_map(Request::Rmdir),
        bytes().prop_map(Request::Realpath),
        bytes().prop_map(Request::Stat),
        (bytes(), bytes()).prop_map(|(from, to)| Request::Rename { from, to }),
        bytes().prop_map(Request::Readlink),
        (bytes(), bytes()).prop_map(|(target, link)| Request::Symlink { target, link }),
        extended().prop_map(Request::Extended),
    ]
}

fn response() -> impl Strategy<Value = Response> {
    let name =
        (bytes(), bytes(), attrs()).prop_map(|(name, long, attrs)| Name { name, long, attrs });
    let status = prop_oneof![
        Just(Status::Ok),
        Just(Status::Eof),
        Just(Status::NoSuchFile),
        Just(Status::PermissionDenied),
        Just(Status::Failure),
        Just(Status::BadMessage),
        Just(Status::NoConnection),
        Just(Status::ConnectionLost),
        Just(Status::Unsupported),
        (9u32..).prop_map(Status::Other),
    ];
    prop_oneof![
        (status, bytes()).prop_map(|(status, message)| Response::Status { status, message }),
        bytes().prop_map(Response::Handle),
        block().prop_map(Response::Data),
        vec(name, 0..5).prop_map(Response::Names),
        attrs().prop_map(Response::Attrs),
        bytes().prop_map(Response::Extended),
    ]
}

/// The bytes of a block, to compare blocks however they are split into pieces.
fn in_one_piece(block: &Block) -> Bytes {
    block.clone().into_bytes()
}

proptest! {
    #[test]
    fn a_request_survives_encoding_in_any_pieces(
        requests in vec((any::<u32>(), request()), 1..5),
        lengths in vec(1usize..50, 1..6),
    ) {
        let sent: Vec<u8> =
            requests.iter().flat_map(|(id, request)| wire(&request.encode(*id), request.payload())).collect();
        let frames = frames(&sent, &lengths);
        prop_assert_eq!(frames.len(), requests.len());
        for (frame, (id, request)) in frames.into_iter().zip(&requests) {
            let (read_id, read) = Request::decode(frame).unwrap();
            prop_assert_eq!(read_id, *id);
            match (&read, request) {
                (
                    Request::Write { handle, offset, data },
                    Request::Write { handle: h, offset: o, data: d },
                ) => {
                    prop_assert_eq!((handle, offset), (h, o));
                    prop_assert_eq!(in_one_piece(data), in_one_piece(d));
                }
                _ => prop_assert_eq!(&read, request),
            }
        }
    }

    #[test]
    fn a_response_survives_encoding_in_any_pieces(
        responses in vec((any::<u32>(), response()), 1..5),
        lengths in vec(1usize..50, 1..6),
    ) {
        let sent: Vec<u8> =
            responses.iter().flat_map(|(id, response)| wire(&response.encode(*id), response.payload())).collect();
        let frames = frames(&sent, &lengths);
        prop_assert_eq!(frames.len(), responses.len());
        for (frame, (id, response)) in frames.into_iter().zip(&responses) {
            let (read_id, read) = Response::decode(frame).unwrap();
            prop_assert_eq!(read_id, *id);
            match (&read, response) {
                (Response::Data(data), Response::Data(d)) => {
                    prop_assert_eq!(in_one_piece(data), in_one_piece(d));
                }
                _ => prop_assert_eq!(&read, response),
            }
        }
    }

    #[test]
    fn init_and_version_survive_encoding(version: u32, extensions in extensions()) {
        let init = Request::Init { version, extensions: extensions.clone() };
        let mut sent = frames(&init.encode(0), &[7]);
        prop_assert_eq!(Request::decode(sent.remove(0)).unwrap(), (0, init));
        let reply = Response::Version { version, extensions };
        let mut sent = frames(&reply.encode(0), &[7]);
        prop_assert_eq!(Response::decode(sent.remove(0)).unwrap(), (0, reply));
    }

    #[test]
    fn no_packet_makes_the_codec_panic(kind: u8, body in vec(any::<u8>(), 0..200)) {
        let frame = Frame { kind, body: Bytes::from(body).into() };
        let _request = Request::decode(frame.clone());
        let _response = Response::decode(frame);
    }
}

#[test]
fn a_packet_over_the_limit_is_refused_by_its_length() {
    let mut deframer = Deframer::new(1000);
    deframer.push(Bytes::from_static(&[0, 0, 3, 233, 101]));
    assert_eq!(deframer.next_frame(), Err(CodecError::TooLong { length: 1001, limit: 1000 }));
}

#[test]
fn an_empty_packet_is_refused() {
    let mut deframer = Deframer::new(1000);
    deframer.push(Bytes::from_static(&[0, 0, 0, 0]));
    assert_eq!(deframer.next_frame(), Err(CodecError::Empty));
}

#[test]
fn an_impossible_count_of_names_is_refused_before_allocating() {
    let body = Bytes::from_static(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let error = Response::decode(Frame { kind: 104, body: body.into() }).unwrap_err();
    assert_eq!(error.to_string(), "a packet of type 104 has an impossible count");
}

#[test]
fn a_payload_is_not_copied() {
    let payload = Bytes::from(vec![7; 100]);
    let head = Response::Data(payload.clone().into()).encode(9);
    let mut deframer = Deframer::new(1000);
    deframer.push(head);
    deframer.push(payload.clone());
    let frame = deframer.next_frame().unwrap().unwrap();
    let (9, Response::Data(block)) = Response::decode(frame).unwrap() else { panic!("no data") };
    assert_eq!(block.pieces()[0].as_ptr(), payload.as_ptr());
}

#[test]
fn data_of_another_length_than_announced_is_refused() {
    for (declared, present, error) in [
        (5u8, 4usize, "a packet of type 103 ends within its data"),
        (3, 4, "a packet of type 103 has 1 bytes too many"),
    ] {
        let mut body = vec![0, 0, 0, 1, 0, 0, 0, declared];
        body.resize(8 + present, 0);
        let frame = Frame { kind: 103, body: Bytes::from(body).into() };
        assert_eq!(Response::decode(frame).unwrap_err().to_string(), error);
    }
}

#[test]
fn a_status_without_a_message_is_accepted() {
    let body = Bytes::from_static(&[0, 0, 0, 1, 0, 0, 0, 2]);
    let (1, response) = Response::decode(Frame { kind: 101, body: body.into() }).unwrap() else {
        panic!("another id")
    };
    assert_eq!(response, Response::Status { status: Status::NoSuchFile, message: Bytes::new() });
}

#[test]
fn data_head_equals_the_encoded_head() {
    let data = Response::Data(Block::from(Bytes::from_static(b"twelve bytes")));
    assert_eq!(data.encode(7)[..], data_head(7, 12)[..]);
}

#[test]
fn bytes_after_the_data_of_a_write_are_ignored() {
    let data = Block::from(Bytes::from_static(b"data"));
    let write = Request::Write { handle: Bytes::from_static(b"h"), offset: 9, data };
    let mut body = write.encode(7)[5..].to_vec();
    body.extend_from_slice(b"data and the rest of a buffer");
    let decoded = Request::decode(Frame { kind: 6, body: Bytes::from(body).into() });
    assert_eq!(decoded, Ok((7, write)));
}
