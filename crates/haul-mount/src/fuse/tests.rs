//! Requests and responses have the layout of `include/uapi/linux/fuse.h`, and malformed requests are refused.

use std::time::Duration;

use haul_storage::Timestamp;
use rustix::io::Errno;

use super::reply::{created, opened};
use super::request::Header;
use super::wire::Out;
use super::*;

/// A request as the kernel encodes it.
fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Out::default();
    let length = u32::try_from(40 + body.len()).unwrap();
    // Number 7, from process 3 of user 1 in group 2.
    out.u32(length).u32(opcode).u64(7).u64(node).u32(1).u32(2).u32(3).u32(0).raw(body);
    out.done()
}

fn decoded(opcode: u32, body: &[u8]) -> Operation {
    Request::decode(&request(opcode, 9, body)).unwrap().operation
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

#[test]
fn a_request_has_the_number_the_node_and_the_thread_of_its_header() {
    let decoded = Request::decode(&request(1, 9, b"name\0")).unwrap();
    assert_eq!(decoded.header, Header { unique: 7, node: 9, thread: 3 });
    assert_eq!(decoded.operation, Operation::Lookup(b"name".to_vec()));
}

#[test]
fn requests_are_decoded() {
    assert_eq!(decoded(2, &words(&[5])), Operation::Forget(5));
    let mut body = Out::default();
    body.u32(2).u32(0).raw(&words(&[11, 1, 12, 2]));
    assert_eq!(decoded(42, &body.done()), Operation::BatchForget(vec![(11, 1), (12, 2)]));
    let mut body = Out::default();
    body.u64(3).u64(1 << 40).u32(4096).u32(0).u64(0).u32(0).u32(0);
    let body = body.done();
    let read = Operation::Read { handle: 3, offset: 1 << 40, size: 4096 };
    assert_eq!(decoded(15, &body), read);
    let listing = |plus| Operation::Readdir { handle: 3, offset: 1 << 40, size: 4096, plus };
    assert_eq!(decoded(28, &body), listing(false));
    assert_eq!(decoded(44, &body), listing(true));
    assert_eq!(decoded(36, &words(&[6])), Operation::Interrupt(6));
    assert_eq!(decoded(14, &2_u32.to_ne_bytes()), Operation::Open(2));
    assert_eq!(decoded(9999, b""), Operation::Other);
}

#[test]
fn changes_are_decoded() {
    let changed = |opcode, body: &[u8]| match decoded(opcode, body) {
        Operation::Change(change) => change,
        other => panic!("{other:?}"),
    };
    let name = || b"new".to_vec();
    let mut body = Out::default();
    body.u32(0o102).u32(0o644).u32(0o22).u32(0).raw(b"new\0");
    let created = Change::Create { name: name(), flags: 0o102, mode: 0o644 };
    assert_eq!(changed(35, &body.done()), created);
    body.u32(0o700).u32(0o22).raw(b"new\0");
    assert_eq!(changed(9, &body.done()), Change::Mkdir { name: name(), mode: 0o700 });
    body.u64(5).u32(1).u32(0).raw(b"old\0new\0");
    let (old, new) = (b"old".to_vec(), name());
    let renamed = Change::Rename { name: old, parent: 5, new_name: new, flags: 1 };
    assert_eq!(changed(45, &body.done()), renamed);
    body.u64(3).u64(4096).u32(2).u32(0).u64(0).u32(0).u32(0).raw(b"xy");
    let whole = body.done();
    let written = |is_page| {
        let data = b"xy".to_vec();
        Change::Write { handle: 3, offset: 4096, data, is_page }
    };
    assert_eq!(changed(16, &whole), written(false));
    body.u64(3).u64(4096).u32(2).u32(1).u64(0).u32(0).u32(0).raw(b"xy");
    assert_eq!(changed(16, &body.done()), written(true));
    assert!(Request::decode(&request(16, 9, &whole[..whole.len() - 1])).is_err());
    // Sets the size and the time of modification of the open file: FATTR_SIZE, FATTR_MTIME, FATTR_FH.
    body.u32((1 << 3) | (1 << 5) | (1 << 6)).u32(0).raw(&words(&[3, 77, 0, 8, 9, 10]));
    body.u32(1).u32(2).u32(3).u32(0o600).u32(0).u32(1).u32(1).u32(0);
    let modified = Some(NewTime::At(Timestamp { seconds: 9, nanos: 2 }));
    let expected =
        NewAttributes { handle: Some(3), size: Some(77), modified, ..NewAttributes::default() };
    assert_eq!(changed(4, &body.done()), Change::Setattr(expected));
    assert_eq!(changed(21, b""), Change::Unsupported);
}

#[test]
fn a_request_that_is_cut_off_anywhere_is_refused() {
    let mut body = Out::default();
    body.u32(1).u32(0).raw(&words(&[11, 1]));
    for (opcode, body) in [(1, b"name\0".to_vec()), (42, body.done()), (15, words(&[3, 4, 5]))] {
        let whole = request(opcode, 1, &body);
        assert!(Request::decode(&whole).is_ok());
        for length in 0..whole.len() {
            assert!(Request::decode(&whole[..length]).is_err(), "{opcode} at {length}");
        }
    }
    // The length in the header is right, but the body is too short.
    assert!(Request::decode(&request(15, 1, &words(&[3, 4]))).is_err());
    assert!(Request::decode(&request(1, 1, b"no end")).is_err());
}

#[test]
fn a_false_count_of_forgotten_nodes_is_refused() {
    let mut body = Out::default();
    body.u32(u32::MAX).u32(0).raw(&words(&[11, 1]));
    assert!(Request::decode(&request(42, 1, &body.done())).is_err());
}

fn init(numbers: &[u32]) -> Negotiated {
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    match decoded(26, &body) {
        Operation::Init(offered) => negotiate(&offered),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_features_that_the_kernel_offers_are_chosen() {
    let Negotiated::Ready(body) = init(&[7, 31, 128 << 10, (1 << 0) | (1 << 22) | (1 << 30)])
    else {
        panic!("not ready");
    };
    assert_eq!(body.len(), 64);
    let word = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_ne_bytes(body[at..at + 2].try_into().unwrap());
    assert_eq!((word(0), word(8), word(12)), (7, 1 << 20, (1 << 0) | (1 << 22)));
    // max_background, max_write, max_pages
    assert_eq!((half(16), word(20), half(28)), (64, 1 << 20, 256));
}

#[test]
fn versions_are_negotiated() {
    assert_eq!(init(&[7, 30, 0, 0]), Negotiated::TooOld);
    assert_eq!(init(&[6, 40]), Negotiated::TooOld);
    let Negotiated::Again(body) = init(&[8, 0]) else { panic!("no second try") };
    assert_eq!(body[..4], 7_u32.to_ne_bytes());
}

fn file() -> Attributes {
    let modified = Timestamp { seconds: -5, nanos: 6 };
    let (kind, owner) = (Kind::File, (1000, 100));
    Attributes { node: 9, kind, mode: 0o640, size: 1025, modified, links: 1, owner }
}

#[test]
fn attributes_have_the_layout_of_the_kernel() {
    let body = attributes(&file(), Duration::from_millis(1500));
    assert_eq!(body.len(), 104);
    let long = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().unwrap());
    let word = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().unwrap());
    assert_eq!((long(0), word(8)), (1, 500_000_000));
    // node, size, blocks of 512 bytes, mtime
    assert_eq!((long(16), long(24), long(32), long(48) as i64), (9, 1025, 3, -5));
    assert_eq!((word(68), word(76), word(80)), (6, 0o100_640, 1));
    assert_eq!((word(84), word(88)), (1000, 100));
    assert_eq!(entry(&file(), Duration::ZERO).len(), 128);
    assert_eq!(no_entry(Duration::ZERO).len(), 128);
    let opening = Opening { handle: 1, keep_cache: true, direct: false };
    assert_eq!(opened(opening).len(), 16);
    assert_eq!(created(&file(), Duration::ZERO, opening).len(), 144);
    assert_eq!(written(7)[..4], 7_u32.to_ne_bytes());
    assert_eq!(statistics(Statistics { free: Some(1 << 30) }).len(), 80);
}

/// The kernel would refuse a response with such a size, and take no reference to the node.
#[test]
fn a_size_that_the_kernel_does_not_accept_is_corrected() {
    let body = attributes(&Attributes { size: u64::MAX - 1, ..file() }, Duration::ZERO);
    let long = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().unwrap());
    assert_eq!(long(24), i64::MAX as u64);
}

#[test]
fn a_notice_of_changed_attributes_has_the_layout_of_the_kernel() {
    let body = outdated(9);
    assert_eq!(body.len(), 40);
    assert_eq!(body[..4], 40_u32.to_ne_bytes());
    // FUSE_NOTIFY_INVAL_INODE, and 0 in place of the number of a request.
    assert_eq!((&body[4..8], &body[8..16]), (&2_i32.to_ne_bytes()[..], &[0; 8][..]));
    assert_eq!(body[16..24], 9_u64.to_ne_bytes());
    assert_eq!((&body[24..32], &body[32..]), (&(-1_i64).to_ne_bytes()[..], &[0; 8][..]));
}

#[test]
fn the_number_of_a_request_that_cannot_be_decoded_is_read() {
    let whole = request(15, 1, &words(&[3]));
    assert!(Request::decode(&whole).is_err());
    assert_eq!(Request::number(&whole), Some(7));
    assert_eq!(Request::number(&whole[..15]), None);
}

#[test]
fn an_error_number_is_negative_in_the_head_of_a_response() {
    let head = reply_head(7, Some(Errno::NOENT), 0);
    assert_eq!(head[..4], 16_u32.to_ne_bytes());
    assert_eq!(head[4..8], (-2_i32).to_ne_bytes());
    assert_eq!(head[8..], 7_u64.to_ne_bytes());
}

#[test]
fn a_listing_is_filled_up_to_its_size() {
    let listed = ListingEntry { node: 9, next: 3, kind: Kind::File };
    let mut plain = Listing::new(72);
    assert!(plain.fits(b"12345678", false));
    plain.push(b"12345678", listed);
    assert!(plain.fits(b"123456789", false));
    plain.push(b"123456789", listed);
    assert!(!plain.fits(b"", false));
    let body = plain.done();
    assert_eq!(body.len(), 72);
    assert_eq!(&body[24..32], b"12345678");
    assert_eq!(&body[56..72], b"123456789\0\0\0\0\0\0\0");

    let mut plus = Listing::new(160);
    assert!(plus.fits(b"a", true));
    plus.push_with(b"a", listed, Some((&file(), Duration::ZERO)));
    assert!(!plus.fits(b"b", true));
    assert_eq!(plus.done().len(), 160);
}
