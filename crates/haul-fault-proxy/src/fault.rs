//! The words for what goes wrong, with which connections, and in which direction.
//!
//! They are plain values: a test makes them, `rules` keeps them, `flow` obeys them.

use std::time::Duration;

/// One of the two streams of bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server sends.
    ToClient,
}

impl Direction {
    /// Both, for loops.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];

    /// The other one.
    pub const fn reverse(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

/// Which connections a fault is about. They are numbered from 1 in the order in which the proxy
/// accepted them; those that it then refused have a number as well.
///
/// The next connection is `Nth(proxy.stats().accepted + 1)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Connections {
    /// Every one.
    All,
    /// This one only.
    Nth(u64),
    /// The first so many.
    First(u64),
    /// This one and all after it.
    From(u64),
}

impl Connections {
    /// Whether connection `number` is one of them.
    pub const fn contains(self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Nth(nth) => number == nth,
            Self::First(count) => number <= count,
            Self::From(first) => number >= first,
        }
    }
}

/// What happens to the bytes of a connection in one direction.
///
/// Several faults hold at once: delays add up, bytes pass one rate after the other, of several cuts
/// the one comes that is met first.
///
/// **Offsets** count the bytes which the sending side has sent since the connection was made,
/// whenever the fault was set. A fault is met when everything before its offset has left the proxy:
/// offset 0 is met when the connection opens, and an offset beyond the end of the stream never is.
/// If the offset has already passed when the fault is set, cuts, [`Truncate`](Self::Truncate),
/// [`Discard`](Self::Discard) and [`Blackhole`](Self::Blackhole) act at once, and a
/// [`Flip`](Self::Flip) never.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Everything, the end of the stream included, arrives later by `time` and something random
    /// between nothing and `jitter`. Order and throughput stay: bytes are under way side by side.
    ///
    /// When it is lifted, what is under way because of it arrives at once.
    Delay {
        /// One way.
        time: Duration,
        /// At most so much more, evenly distributed, by the seed of the proxy. One draw for what
        /// is read from the socket at once, at most 64 KiB.
        jitter: Duration,
    },
    /// A link of so many bytes per second for each connection. N bytes take no less than N seconds
    /// divided by this, the first of them too. 0 lets nothing new in.
    Rate(u64),
    /// A link of so many bytes per second that all the connections of this rule share.
    SharedRate(u64),
    /// Both sides get a reset (RST) as soon as precisely so many bytes were delivered.
    ///
    /// Delivered is what the system of the receiving side has confirmed. While that side does not
    /// read and its buffers are full, the cut waits. Bytes of the other direction that are still in
    /// the proxy are lost.
    CutHard {
        /// Bytes that are delivered before.
        after: u64,
    },
    /// Both sides get an orderly end (FIN) after precisely so many bytes. Whatever they send from
    /// then on is read and dropped, and so are bytes of the other direction that are still in the
    /// proxy. The connection counts as open until both sides have closed it.
    CutSoft {
        /// Bytes that are delivered before.
        after: u64,
    },
    /// The receiving side gets an orderly end (FIN) right after so many bytes: a clean short
    /// answer. What the sending side sends beyond is read and dropped. The other direction goes on.
    Truncate {
        /// Bytes that are delivered before.
        after: u64,
    },
    /// Bytes from this offset on are read and dropped, and nobody is told: the connection stays
    /// open until the sending side ends it. If it is lifted, later bytes follow with a gap.
    Discard {
        /// Offset of the first byte that is dropped.
        from: u64,
    },
    /// Bytes from this offset on are not delivered, nor read from the sending side, which soon has
    /// its buffers full: the network is gone. The connection stays open, and an end or a reset by
    /// the sending side does not get through either. When it is lifted, everything arrives in
    /// order and nothing is missing.
    ///
    /// With offset 0 it begins the moment it is set.
    Blackhole {
        /// Offset of the first byte that is held back.
        from: u64,
    },
    /// One byte is changed.
    Flip {
        /// Its offset.
        at: u64,
        /// What it is combined with by exclusive or. 0 changes nothing and does not count.
        mask: u8,
    },
    /// Every byte is changed with a probability. Which ones depends on the seed of the proxy, the
    /// rule, the connection and the direction, and not on time.
    FlipRandomly {
        /// From 0 to 1.
        probability: f64,
        /// What they are combined with by exclusive or. 0 changes nothing and does not count.
        mask: u8,
    },
}

impl Fault {
    /// A [`Fault::Delay`] without jitter.
    pub const fn delay(time: Duration) -> Self {
        Self::Delay { time, jitter: Duration::ZERO }
    }
}

/// The name of something that was set, to lift it again or find it among what fired. Rules are
/// numbered in the order in which they were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub(crate) u64);
