//! The SSH protocol itself (RFC 4250 to 4254), as a client speaks it. Cryptography is aws-lc's;
//! keys, certificates and their signatures are ssh-key's.
//!
//! ```text
//!            ┌ receiver ← read_buffer ← packet (Opener) ← cipher ┐
//! connection ┤   ├ kex, negotiation, host_key               ├ link: a socket, a command, a tunnel
//!            └ sender ← output ←── packet (Sealer) ← cipher ┘
//!
//! open → Handshake: one request of authentication after the other → Session: channels
//! ```
//!
//! Two tasks serve a connection, one that only reads and one that only writes. Everything that can
//! be sent without waiting for an answer is: identification and offer at once; the end of the key
//! exchange, the service, authentication and where possible the first channel in one flight. Round
//! trips are counted where they are waited for.

mod channel;
mod cipher;
mod compression;
mod connection;
mod early;
mod end;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod groups;
mod handshake;
mod host_key;
mod identification;
mod kex;
#[cfg(test)]
mod known;
pub mod link;
mod memory;
mod negotiation;
mod packet;
mod read_buffer;
mod receiver;
mod sender;
mod session;
mod state;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use haul_net::HostWaits;
use haul_storage::Result;
use tokio::sync::mpsc;

pub use self::channel::{Channel, Incoming, Outgoing};
use self::connection::Connection;
use self::end::End;
pub use self::handshake::{
    Answer, Handshake, PublicHalf, Questions, RSA_SIGNATURES, SignWith, known_methods,
};
use self::link::Link;
pub use self::memory::Memory;
use self::negotiation::Offer;
pub use self::receiver::Host;
use self::receiver::{Alive, Receiver};
use self::session::Knife;
pub use self::session::{Opened, Session};
pub use self::state::Greeter;
use self::state::{Phase, State};
use super::algorithms::Algorithms;
use super::config::HostConfig;

/// What haul calls itself.
const IDENTIFICATION: &str = concat!("SSH-2.0-haul_", env!("CARGO_PKG_VERSION"));

/// Bytes after which keys are exchanged anew. RFC 4344 allows 2^32 blocks of AES, 64 GiB; OpenSSH
/// takes as much.
const REKEY: u64 = 16 << 30;

/// Answers of authentication that may wait: one, and a few of a server that says too much.
const ANSWERS: usize = 8;

/// Counts the times that somebody waited for an answer from the far end.
#[derive(Debug, Clone, Default)]
pub struct RttSample(Arc<AtomicU32>);

impl RttSample {
    /// So many more.
    pub fn add(&self, count: u32) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// All so far.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counts completed key exchanges.
#[derive(Debug, Clone, Default)]
pub struct KeyExchanges(Arc<AtomicU32>);

impl KeyExchanges {
    /// One more.
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// All so far.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What [`open`] needs to know besides the stream.
#[derive(Debug)]
pub struct Opening<'a> {
    /// The host's configuration.
    pub config: &'a HostConfig,
    /// What is offered.
    pub algorithms: &'a Algorithms,
    /// What is known of the host.
    pub host: Host,
    /// Who is shown banners.
    pub greeter: Arc<Greeter>,
    /// What the host is called in errors.
    pub location: String,
    /// Where long waits for it are reported.
    pub waits: HostWaits,
    /// Where round trips are counted.
    pub round_trips: RttSample,
    /// How long the way is, if that is known.
    pub rtt: Option<Duration>,
}

/// Exchanges versions and keys, and has the host key judged.
///
/// # Errors
/// `Busy` if the server closes before that is done, as one with too many unauthenticated
/// connections does; `Unreachable` if it does not answer; `Protocol` if the two have no common
/// language; what the judge says.
pub async fn open((source, sink): Link, opening: Opening<'_>) -> Result<Handshake> {
    let config = opening.config;
    let host = opening.host;
    let certified = host.known.has_authority(&host.judge.host);
    // More than the cipher stands is not for a configuration to allow.
    let rekey = config.rekey_limit.unwrap_or(REKEY).min(REKEY);
    let offer = Offer::new(opening.algorithms, certified);
    let connection =
        Arc::new(Connection::new(State::new(opening.location, opening.waits), offer, rekey));
    let state = &connection.state;
    let memory = Arc::clone(&host.memory);
    let expected = memory.expected(opening.rtt).await;
    connection
        .greet(IDENTIFICATION, expected.guess.as_ref())
        .map_err(|end| end.before_keys(state.location()))?;
    let (answers, heard) = mpsc::channel(ANSWERS);
    let alive = Alive {
        interval: config.alive_interval,
        // The last interval is that in which nobody answers any more.
        questions: match config.alive_count {
            0 => 0,
            count => count.saturating_sub(1).max(1),
        },
    };
    let receiver =
        Receiver::new(Arc::clone(&connection), source, host, opening.greeter, answers, alive);
    // Ended by Knife, together with the sender.
    let reader = tokio::spawn(receiver.run()).abort_handle();
    tokio::spawn(sender::run(Arc::clone(&connection), sink));
    let knife = Knife { connection: Arc::clone(&connection), reader };
    state.patiently(config.connect_timeout, "connect", state.reached(Phase::Ready)).await?;
    if let Some(end) = state.end().filter(|_| state.session_id.get().is_none()) {
        if matches!(end, End::Unexpected) {
            memory.surprised();
        }
        return Err(end.before_keys(state.location()));
    }
    // Versions and algorithms cross each other; then the keys, if they were not sent as well.
    opening.round_trips.add(if expected.guess.is_some() { 1 } else { 2 });
    Ok(Handshake::new(knife, heard, config, opening.round_trips))
}
