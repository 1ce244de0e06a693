//! Entry points of the fuzz targets: decoders of what a peer sends, some of it before it is
//! authenticated. Each takes any bytes, and panics if a decoder violates one of its guarantees.

use bytes::{BufMut, Bytes, BytesMut};
use haul_storage::{
    Block, CommitOptions, CreateOptions, Held, Identity, LinkKind, Metadata, Range, RangeSet,
    SmallFile, Space,
};

use super::messages::{ToClient, ToServer, to_client, to_server};
use super::{Deframer, FRAME_HEADER, Frame, Limits, WireError, bulk_head, convert, decode, verify};

/// Frames: they do not depend on how the input is split, and none exceeds its limit. The first byte is the length of
/// the parts.
pub fn frames(data: &[u8]) {
    let Some((size, data)) = data.split_first() else { return };
    for limits in [Limits::EARLY, Limits::FULL] {
        let whole = deframed(limits, [data]);
        let cut = deframed(limits, data.chunks(usize::from(*size).max(1)));
        assert!(whole == cut, "frames depend on how they are cut");
        for frame in &whole.0 {
            match frame {
                Frame::Message(message) => assert!(message.len() <= limits.message),
                Frame::Bulk(header, data) => {
                    assert!(data.len() <= limits.data);
                    assert!(header.offset.checked_add(data.len() as u64).is_some());
                    let _ = verify(header, data);
                    let mut again = BytesMut::new();
                    again.put_slice(&bulk_head(header, data.len()));
                    data.pieces().iter().for_each(|piece| again.put_slice(piece));
                    assert!(again.len() > FRAME_HEADER);
                    let again = deframed(limits, [&again[..]]);
                    assert!(again.0 == [frame.clone()], "a piece does not survive its encoding");
                }
                Frame::Skipped => {}
            }
        }
    }
}

fn deframed<'a>(
    limits: Limits,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Frame>, Option<WireError>) {
    let mut deframer = Deframer::new(limits);
    let mut frames = Vec::new();
    for piece in pieces {
        deframer.push(Bytes::copy_from_slice(piece));
        loop {
            match deframer.next_frame() {
                // Blocks are equal only if their pieces are.
                Ok(Some(Frame::Bulk(header, data))) => {
                    frames.push(Frame::Bulk(header, Block::from(data.into_bytes())));
                }
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}

/// A client's message: if it is accepted, it and its values survive another encoding.
pub fn to_server(data: &[u8]) {
    use to_server::Body;

    let Ok(message) = decode::<ToServer>(Bytes::copy_from_slice(data)) else { return };
    survives(&message);
    let Some(body) = message.body else { return };
    match body {
        Body::Hello(hello) => {
            let _ = convert::fixed::<32>(&hello.proof, "proof");
        }
        Body::Stat(stat) => drop(convert::paths(&stat.paths)),
        Body::ReadWhole(read) => drop(convert::paths(&read.paths)),
        Body::List(list) => drop(convert::path(&list.path)),
        Body::CreateDir(create) => drop(convert::mode(create.mode)),
        Body::CreateLink(create) => {
            means_the_same::<_, LinkKind>(create.link, |link| link.into());
        }
        Body::SetMetadata(set) => {
            means_the_same::<_, Metadata>(set.metadata, |metadata| metadata.into());
        }
        Body::Digest(digest) => drop(convert::digest_kind(digest.kind)),
        Body::Create(create) => {
            means_the_same::<_, CreateOptions>(create.options, |options| options.into());
        }
        Body::Record(record) => {
            means_the_same::<_, RangeSet>(record.ranges, |ranges| ranges.into());
        }
        Body::Commit(commit) => {
            means_the_same::<_, CommitOptions>(commit.options, |options| options.into());
        }
        Body::WriteWhole(write) => drop(SmallFile::try_from(write)),
        _ => {}
    }
}

/// A server's message: if it is accepted, it and its values survive another encoding.
pub fn to_client(data: &[u8]) {
    use to_client::Body;

    let Ok(message) = decode::<ToClient>(Bytes::copy_from_slice(data)) else { return };
    survives(&message);
    let Some(body) = message.body else { return };
    match body {
        Body::Welcome(welcome) => {
            if let Some(Ok(can)) = welcome.capabilities.map(|can| convert::capabilities(*can)) {
                let again = convert::capabilities((&can).into());
                assert!(again == Ok(can), "capabilities do not survive their encoding");
            }
        }
        Body::Failed(error) => {
            let error = haul_storage::Error::from(error);
            assert!(error.cause().len() <= convert::TEXT_MAX);
            assert!(!error.to_string().contains(haul_storage::text::steers_a_terminal));
        }
        Body::Entries(entries) => {
            for entry in convert::entries(entries).into_iter().flatten() {
                assert!(entry.path.components().all(|name| name != b".." && name != b"."));
                let again = convert::entry_result(convert::entry_outcome(&Ok(entry.clone())));
                assert!(again.is_ok_and(|again| again == entry), "an entry has changed");
            }
        }
        Body::Opened(opened) => {
            means_the_same::<_, Identity>(opened.identity, |identity| identity.into());
        }
        Body::Identity(identity) => {
            means_the_same::<_, Identity>(Some(identity), |identity| identity.into());
        }
        Body::Metadata(metadata) => {
            means_the_same::<_, Metadata>(Some(metadata), |metadata| metadata.into());
        }
        Body::FoundRange(found) => means_the_same::<_, Range>(found.range, |range| (*range).into()),
        Body::Wholes(wholes) => {
            wholes.outcomes.into_iter().for_each(|whole| drop(convert::whole_result(whole)));
        }
        Body::SpaceIs(space) => {
            means_the_same::<_, Space>(space.space.map(|space| *space), |space| space.into());
        }
        Body::Created(created) => means_the_same::<_, Held>(created.held, |held| held.into()),
        _ => {}
    }
}

/// Asserts that a message is the same after it was encoded and decoded.
pub(crate) fn survives<M: prost::Message + Default + PartialEq>(message: &M) {
    let again = M::decode(Bytes::from(message.encode_to_vec()));
    assert!(again.is_ok_and(|again| again == *message), "a message does not survive its encoding");
}

/// Asserts that the value of a message, if it is valid, is the same after it was converted to a message and back.
fn means_the_same<M, T: TryFrom<M> + PartialEq>(message: Option<M>, encode: impl Fn(&T) -> M) {
    let Some(Ok(value)) = message.map(T::try_from) else { return };
    let again = T::try_from(encode(&value));
    assert!(again.is_ok_and(|again| again == value), "a value does not survive its encoding");
}
