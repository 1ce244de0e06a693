//! The protocol. A frame is a length (32 bits) and that many bytes; numbers are big-endian. A request
//! is an operation and its fields; a response is a status and its fields. One request at a time.

use std::io;

use bytes::{Buf, BufMut, Bytes, TryGetError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Maximum length of a frame in bytes.
pub const MAX_FRAME: usize = 64 << 20;
/// Maximum length of a file in bytes: the server stores files in memory.
pub const MAX_FILE: u64 = 4 << 30;

/// A time: seconds since 1970, and nanoseconds.
pub type Time = (i64, u32);

/// Why a request was refused: the status of the response. Status 0 is success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    NotFound = 1,
    Exists,
    IsDirectory,
    NotDirectory,
    NotEmpty,
    NoSpace,
    /// The content no longer exists, or is longer than the limit in the request.
    Gone,
    Malformed,
    Invalid,
}

impl Refusal {
    /// The refusal with this status.
    pub fn of(status: u8) -> Option<Self> {
        use Refusal::*;
        let all = [
            NotFound,
            Exists,
            IsDirectory,
            NotDirectory,
            NotEmpty,
            NoSpace,
            Gone,
            Malformed,
            Invalid,
        ];
        all.into_iter().find(|refusal| *refusal as u8 == status)
    }
}

impl From<TryGetError> for Refusal {
    fn from(_: TryGetError) -> Self {
        Self::Malformed
    }
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Stat,
    List,
    MakeDir,
    Remove,
    Rename,
    SetTime,
    Open,
    Get,
    Put,
    Read,
    Create,
    Write,
    Commit,
    Discard,
}

impl Op {
    /// The operation's name in errors.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::List => "list",
            Self::MakeDir => "create directory",
            Self::Remove => "remove",
            Self::Rename => "rename",
            Self::SetTime => "set metadata",
            Self::Open => "open",
            Self::Get | Self::Read => "read",
            Self::Create => "create",
            Self::Put | Self::Write | Self::Commit => "write",
            Self::Discard => "abort",
        }
    }
}

/// Appends a field of variable length.
pub fn put_bytes(out: &mut Vec<u8>, field: &[u8]) {
    out.put_u32(u32::try_from(field.len()).unwrap_or(u32::MAX));
    out.put_slice(field);
}

/// Takes a field of variable length.
pub fn get_bytes(from: &mut Bytes) -> Result<Bytes, TryGetError> {
    let requested = from.try_get_u32()? as usize;
    let available = from.len();
    if requested > available {
        return Err(TryGetError { requested, available });
    }
    Ok(from.split_to(requested))
}

/// Takes the rest, which must have this length.
pub fn get_exactly(from: &mut Bytes, length: u64) -> Result<Bytes, TryGetError> {
    let (requested, available) = (length as usize, from.len());
    if requested != available {
        return Err(TryGetError { requested, available });
    }
    Ok(from.split_to(available))
}

/// Takes a time.
pub fn get_time(from: &mut Bytes) -> Result<Time, TryGetError> {
    Ok((from.try_get_i64()?, from.try_get_u32()?))
}

/// The attributes of an entry.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The id of a file's content; content with a name never changes. 0 for a directory.
    pub content: u64,
    pub size: u64,
    pub modified: Time,
}

/// Takes the attributes of an entry.
pub fn get_facts(from: &mut Bytes) -> Result<Facts, TryGetError> {
    let (content, size) = (from.try_get_u64()?, from.try_get_u64()?);
    Ok(Facts { content, size, modified: get_time(from)? })
}

/// Takes all entries of a directory, each preceded by its name.
pub fn get_entries(from: &mut Bytes) -> Result<Vec<(Bytes, Facts)>, TryGetError> {
    let mut entries = Vec::new();
    while !from.is_empty() {
        entries.push((get_bytes(from)?, get_facts(from)?));
    }
    Ok(entries)
}

/// A request.
#[derive(Debug)]
pub struct Request {
    fields: Vec<u8>,
    payload: Bytes,
}

impl Request {
    pub fn new(op: Op, path: &[u8]) -> Self {
        Self { fields: vec![op as u8], payload: Bytes::new() }.field(path)
    }

    pub fn field(mut self, field: &[u8]) -> Self {
        put_bytes(&mut self.fields, field);
        self
    }

    pub fn number(mut self, number: u64) -> Self {
        self.fields.put_u64(number);
        self
    }

    /// A time, or none.
    pub fn time(mut self, time: Option<Time>) -> Self {
        self.fields.put_u8(time.is_some().into());
        let (seconds, nanos) = time.unwrap_or_default();
        self.fields.put_i64(seconds);
        self.fields.put_u32(nanos);
        self
    }

    /// How a file appears: whether it may replace another, and its time.
    pub fn appearance(self, replace: bool, modified: Option<Time>) -> Self {
        self.number(replace.into()).time(modified)
    }

    /// The bytes of a file; they come last and are not copied.
    pub fn payload(self, payload: Bytes) -> Self {
        Self { payload, ..self }
    }

    pub fn body(&self) -> impl Buf {
        Buf::chain(&self.fields[..], &self.payload[..])
    }
}

/// Sends a frame, without copying its parts together.
pub async fn send(stream: &mut TcpStream, body: impl Buf) -> io::Result<()> {
    let length = u32::try_from(body.remaining()).map_err(io::Error::other)?.to_be_bytes();
    stream.write_all_buf(&mut Buf::chain(&length[..], body)).await
}

/// Receives a frame.
pub async fn receive(stream: &mut TcpStream) -> io::Result<Bytes> {
    let length = stream.read_u32().await? as usize;
    if length > MAX_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body.into())
}
