//! The client side of the SSH protocol (RFC 4250 to 4254). Cryptography is by aws-lc, except Diffie-Hellman in the
//! groups of RFC 3526 (crypto-bigint); keys, certificates and their signatures are by ssh-key.
//!
//! ```text
//!            ┌ receiver ← read_buffer ← packet (Opener) ← cipher ┐
//! connection ┤   ├ kex, negotiation, host_key               ├ link: a socket, a command, a tunnel
//!            └ sender ← output ←── packet (Sealer) ← cipher ┘
//!
//! open → Handshake: authentication requests, one after the other → Session: channels
//! ```
//!
//! Two tasks serve a connection: one only reads, the other only writes. Whatever can be sent without waiting for a
//! response is sent at once: identification and KEXINIT together; the end of the key exchange, the service request,
//! authentication and if possible the first channel in one flight. RTTs are counted where they are waited for.

mod channel;
mod cipher;
mod compression;
mod connection;
mod counters;
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
mod line;
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
use std::time::Duration;

use haul_net::HostWaits;
use haul_storage::Result;
use tokio::sync::mpsc;

pub use self::channel::{Channel, Incoming, Outgoing};
use self::connection::{CloseOnDrop, Connection};
pub use self::counters::{KeyExchanges, RttCounter};
use self::end::End;
pub use self::handshake::{
    AuthResponse, Handshake, Prompts, PublicHalf, RSA_SIGNATURES, SignWith, known_methods,
};
use self::identification::IDENTIFICATION;
use self::link::Link;
pub use self::memory::Memory;
use self::negotiation::Offer;
pub use self::receiver::Host;
use self::receiver::{Alive, Receiver};
pub use self::session::{Opened, Session};
pub use self::state::Greeter;
use self::state::{Phase, State};
use super::algorithms::Algorithms;
use super::config::HostConfig;

/// Bytes after which keys are renewed. RFC 4344 allows 2^32 AES blocks, 64 GiB, which is OpenSSH's limit.
const REKEY: u64 = 16 << 30;

/// Capacity of the queue of authentication responses: one is expected, a server may send a few more.
const RESPONSES: usize = 8;

/// Arguments of [`open`].
#[derive(Debug)]
pub struct Opening<'a> {
    /// The host's configuration.
    pub config: &'a HostConfig,
    /// The algorithms to offer.
    pub algorithms: &'a Algorithms,
    /// The host's known keys, and what earlier connections have learnt.
    pub host: Host,
    /// Shows banners.
    pub greeter: Arc<Greeter>,
    /// The host's name in errors.
    pub location: String,
    /// Where long waits for it are reported.
    pub waits: HostWaits,
    /// Where RTTs are counted.
    pub rtts: RttCounter,
    /// The RTT, if known.
    pub rtt: Option<Duration>,
}

/// Exchanges identifications and keys, and verifies the host key.
///
/// # Errors
/// `Busy` if the server closes the connection before that is done, as it does with too many unauthenticated
/// connections; `Unreachable` if it does not respond; `Protocol` if there is no common algorithm; and errors of the
/// host key verification.
pub async fn open((source, sink): Link, opening: Opening<'_>) -> Result<Handshake> {
    let config = opening.config;
    let host = opening.host;
    let certified = host.known.has_authority(&host.judge.host);
    // A configuration can only lower the limit.
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
    let (sending, responses) = mpsc::channel(RESPONSES);
    let alive = Alive {
        interval: config.alive_interval,
        // The connection ends after `alive_count` silent intervals (at least 2; with 0, never). No keepalive is
        // sent at the end of the last one, which is the time for the response to the last keepalive.
        max_keepalives: match config.alive_count {
            0 => 0,
            count => count.saturating_sub(1).max(1),
        },
    };
    let receiver =
        Receiver::new(Arc::clone(&connection), source, host, opening.greeter, sending, alive);
    // `CloseOnDrop` ends this task together with the sender.
    let reader = tokio::spawn(receiver.run()).abort_handle();
    tokio::spawn(sender::run(Arc::clone(&connection), sink));
    let close_on_drop = CloseOnDrop { connection: Arc::clone(&connection), reader };
    state.within_limit(config.connect_timeout, "connect", state.reached(Phase::Ready)).await?;
    if let Some(end) = state.end().filter(|_| state.session_id.get().is_none()) {
        if matches!(end, End::Unexpected) {
            memory.mispredicted();
        }
        return Err(end.before_keys(state.location()));
    }
    // One RTT for identifications and KEXINITs, which cross each other. Another one for the keys, unless our half was
    // sent along.
    opening.rtts.add(if expected.guess.is_some() { 1 } else { 2 });
    Ok(Handshake::new(close_on_drop, responses, config, opening.rtts))
}
