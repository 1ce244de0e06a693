//! Faults, and the connections and directions that they apply to.
//!
//! These are plain values: a test creates them, `rules` stores them, `flow` applies them.

use std::time::Duration;

/// One of the two byte streams of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    /// Both directions.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];

    /// The opposite direction.
    pub const fn reverse(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

/// The connections that a fault applies to. They are numbered from 1 in the order in which the proxy accepted
/// them, including those that it then refused.
///
/// The next connection is `Nth(proxy.stats().accepted + 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connections {
    /// All connections.
    All,
    /// Only the connection with this number.
    Nth(u64),
    /// The first N connections.
    First(u64),
    /// The connection with this number and all later ones.
    From(u64),
}

impl Connections {
    /// Whether connection `number` is included.
    pub const fn contains(self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Nth(nth) => number == nth,
            Self::First(count) => number <= count,
            Self::From(first) => number >= first,
        }
    }
}

/// A fault in one direction of a connection.
///
/// Several faults can be active at once: delays add up, every rate limit applies, and of several cuts the first
/// that is reached takes effect.
///
/// **Offsets** count the bytes that the sender has sent since the connection was opened, regardless of when the
/// fault was set. A fault takes effect when all bytes before its offset have left the proxy: for offset 0 when the
/// connection opens, for an offset beyond the end of the stream never. If its offset has already passed when it is
/// set, cuts, [`Truncate`](Self::Truncate), [`Discard`](Self::Discard) and [`Blackhole`](Self::Blackhole) take
/// effect at once, and a [`Flip`](Self::Flip) never does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Delays everything, including the end of the stream, by `time` and a random part of `jitter`. Order and
    /// throughput are preserved, as on a link with this propagation delay.
    ///
    /// When the fault is lifted, the delayed bytes arrive at once.
    Delay {
        /// One-way delay.
        time: Duration,
        /// Maximum additional delay, uniformly distributed, from the seed of the proxy. It is drawn once for each
        /// read from the socket (at most 64 KiB).
        jitter: Duration,
    },
    /// Limits each connection to this many bytes per second, without bursts: N bytes take at least N / rate seconds,
    /// including the first byte. 0 accepts no more bytes.
    Rate(u64),
    /// Limits all connections of the rule together to this many bytes per second.
    SharedRate(u64),
    /// Resets both sides (RST) once exactly this many bytes were delivered.
    ///
    /// Delivered bytes are those that the receiver's TCP has acknowledged. While the receiver does not read and its
    /// buffers are full, the cut waits. Bytes of the other direction that are still in the proxy are lost.
    CutHard {
        /// Bytes delivered before the cut.
        after: u64,
    },
    /// Closes both sides (FIN) after exactly this many bytes. Bytes that arrive later, and bytes of the other
    /// direction that are still in the proxy, are dropped. The connection counts as open until both sides have
    /// closed it.
    CutSoft {
        /// Bytes delivered before the cut.
        after: u64,
    },
    /// Ends the stream to the receiver (FIN) after this many bytes: a clean but short response. Further bytes of
    /// the sender are read and dropped. The other direction continues.
    Truncate {
        /// Bytes delivered before the end.
        after: u64,
    },
    /// Silently drops all bytes from this offset on. The connection stays open until the sender closes it. When the
    /// fault is lifted, later bytes are delivered after a gap.
    Discard {
        /// Offset of the first byte that is dropped.
        from: u64,
    },
    /// Stops delivering and reading bytes from this offset on, as if the network were gone, so that the sender's
    /// buffers fill up. The connection stays open; a FIN or RST of the sender does not get through either. When the
    /// fault is lifted, all bytes arrive in order.
    ///
    /// With offset 0 it takes effect as soon as it is set.
    Blackhole {
        /// Offset of the first byte that is held back.
        from: u64,
    },
    /// Changes one byte.
    Flip {
        /// Offset of the byte.
        at: u64,
        /// XORed with the byte. 0 changes nothing and is not counted.
        mask: u8,
    },
    /// Changes each byte with a probability. Which bytes depends on the seed of the proxy, the rule, the connection
    /// and the direction, but not on timing.
    FlipRandomly {
        /// From 0 to 1.
        probability: f64,
        /// XORed with the bytes. 0 changes nothing and is not counted.
        mask: u8,
    },
}

impl Fault {
    /// A [`Fault::Delay`] without jitter.
    pub const fn delay(time: Duration) -> Self {
        Self::Delay { time, jitter: Duration::ZERO }
    }
}

/// Identifies a rule, to lift it or to find it among the injected faults. Rules are numbered in the order in which
/// they were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub(crate) u64);
