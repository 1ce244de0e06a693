//! The fields of the kernel's `struct tcp_info` that haul uses.

/// The direction in which a connection transfers data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the peer, or both ways.
    Out,
    /// From the peer only.
    In,
}

/// RTTs of a connection in one direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpInfo {
    pub(crate) shortest_us: u32,
    pub(crate) mean_us: u32,
    /// Packets sent that have arrived.
    pub(crate) delivered: u32,
    pub(crate) idle_ms: u32,
}
