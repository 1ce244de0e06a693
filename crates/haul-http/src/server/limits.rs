//! Limits of requests and of memory. No request can make the server allocate more than these allow.

use std::time::Duration;

/// Most bytes of a request's head.
pub(super) const HEAD: usize = 64 << 10;

/// Bytes read from a connection at once. Long reads mean few system calls for an upload.
pub(super) const RECEIVED: usize = 512 << 10;

/// Most bytes of an XML request body: `dav-server` has the same limit for those that it parses.
pub(super) const XML: usize = 64 << 10;

/// How deep elements may be nested. `dav-server` parses XML recursively, and a stack overflow ends the program.
pub(super) const XML_DEPTH: usize = 64;

/// Most bytes of the name of an XML namespace. Each name in the namespace stores a copy of it.
pub(super) const NAMESPACE: usize = 512;

/// Most properties requested or changed in one request.
pub(super) const PROPERTIES_OF_REQUEST: usize = 256;

/// Most bytes of all properties that clients have set.
pub(super) const PROPERTIES: usize = 8 << 20;

/// Most locks at once.
pub(super) const LOCKS: usize = 4096;

/// Most locks that affect the same resource, such as shared locks of several clients. The properties of each resource
/// in a listing include all locks on it.
pub(super) const LOCKS_TOGETHER: usize = 64;

/// Most bytes of the body of a LOCK request after unused namespaces are removed. It includes the lock's owner.
pub(super) const LOCK_REQUEST: usize = 2 << 10;

/// The maximum timeout of a lock, which is also the default.
pub(super) const LOCK: Duration = Duration::from_secs(3600);

/// Bytes of a file that are read at once.
pub(super) const BLOCK: usize = 256 << 10;

/// Most blocks read ahead of what is being sent.
pub(super) const AHEAD: usize = 3;

/// Most blocks being read or not yet sent, for all responses of a connection together: HTTP/2 may have many.
pub(super) const AHEAD_OF_ALL: usize = 6;

/// Unsent bytes that the kernel may buffer for a connection. The larger this buffer, the more of the sending is
/// triggered by acknowledgements and so runs on the processor that handles them, which is the receiver's if both sides
/// are on one machine.
pub(super) const UNSENT: u32 = 128 << 10;

/// Bytes read at once for a response while other responses use up the read-ahead.
pub(super) const LEAST: usize = 8 << 10;

/// Reads and writes up to this size take microseconds in the page cache, less than handing them to a disk thread.
pub(super) const SHORT: usize = 64 << 10;

/// Bytes of an upload that are written at once.
pub(super) const WRITE: usize = 512 << 10;
/// Most such writes in progress for one upload.
pub(super) const WRITES: usize = 4;
/// Most such writes in progress for all uploads.
pub(super) const ALL_WRITES: usize = 128;

/// Entries of a directory that are read at once.
pub(super) const ENTRIES: usize = 256;

/// Bytes of a listing that are generated at once; the last entry may exceed it.
pub(super) const PIECE: usize = 64 << 10;

/// Most entries on an index page; the last batch of `ENTRIES` may exceed it.
pub(super) const PAGE: usize = 20_000;

/// Timeout of the TLS handshake, and of the response to a PING of HTTP/2.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(30);
/// Timeout for the head of a request, and for an idle connection between two requests (HTTP/2: up to twice as long);
/// interval of PINGs of HTTP/2.
pub(super) const HEAD_TIME: Duration = Duration::from_secs(60);

/// Timeout for a client that neither sends nor reads anything within a body.
pub(super) const SILENCE: Duration = Duration::from_secs(300);

/// How long requests in progress may continue when the server stops.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);

/// HTTP/2: most requests of a connection at once.
pub(super) const STREAMS: u32 = 64;
/// HTTP/2: the receive window of a stream.
pub(super) const STREAM_WINDOW: u32 = 4 << 20;
/// HTTP/2: the receive window of a connection.
pub(super) const CONNECTION_WINDOW: u32 = 16 << 20;
