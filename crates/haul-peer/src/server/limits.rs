//! Limits of a server. No client can make it allocate more than these allow.

use std::time::Duration;

/// Time limit of each of these: the TLS handshake, the first message, sending a refusal.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(15);

/// Lanes of a session.
pub(super) const LANES: usize = 128;

/// Sessions of a server.
pub(super) const SESSIONS: usize = 64;

/// Open files of a session.
pub(super) const HANDLES: usize = 4096;

/// Requests of a session in progress.
pub(super) const REQUESTS: usize = 8192;

/// Bytes of a session that are read and not yet sent.
pub(super) const OUTBOX: usize = 16 << 20;

/// Bytes of the pieces that the sessions of a server share: they were read, and another session still needs them. Not
/// counted in any session's outbox.
pub(super) const SHARED: u64 = 16 << 20;

/// Bytes of a session that are received and not yet written.
pub(super) const RECEIVED: usize = 16 << 20;

/// Bytes of a session's long messages (entries, small files) that are not yet sent.
pub(super) const LONG_MESSAGES: usize = 8 << 20;

/// Small files of one request that are read together.
pub(super) const WHOLES: usize = 32;

/// Requests of a session whose outcomes are remembered, twice as many as can be in progress.
pub(super) const OUTCOMES: usize = 2 * REQUESTS;

/// Bytes of the remembered responses of a session.
pub(super) const OUTCOMES_BYTES: usize = 8 << 20;

/// Reads of a session in progress.
pub(super) const READS: usize = 64;

/// Messages of a listing that a client may permit at once.
pub(super) const LISTED: u32 = 1024;

/// How long a session without lanes stays open.
pub(super) const LINGER: Duration = Duration::from_secs(60);

/// How many times, and how long each time, to wait for the part file of a session that has ended.
pub(super) const RELEASES: usize = 50;
pub(super) const RELEASE: Duration = Duration::from_millis(20);

/// How often a lane that waits for room sends a Pong: after 30 s of silence, a client considers a lane lost.
pub(super) const LIFE: Duration = Duration::from_secs(10);

/// How often the clock is compared with the expiry of a ticket: timers stand still while a machine is suspended.
pub(super) const CLOCK: Duration = Duration::from_secs(10);

/// Bytes of entries in one message.
pub(super) const ENTRIES_BYTES: usize = 128 << 10;

/// Longest file in one message.
pub(super) const WHOLE: u64 = 128 << 10;

/// Entries in one message.
pub(super) const ENTRIES: usize = 256;

/// Time for the message that the share has ended or the ticket expired, and for the client to close its lanes.
pub(super) const GOODBYE: Duration = Duration::from_secs(2);
