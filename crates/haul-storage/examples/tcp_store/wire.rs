//! The protocol. A frame is a length (32 bits) and that many bytes; numbers are big-endian. A request
//! is an operation and its fields; a response is a status and its fields. One request at a time.

use std::io;

use bytes::{Buf, BufMut, Bytes, TryGetError};
use haul_storage::{CommitOptions, Entry, EntryKind, ErrorKind, RelPath, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The longest frame.
pub const MAX_FRAME: usize = 64 << 20;
/// The longest file: the server keeps it in memory.
pub const MAX_FILE: u64 = 4 << 30;
/// Status 0 is success, and status n is the nth of these.
pub const REFUSALS: [ErrorKind; 9] = [
    ErrorKind::NotFound,
    ErrorKind::AlreadyExists,
    ErrorKind::IsADirectory,
    ErrorKind::NotADirectory,
    ErrorKind::NotEmpty,
    ErrorKind::NoSpace,
    ErrorKind::Changed,
    ErrorKind::Protocol,
    ErrorKind::InvalidInput,
];

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
pub fn get_time(from: &mut Bytes) -> Result<Timestamp, TryGetError> {
    Ok(Timestamp { seconds: from.try_get_i64()?, nanos: from.try_get_u32()? })
}

/// Takes an entry: the id of its content (0 for a directory), length and time.
pub fn get_entry(path: &RelPath, from: &mut Bytes) -> Result<(Entry, u64), TryGetError> {
    let (content, size) = (from.try_get_u64()?, from.try_get_u64()?);
    let kind = if content == 0 { EntryKind::Directory } else { EntryKind::File };
    let mut entry = Entry::new(path.clone(), kind, size);
    entry.modified = Some(get_time(from)?);
    // Content with a name never changes, it is only replaced.
    entry.tag = (content != 0).then(|| content.to_string());
    Ok((entry, content))
}

/// Takes all entries of a directory, each preceded by its name.
pub fn get_entries(from: &mut Bytes) -> Result<Vec<(Bytes, Entry)>, TryGetError> {
    let mut entries = Vec::new();
    while !from.is_empty() {
        entries.push((get_bytes(from)?, get_entry(&RelPath::root(), from)?.0));
    }
    Ok(entries)
}

/// A request. Each has a path, if only for its errors.
pub struct Request {
    pub op: Op,
    pub path: RelPath,
    fields: Vec<u8>,
    payload: Bytes,
}

impl Request {
    pub fn new(op: Op, path: &RelPath) -> Self {
        let mut fields = vec![op as u8];
        put_bytes(&mut fields, path.as_bytes());
        Self { op, path: path.clone(), fields, payload: Bytes::new() }
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
    pub fn time(mut self, time: Option<Timestamp>) -> Self {
        self.fields.put_u8(time.is_some().into());
        self.fields.put_i64(time.map_or(0, |time| time.seconds));
        self.fields.put_u32(time.map_or(0, |time| time.nanos));
        self
    }

    /// Commit options.
    pub fn commit(self, options: &CommitOptions) -> Self {
        self.number(options.replace.into()).time(options.metadata.modified)
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
