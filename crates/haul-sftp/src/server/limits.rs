//! What a session may ask for and hold at most. Nothing that a client sends makes the server
//! allocate more than these numbers allow.

use crate::codec::OPENSSH_PACKET_MAX;

/// The longest packet that is taken.
pub(super) const PACKET: u32 = OPENSSH_PACKET_MAX;

/// Bytes in one READ or WRITE: OpenSSH's (`SFTP_MAX_READ_LENGTH`), which leaves a KiB of a packet
/// for its head.
pub(super) const PAYLOAD: u32 = OPENSSH_PACKET_MAX - 1024;

/// Requests of a session that are not answered. OpenSSH's client has 64, sshfs and haul some
/// hundreds; who has more does not read its answers and is cut.
pub(super) const REQUESTS: usize = 16_384;

/// Bytes that a session has received and not yet written, above which nothing more is read from it
/// while a write is under way: some MiB keep every disk busy.
pub(super) const HELD: usize = 4 << 20;

/// As [`HELD`], while no write is under way because they all have to wait for answers that the
/// client does not take. Reading goes on then, because what it takes may depend on it; above this
/// it is cut. It is four of the windows that the server grants.
pub(super) const HELD_AT_MOST: usize = 4 * WINDOW as usize;

/// The SSH window of a channel: what a client may send before it is granted more. Enough for
/// 500 Mbit/s over 250 ms in one channel.
pub(super) const WINDOW: u32 = 16 << 20;

/// Bytes of a session that are read and not yet encrypted: 16 answers of full length.
pub(super) const ANSWERS: usize = 16 * PAYLOAD as usize;

/// Payloads shorter than this are copied out of the packet in which they came, which may be much
/// longer than they are and would be held as long.
pub(super) const COPIED: usize = 16 << 10;

/// Bytes of one write that is made of several consecutive ones.
pub(super) const MERGED: usize = 1 << 20;

/// Entries in one answer to READDIR, as in OpenSSH.
pub(super) const ENTRIES: usize = 100;

/// Channels of a connection: OpenSSH's `MaxSessions`.
pub(super) const CHANNELS: usize = 10;
