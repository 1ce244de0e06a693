//! What clients may ask for and hold at most. Nothing that a client sends makes the server allocate
//! more than these numbers allow.

use std::time::Duration;

/// Bytes of a request's head.
pub(super) const HEAD: usize = 64 << 10;

/// Bytes read from a connection at once. Long ones mean few system calls for an upload.
pub(super) const RECEIVED: usize = 512 << 10;

/// Bytes of a request that is XML: `dav-server` has the same bound for those that it reads.
pub(super) const XML: usize = 64 << 10;

/// How deep elements may be nested. Readers of XML work recursively, and a stack that overflows ends
/// the program.
pub(super) const XML_DEPTH: usize = 64;

/// Bytes of the name of a namespace. It is kept with each name that is in it.
pub(super) const NAMESPACE: usize = 512;

/// Properties asked for, or changed, in one request.
pub(super) const PROPERTIES_OF_REQUEST: usize = 256;

/// Bytes of all properties that clients have set.
pub(super) const PROPERTIES: usize = 8 << 20;

/// Locks that are held at once.
pub(super) const LOCKS: usize = 4096;

/// Locks that concern one another, as those of several clients on one file do. Each is told of with
/// everything that it covers.
pub(super) const LOCKS_TOGETHER: usize = 64;

/// Bytes of what is asked for with a lock, which has its owner in it.
pub(super) const LOCK_REQUEST: usize = 2 << 10;

/// How long a lock lasts at most without being refreshed, and how long it lasts if nothing is said.
pub(super) const LOCK: Duration = Duration::from_secs(3600);

/// Bytes of a file that are read at once.
pub(super) const BLOCK: usize = 256 << 10;

/// Blocks that are read ahead of what is being sent.
pub(super) const AHEAD: usize = 3;

/// Blocks that are read and not yet sent, of all answers of a connection together. By HTTP/2 it has many.
pub(super) const AHEAD_OF_ALL: usize = 6;

/// Bytes that the system keeps of what is being sent and not yet under way. The more it has, the more of
/// the sending falls to whoever receives: acknowledgements set it off, on that side's processor if it is
/// the same machine's.
pub(super) const UNSENT: u32 = 128 << 10;

/// Bytes that an answer gets one after the other while others have all of that.
pub(super) const LEAST: usize = 8 << 10;

/// Bytes of an upload that are written at once, and how many such writes may be under way: of one
/// upload, and of all.
pub(super) const WRITE: usize = 512 << 10;
pub(super) const WRITES: usize = 4;
pub(super) const ALL_WRITES: usize = 128;

/// Entries of a directory that are read at once.
pub(super) const ENTRIES: usize = 256;

/// Bytes of an answer that are made at once, and one entry more.
pub(super) const PIECE: usize = 64 << 10;

/// Entries that a page shows.
pub(super) const PAGE: usize = 20_000;

/// How long a client may take to speak TLS, to send the head of a request, or to be idle between two.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(30);
pub(super) const HEAD_TIME: Duration = Duration::from_secs(60);

/// How long a client may send or take nothing in the middle of a body.
pub(super) const SILENCE: Duration = Duration::from_secs(300);

/// How long requests that are under way may go on when the server stops.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);

/// HTTP/2: requests of a connection at once, and the window of a stream and of a connection.
pub(super) const STREAMS: u32 = 64;
pub(super) const STREAM_WINDOW: u32 = 4 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 16 << 20;
