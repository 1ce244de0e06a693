//! Frames: `u32 length | u8 kind | payload`, numbers in network byte order. The length counts kind and payload.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use haul_net::Received;
use haul_storage::Block;

use super::WireError;

/// Length of a frame's header in bytes.
pub const FRAME_HEADER: usize = 5;

/// Length of a bulk frame's header in bytes, behind the frame's header.
pub const BULK_HEADER: usize = 49;

/// Maximum payload of a padding frame in bytes.
pub const PADDING_MAX: usize = 64;

/// Kinds of frames.
mod kind {
    pub const MESSAGE: u8 = 1;
    pub const BULK: u8 = 2;
    pub const PADDING: u8 = 3;
}

/// Flags of a bulk frame. Others are ignored.
mod flag {
    pub const LAST: u8 = 1;
    pub const PLAIN: u8 = 2;
}

/// Maximum sizes of received frames, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// An encoded message. Also the limit of frames of unknown kinds.
    pub message: usize,
    /// The data of a bulk frame; 0 refuses bulk frames.
    pub data: usize,
}

impl Limits {
    /// Before the Hello has been accepted, and between a bridge and its clients.
    pub const EARLY: Self = Self { message: 4 << 10, data: 0 };
    /// Between authenticated peers.
    pub const FULL: Self = Self { message: 256 << 10, data: 1 << 20 };
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// An encoded message, for [`decode`](super::decode).
    Message(Bytes),
    /// A piece of a file, in the pieces in which it arrived. Its hash is not yet checked.
    Bulk(BulkHeader, Block),
    /// Padding, a keepalive, or a kind from a later version.
    Skipped,
}

/// The header of a piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkHeader {
    /// To the client: the read that the piece belongs to. To the server: the write request.
    pub id: u32,
    /// The open file.
    pub handle: u32,
    /// Offset of the piece in the file.
    pub offset: u64,
    /// Whether this is the last piece of the read. haul neither sets nor uses it.
    pub is_last: bool,
    /// Whether `hash` is the BLAKE3 chaining value of a subtree rather than the hash of the data alone.
    pub is_subtree: bool,
    /// The hash; see [`piece_hash`](super::piece_hash).
    pub hash: [u8; 32],
}

impl BulkHeader {
    fn encode(&self) -> [u8; BULK_HEADER] {
        let mut bytes = [0; BULK_HEADER];
        let mut out = &mut bytes[..];
        out.put_u32(self.id);
        out.put_u32(self.handle);
        out.put_u64(self.offset);
        let last = if self.is_last { flag::LAST } else { 0 };
        out.put_u8(last | if self.is_subtree { 0 } else { flag::PLAIN });
        out.put_slice(&self.hash);
        bytes
    }

    fn decode(bytes: &[u8; BULK_HEADER]) -> Self {
        let mut bytes = &bytes[..];
        let (id, handle, offset) = (bytes.get_u32(), bytes.get_u32(), bytes.get_u64());
        let flags = bytes.get_u8();
        let mut hash = [0; 32];
        bytes.copy_to_slice(&mut hash);
        Self {
            id,
            handle,
            offset,
            is_last: flags & flag::LAST != 0,
            is_subtree: flags & flag::PLAIN == 0,
            hash,
        }
    }
}

/// Encodes a message and its frame's header.
///
/// # Errors
/// If the message exceeds [`Limits::FULL`], which the other side would refuse.
pub fn message_frame(message: &impl prost::Message) -> Result<Bytes, WireError> {
    let (length, limit) = (message.encoded_len(), Limits::FULL.message);
    let too_long = WireError::TooLong { length, limit };
    if length > limit {
        return Err(too_long);
    }
    let mut frame = BytesMut::with_capacity(FRAME_HEADER + length);
    frame.put_slice(&header(kind::MESSAGE, length));
    message.encode(&mut frame).map_err(|_| too_long)?;
    Ok(frame.freeze())
}

/// The headers of a bulk frame, which its data follows: `length` bytes, at most `data` of [`Limits::FULL`].
pub fn bulk_head(bulk: &BulkHeader, length: usize) -> [u8; FRAME_HEADER + BULK_HEADER] {
    let mut head = [0; FRAME_HEADER + BULK_HEADER];
    head[..FRAME_HEADER].copy_from_slice(&header(kind::BULK, BULK_HEADER + length));
    head[FRAME_HEADER..].copy_from_slice(&bulk.encode());
    head
}

/// A frame that the other side ignores, with a payload of at most [`PADDING_MAX`] zeros.
pub fn padding_frame(payload: usize) -> Bytes {
    let payload = payload.min(PADDING_MAX);
    let mut frame = BytesMut::zeroed(FRAME_HEADER + payload);
    frame[..FRAME_HEADER].copy_from_slice(&header(kind::PADDING, payload));
    frame.freeze()
}

/// The header of a frame whose payload is within [`Limits::FULL`].
fn header(kind: u8, payload: usize) -> [u8; FRAME_HEADER] {
    let [a, b, c, d] = u32::try_from(payload + 1).unwrap_or(u32::MAX).to_be_bytes();
    [a, b, c, d, kind]
}

/// Assembles received bytes into frames. Holds at most one frame and the rest of the last bytes added.
#[derive(Debug)]
pub struct Deframer {
    limits: Limits,
    received: Received,
}

impl Deframer {
    /// A deframer for frames within `limits`.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, received: Received::new() }
    }

    /// Changes the limits, also for frames that have been added but not returned yet.
    pub const fn set_limit(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Adds received bytes. They are not copied, unless a message is split between several pieces.
    pub fn push(&mut self, bytes: impl Into<Bytes>) {
        self.received.push(bytes.into());
    }

    /// The next frame, if it is complete.
    ///
    /// # Errors
    /// If its length is out of range, its data ends beyond the largest offset, or bulk data is not accepted yet. The
    /// stream cannot be read further.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, WireError> {
        let Some((kind, payload)) = self.peek()? else { return Ok(None) };
        if self.received.len() < FRAME_HEADER + payload {
            return Ok(None);
        }
        drop(self.received.take(FRAME_HEADER));
        Ok(Some(match kind {
            kind::MESSAGE => Frame::Message(self.received.take(payload).into_bytes()),
            kind::BULK => {
                let header = self.take_bulk_header();
                let data = self.received.take(payload - BULK_HEADER);
                if header.offset.checked_add(data.len() as u64).is_none() {
                    return Err(WireError::Invalid("offset"));
                }
                Frame::Bulk(header, data)
            }
            _ => {
                drop(self.received.take(payload));
                Frame::Skipped
            }
        }))
    }

    /// Whether bytes of a frame have been added that was not returned yet.
    pub const fn is_within_frame(&self) -> bool {
        !self.received.is_empty()
    }

    /// The number of bytes until the current frame is complete, as far as it is known: until its header is
    /// complete, the rest of the header. 0 if [`Deframer::next_frame`] has something to return. Useful as the
    /// size of the next read: a frame received in one piece is not copied.
    pub fn missing(&self) -> usize {
        match self.peek() {
            Ok(Some((_, payload))) => (FRAME_HEADER + payload).saturating_sub(self.received.len()),
            Ok(None) => FRAME_HEADER.saturating_sub(self.received.len()),
            Err(_) => 0,
        }
    }

    /// Kind and payload length of the current frame, within the limits, if its header has arrived.
    fn peek(&self) -> Result<Option<(u8, usize)>, WireError> {
        let Some([a, b, c, d, kind]) = self.received.first() else { return Ok(None) };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let payload = length.checked_sub(1).ok_or(WireError::Empty)?;
        let limit = match kind {
            kind::BULK if self.limits.data == 0 => return Err(WireError::EarlyBulk),
            kind::BULK if payload < BULK_HEADER => return Err(WireError::ShortBulk(payload)),
            kind::BULK => BULK_HEADER + self.limits.data,
            kind::PADDING => PADDING_MAX,
            _ => self.limits.message,
        };
        if payload > limit {
            return Err(WireError::TooLong { length: payload, limit });
        }
        Ok(Some((kind, payload)))
    }

    /// Removes a bulk header, which must have arrived.
    fn take_bulk_header(&mut self) -> BulkHeader {
        let mut header = [0; BULK_HEADER];
        let mut rest = &mut header[..];
        for piece in self.received.take(BULK_HEADER).pieces() {
            rest.put_slice(piece);
        }
        BulkHeader::decode(&header)
    }
}
