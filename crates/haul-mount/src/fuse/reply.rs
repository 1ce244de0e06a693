//! Responses to the kernel.

use std::time::Duration;

use haul_storage::{Block, Timestamp};
use rustix::io::Errno;

use super::NAME_MAX;
use super::wire::Out;

/// Length of `struct fuse_out_header`.
const HEADER: usize = 16;
/// Length of `struct fuse_entry_out`.
const ENTRY: usize = 128;
/// Length of `struct fuse_dirent` without the name.
const DIRENT: usize = 24;

/// Allocation unit that `stat` reports, and the unit of its `st_blocks`.
const BLOCK_SIZE: u32 = 4096;
const SECTOR: u64 = 512;

/// A response, and the references and handles that the kernel gets with it. If it does not reach the kernel, these have
/// to be released.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) body: Body,
    /// Nodes to which the kernel gets a reference.
    pub(crate) referenced: Vec<u64>,
    /// What it opens; the kernel will close it.
    pub(crate) opened: Option<Handle>,
    /// A node whose attributes the kernel drops before it gets the response.
    pub(crate) outdated: Option<u64>,
}

/// The number of an open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handle {
    File(u64),
    Directory(u64),
}

/// The content of a response.
#[derive(Debug)]
pub(crate) enum Body {
    /// The operation failed.
    Error(Errno),
    /// An encoded structure; may be empty.
    Bytes(Vec<u8>),
    /// Content of a file.
    Data(Block),
    /// The request has no response.
    None,
}

impl Reply {
    /// A response that refers to a node.
    pub(crate) fn referring(bytes: Vec<u8>, node: u64) -> Self {
        Self { referenced: vec![node], ..Self::from(bytes) }
    }

    /// A response to OPEN.
    pub(crate) fn opening(opening: Opening) -> Self {
        Self { opened: Some(Handle::File(opening.handle)), ..Self::from(opened(opening)) }
    }

    /// A response to CREATE.
    pub(crate) fn creating(attributes: &Attributes, valid: Duration, opening: Opening) -> Self {
        let body = created(attributes, valid, opening);
        let opened = Some(Handle::File(opening.handle));
        Self { opened, ..Self::referring(body, attributes.node) }
    }

    /// A response to OPENDIR.
    pub(crate) fn opening_directory(handle: u64) -> Self {
        let opening = Opening { handle, ..Opening::default() };
        Self { opened: Some(Handle::Directory(handle)), ..Self::from(opened(opening)) }
    }

    /// The number of the file that was opened.
    pub(crate) const fn file(&self) -> Option<u64> {
        match self.opened {
            Some(Handle::File(handle)) => Some(handle),
            _ => None,
        }
    }

    /// Success without data.
    pub(crate) const fn done() -> Self {
        Self::of(Body::Bytes(Vec::new()))
    }

    /// No response.
    pub(crate) const fn none() -> Self {
        Self::of(Body::None)
    }

    const fn of(body: Body) -> Self {
        Self { body, referenced: Vec::new(), opened: None, outdated: None }
    }
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Self::of(Body::Bytes(bytes))
    }
}

impl From<Block> for Reply {
    fn from(block: Block) -> Self {
        Self::of(Body::Data(block))
    }
}

impl From<Errno> for Reply {
    fn from(errno: Errno) -> Self {
        Self::of(Body::Error(errno))
    }
}

/// The head of a response to the request `unique` with `body` more bytes.
pub(crate) fn reply_head(unique: u64, error: Option<Errno>, body: usize) -> [u8; HEADER] {
    let mut head = [0; HEADER];
    // A response has at most the bytes that the kernel has requested.
    let length = u32::try_from(HEADER + body).unwrap_or(u32::MAX);
    let error = error.map_or(0, |error| -error.raw_os_error());
    head[..4].copy_from_slice(&length.to_ne_bytes());
    head[4..8].copy_from_slice(&error.to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    head
}

/// The notice that a name in a directory belongs to another node (`FUSE_NOTIFY_INVAL_ENTRY`): the kernel looks it
/// up again.
pub(crate) fn outdated_entry(parent: u64, name: &[u8]) -> Vec<u8> {
    const INVAL_ENTRY: u32 = 3;
    let length = u32::try_from(name.len()).unwrap_or(0);
    let mut out = Out::with_capacity(64 + name.len());
    out.u32(33 + length).u32(INVAL_ENTRY).u64(0).u64(parent).u32(length).u32(0).raw(name).raw(&[0]);
    out.done()
}

/// The notice that the attributes of a node have changed (`FUSE_NOTIFY_INVAL_INODE`): the kernel requests them again.
/// Its cached pages stay.
pub(crate) fn outdated(node: u64) -> Vec<u8> {
    const LENGTH: u32 = 40;
    const INVAL_INODE: u32 = 2;
    let mut out = Out::with_capacity(LENGTH as usize);
    // A notice has the number 0, and its kind in place of the error. No pages: an offset below 0.
    out.u32(LENGTH).u32(INVAL_INODE).u64(0).u64(node).raw(&(-1_i64).to_ne_bytes()).u64(0);
    out.done()
}

/// The type of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    File,
    Symlink,
    Socket,
}

impl Kind {
    /// The type bits of a mode, shifted right by twelve; also the `type` of `struct fuse_dirent`.
    const fn bits(self) -> u32 {
        match self {
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::File => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        }
    }
}

/// Attributes of a node, as `stat` reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) node: u64,
    pub(crate) kind: Kind,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) size: u64,
    pub(crate) modified: Timestamp,
    /// Names that it has; without one it counts as removed.
    pub(crate) links: u32,
    pub(crate) owner: (u32, u32),
}

/// The largest size of a file. With a larger one, the kernel refuses the response and takes no reference to the node.
const LARGEST: u64 = i64::MAX as u64;

impl Attributes {
    /// Encodes `struct fuse_attr`.
    fn encode(&self, out: &mut Out) {
        // The kernel takes them as signed.
        let seconds = self.modified.seconds as u64;
        let size = self.size.min(LARGEST);
        out.u64(self.node).u64(size).u64(size.div_ceil(SECTOR));
        out.u64(seconds).u64(seconds).u64(seconds);
        let nanos = self.modified.nanos;
        out.u32(nanos).u32(nanos).u32(nanos);
        out.u32((self.kind.bits() << 12) | (self.mode & 0o7777)).u32(self.links);
        out.u32(self.owner.0).u32(self.owner.1);
        // No device number; no flags.
        out.u32(0).u32(BLOCK_SIZE).u32(0);
    }
}

/// The response to GETATTR; the kernel may use the attributes for `valid`.
pub(crate) fn attributes(attributes: &Attributes, valid: Duration) -> Vec<u8> {
    let mut out = Out::with_capacity(104);
    out.u64(valid.as_secs()).u32(valid.subsec_nanos()).u32(0);
    attributes.encode(&mut out);
    out.done()
}

/// The response to LOOKUP; the kernel may use name and attributes for `valid`.
pub(crate) fn entry(attributes: &Attributes, valid: Duration) -> Vec<u8> {
    let mut out = Out::with_capacity(ENTRY);
    encode_entry(&mut out, attributes, valid);
    out.done()
}

fn encode_entry(out: &mut Out, attributes: &Attributes, valid: Duration) {
    let (seconds, nanos) = (valid.as_secs(), valid.subsec_nanos());
    // Numbers of nodes are not reused, so their generation is always 0.
    out.u64(attributes.node).u64(0).u64(seconds).u64(seconds).u32(nanos).u32(nanos);
    attributes.encode(out);
}

/// The response to LOOKUP of a name that does not exist; the kernel may rely on that for `valid`.
pub(crate) fn no_entry(valid: Duration) -> Vec<u8> {
    let mut out = Out::with_capacity(ENTRY);
    out.u64(0).u64(0).u64(valid.as_secs()).u64(0).u32(valid.subsec_nanos()).u32(0);
    out.raw(&[0; ENTRY - 40]);
    out.done()
}

/// An open file or directory, for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Opening {
    /// Its number.
    pub(crate) handle: u64,
    /// The cached pages of the kernel stay valid.
    pub(crate) keep_cache: bool,
    /// Direct I/O: every read bypasses the kernel's page cache, and a short response means the end of the file.
    pub(crate) direct: bool,
}

impl Opening {
    /// Encodes `struct fuse_open_out`.
    fn encode(self, out: &mut Out) {
        const DIRECT_IO: u32 = 1 << 0;
        const KEEP_CACHE: u32 = 1 << 1;
        let mut flags = if self.direct { DIRECT_IO } else { 0 };
        if self.keep_cache {
            flags |= KEEP_CACHE;
        }
        out.u64(self.handle).u32(flags).u32(0);
    }
}

/// The response to OPEN and OPENDIR.
pub(super) fn opened(opening: Opening) -> Vec<u8> {
    let mut out = Out::with_capacity(16);
    opening.encode(&mut out);
    out.done()
}

/// The response to CREATE.
pub(super) fn created(attributes: &Attributes, valid: Duration, opening: Opening) -> Vec<u8> {
    let mut out = Out::with_capacity(ENTRY + 16);
    encode_entry(&mut out, attributes, valid);
    opening.encode(&mut out);
    out.done()
}

/// The response to WRITE of `bytes` bytes.
pub(crate) fn written(bytes: u32) -> Vec<u8> {
    let mut out = Out::with_capacity(8);
    out.u32(bytes).u32(0);
    out.done()
}

/// Space of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Statistics {
    /// Free bytes; `None` if unknown.
    pub(crate) free: Option<u64>,
}

/// The response to STATFS. Storages report no total size, so the free space is reported as the total.
pub(crate) fn statistics(statistics: Statistics) -> Vec<u8> {
    let blocks = statistics.free.unwrap_or(0) / u64::from(BLOCK_SIZE);
    let mut out = Out::with_capacity(80);
    out.u64(blocks).u64(blocks).u64(blocks).u64(0).u64(0);
    out.u32(BLOCK_SIZE).u32(NAME_MAX as u32).u32(BLOCK_SIZE).raw(&[0; 28]);
    out.done()
}

/// An entry of a listing besides its name: its node (0 if it has none), the position after it, and its type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListingEntry {
    pub(crate) node: u64,
    pub(crate) next: u64,
    pub(crate) kind: Kind,
}

/// A response to READDIR or READDIRPLUS, which is filled up to its size.
#[derive(Debug)]
pub(crate) struct Listing {
    out: Out,
    size: usize,
}

/// The inode number of an entry whose node is not known, as libfuse reports it.
const UNKNOWN_INODE: u64 = 0xffff_ffff;

impl Listing {
    /// An empty one of at most `size` bytes.
    pub(crate) fn new(size: u32) -> Self {
        let size = size.min(super::MAX_REQUEST) as usize;
        Self { out: Out::with_capacity(size.min(64 << 10)), size }
    }

    /// Whether an entry with this name fits.
    pub(crate) const fn fits(&self, name: &[u8], plus: bool) -> bool {
        let head = if plus { ENTRY } else { 0 };
        self.out.len() + head + (DIRENT + name.len()).next_multiple_of(8) <= self.size
    }

    /// Adds an entry of READDIR.
    pub(crate) fn push(&mut self, name: &[u8], entry: ListingEntry) {
        let inode = if entry.node == 0 { UNKNOWN_INODE } else { entry.node };
        let length = u32::try_from(name.len()).unwrap_or(u32::MAX);
        self.out.u64(inode).u64(entry.next).u32(length).u32(entry.kind.bits()).raw(name).align();
    }

    /// Adds an entry of READDIRPLUS. Without attributes (or with the node 0) the kernel only gets the name.
    pub(crate) fn push_with(
        &mut self,
        name: &[u8],
        entry: ListingEntry,
        known: Option<(&Attributes, Duration)>,
    ) {
        match known {
            Some((attributes, valid)) => encode_entry(&mut self.out, attributes, valid),
            None => {
                self.out.raw(&[0; ENTRY]);
            }
        }
        self.push(name, entry);
    }

    /// The response.
    pub(crate) fn done(mut self) -> Vec<u8> {
        self.out.done()
    }
}
