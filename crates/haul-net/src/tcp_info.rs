//! What the kernel knows of a TCP connection (`struct tcp_info`), as far as haul asks for it.

/// Which way the bytes of a connection go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the far end, or both ways.
    Out,
    /// From the far end only.
    In,
}

/// Round trips of a connection in one direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TcpInfo {
    pub(crate) shortest_us: u32,
    pub(crate) mean_us: u32,
    /// Packets of ours that have arrived.
    pub(crate) delivered: u32,
    pub(crate) idle_ms: u32,
}
