//! Responses of a server.

use std::fmt;

use bytes::{Buf, Bytes};
use haul_storage::Block;

use super::names::{Name, Names};
use super::wire::{Fields, Packet};
use super::{Attrs, CodecError, Extensions, Frame, Handle, kind};

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Success.
    Ok,
    /// End of file, or of a listing.
    Eof,
    /// The path does not exist.
    NoSuchFile,
    /// Not allowed.
    PermissionDenied,
    /// An error for which version 3 has no code.
    Failure,
    /// The server could not decode the packet.
    BadMessage,
    /// The client has no connection.
    NoConnection,
    /// The connection is lost.
    ConnectionLost,
    /// The server does not support the operation.
    Unsupported,
    /// A code that version 3 does not define; some servers send those of later versions.
    Other(u32),
}

impl Status {
    const fn from_code(code: u32) -> Self {
        match code {
            0 => Self::Ok,
            1 => Self::Eof,
            2 => Self::NoSuchFile,
            3 => Self::PermissionDenied,
            4 => Self::Failure,
            5 => Self::BadMessage,
            6 => Self::NoConnection,
            7 => Self::ConnectionLost,
            8 => Self::Unsupported,
            other => Self::Other(other),
        }
    }

    const fn code(self) -> u32 {
        match self {
            Self::Ok => 0,
            Self::Eof => 1,
            Self::NoSuchFile => 2,
            Self::PermissionDenied => 3,
            Self::Failure => 4,
            Self::BadMessage => 5,
            Self::NoConnection => 6,
            Self::ConnectionLost => 7,
            Self::Unsupported => 8,
            Self::Other(code) => code,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Eof => "end of file",
            Self::NoSuchFile => "no such file",
            Self::PermissionDenied => "permission denied",
            Self::Failure => "failure",
            Self::BadMessage => "bad message",
            Self::NoConnection => "no connection",
            Self::ConnectionLost => "connection lost",
            Self::Unsupported => "operation unsupported",
            Self::Other(code) => return write!(f, "status {code}"),
        })
    }
}

/// Longer packets of names are decoded lazily. OpenSSH's have a hundred names.
const MANY: usize = 256 << 10;

/// Bytes before the payload of [`Response::Data`]: two lengths, the type and the id.
pub const DATA_HEAD: usize = 13;

/// The head of a [`Response::Data`] with `payload` bytes, for callers that read a file into the
/// buffer that they send.
pub fn data_head(id: u32, payload: usize) -> [u8; DATA_HEAD] {
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut head = [0; DATA_HEAD];
    head[..4].copy_from_slice(&length(DATA_HEAD - 4 + payload));
    head[4] = kind::DATA;
    head[5..9].copy_from_slice(&id.to_be_bytes());
    head[9..].copy_from_slice(&length(payload));
    head
}

/// A response of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// The response to `Init`; has no id.
    Version {
        /// The version of the session.
        version: u32,
        /// Extensions of the server.
        extensions: Extensions,
    },
    /// The outcome of a request.
    Status {
        /// The code.
        status: Status,
        /// The server's message.
        message: Bytes,
    },
    /// An open file or directory.
    Handle(Handle),
    /// Data of a file.
    Data(Block),
    /// Entries, or one path.
    Names(Vec<Name>),
    /// So many entries that they are decoded lazily. Encoded like [`Response::Names`].
    ManyNames(Names),
    /// Attributes of an entry.
    Attrs(Attrs),
    /// The response to an extended request, in the format of the extension.
    Extended(Bytes),
}

impl Response {
    /// Decodes a response and the id of its request (0 for `Version`).
    ///
    /// # Errors
    /// If it is malformed, or of an unknown kind.
    pub fn decode(frame: Frame) -> Result<(u32, Self), CodecError> {
        let Frame { kind, body } = frame;
        if kind == kind::DATA {
            return decode_data(body);
        }
        if kind == kind::NAME && body.len() > MANY {
            return decode_many(body);
        }
        let mut fields = Fields::new(kind, body.into_bytes());
        if kind == kind::VERSION {
            let version = fields.u32("version")?;
            let extensions = Extensions::decode(&mut fields)?;
            return Ok((0, Self::Version { version, extensions }));
        }
        let id = fields.u32("id")?;
        let response = match kind {
            kind::STATUS => {
                let status = Status::from_code(fields.u32("code")?);
                // Servers older than version 3 omit the message.
                let message =
                    if fields.is_empty() { Bytes::new() } else { fields.string("message")? };
                return Ok((id, Self::Status { status, message }));
            }
            kind::HANDLE => Self::Handle(fields.handle()?),
            kind::NAME => {
                let count = fields.u32("count")? as usize;
                // Each has at least twelve bytes: two lengths and the flags of its attributes.
                if count > fields.remaining() / 12 {
                    return Err(fields.invalid("count"));
                }
                let mut names = Vec::with_capacity(count);
                for _ in 0..count {
                    names.push(Name::decode(&mut fields)?);
                }
                Self::Names(names)
            }
            kind::ATTRS => Self::Attrs(Attrs::decode(&mut fields)?),
            kind::EXTENDED_REPLY => return Ok((id, Self::Extended(fields.rest()))),
            other => return Err(CodecError::UnknownKind(other)),
        };
        fields.end()?;
        Ok((id, response))
    }

    /// Encodes the packet without the payload of `Data`, which has to follow unchanged.
    pub fn encode(&self, id: u32) -> Bytes {
        let head = |kind: u8| Packet::new(kind).u32(id);
        match self {
            Self::Version { version, extensions } => {
                extensions.encode(Packet::new(kind::VERSION).u32(*version)).done()
            }
            Self::Status { status, message } => {
                head(kind::STATUS).u32(status.code()).string(message).string(b"en").done()
            }
            Self::Handle(handle) => head(kind::HANDLE).string(handle).done(),
            Self::Data(data) => {
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                head(kind::DATA).u32(length).done_before(data.len())
            }
            Self::Names(names) => {
                let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
                let mut packet = head(kind::NAME).u32(count);
                for entry in names {
                    packet = packet.string(&entry.name).string(&entry.long);
                    packet = entry.attrs.encode(packet);
                }
                packet.done()
            }
            Self::ManyNames(names) => names.clone().encode(head(kind::NAME)),
            Self::Attrs(attrs) => attrs.encode(head(kind::ATTRS)).done(),
            Self::Extended(reply) => head(kind::EXTENDED_REPLY).raw(reply).done(),
        }
    }

    /// The bytes that follow the packet from [`Response::encode`].
    pub fn payload(&self) -> Option<&Block> {
        match self {
            Self::Data(data) => Some(data),
            _ => None,
        }
    }
}

fn decode_many(mut body: Block) -> Result<(u32, Response), CodecError> {
    let names = body.split_off(4);
    let id = Fields::new(kind::NAME, body.into_bytes()).u32("id")?;
    Ok((id, Response::ManyNames(Names::decode(names)?)))
}

/// Both numbers before the payload are copied if they are in several pieces; the payload is not.
fn decode_data(mut body: Block) -> Result<(u32, Response), CodecError> {
    let kind = kind::DATA;
    let data = body.split_off(8);
    let mut head = body.into_bytes();
    if head.len() < 8 {
        return Err(CodecError::Truncated { kind, field: "head" });
    }
    let id = head.get_u32();
    let length = head.get_u32() as usize;
    match data.len() {
        found if found < length => Err(CodecError::Truncated { kind, field: "data" }),
        found if found > length => Err(CodecError::Trailing { kind, bytes: found - length }),
        _ => Ok((id, Response::Data(data))),
    }
}
