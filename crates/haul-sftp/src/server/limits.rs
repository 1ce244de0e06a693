//! Limits of a session's requests and memory. No request can make the server allocate more than these allow.

use crate::codec::{DATA_HEAD, OPENSSH_PACKET_MAX};

/// The longest packet accepted, in bytes.
pub(super) const PACKET: u32 = OPENSSH_PACKET_MAX;

/// Most bytes that one READ returns, as in OpenSSH (`SFTP_MAX_READ_LENGTH`): 1 KiB of a packet is left for its header.
/// Announced as the limit of WRITE too, where only that of the packet is enforced.
pub(super) const PAYLOAD: u32 = OPENSSH_PACKET_MAX - 1024;

/// Most unanswered requests of a session. OpenSSH's client sends up to 64 at once, sshfs and haul a few hundred. A
/// client with more than this limit does not read its responses, and its session is terminated.
pub(super) const REQUESTS: usize = 16_384;

/// If a session has more received bytes than this waiting to be written, and a write is in progress, the server stops
/// reading from it. A few MiB keep every disk busy.
pub(super) const HELD: usize = 4 << 20;

/// The limit in place of [`HELD`] while no write is in progress, because all of them wait until the client takes
/// responses. The server goes on reading, since the client may take responses only after it has sent more. A session
/// that exceeds this limit, four windows, is terminated; so is one that exceeds [`HELD`] while all sessions together
/// exceed the server's memory limit.
pub(super) const HELD_AT_MOST: usize = 4 * WINDOW as usize;

/// The SSH window of a channel in bytes: what a client may send before it is granted more. Enough for 500 Mbit/s at an
/// RTT of 250 ms in one channel.
pub(super) const WINDOW: u32 = 16 << 20;

/// The longest response to READ in bytes, with its head.
pub(super) const RESPONSE: usize = DATA_HEAD + PAYLOAD as usize;

/// Most bytes of a session that are read and not yet encrypted: 16 of the longest responses.
pub(super) const RESPONSE_BYTES: usize = 16 * RESPONSE;

/// Packets shorter than this are copied out of the buffer they arrived in. Otherwise they would keep that buffer,
/// which may be much longer, in memory.
pub(super) const COPIED: usize = 16 << 10;

/// Most bytes of consecutive WRITEs that are merged into one.
pub(super) const MERGED: usize = 1 << 20;

/// READs and WRITEs up to this many bytes run on the session's thread: in the page cache they take microseconds, less
/// than handing them to a disk thread.
pub(super) const SHORT: usize = 64 << 10;

/// Most entries in one response to READDIR, as in OpenSSH.
pub(super) const ENTRIES: usize = 100;

/// Refused logins after which a connection is closed: the default of OpenSSH's `MaxAuthTries`.
pub(super) const LOGINS: usize = 6;

/// Most channels of a connection: the default of OpenSSH's `MaxSessions`.
pub(super) const CHANNELS: usize = 10;

/// Most bytes that a READ of `length` bytes returns.
pub(super) const fn read_length(length: u32) -> usize {
    if length < PAYLOAD { length as usize } else { PAYLOAD as usize }
}
