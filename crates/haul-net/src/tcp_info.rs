//! The fields of the kernel's `struct tcp_info` from which haul derives RTTs.

/// The direction in which a connection transfers data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the peer, or both ways.
    Out,
    /// From the peer only.
    In,
}

/// What the kernel has measured on a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpInfo {
    /// The shortest RTT.
    pub(crate) shortest_us: u32,
    /// The kernel's running mean of the RTT.
    pub(crate) mean_us: u32,
    /// Packets sent that have arrived.
    pub(crate) delivered: u32,
    /// Time since data was last sent ([`Direction::Out`]) or received ([`Direction::In`]).
    pub(crate) idle_ms: u32,
}
