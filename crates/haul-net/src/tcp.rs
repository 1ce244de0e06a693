//! TCP socket options without safe wrappers.
#![expect(unsafe_code, reason = "system calls without safe wrappers live here and nowhere else")]

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::tcp_info::{Direction, TcpInfo};

/// Offsets of fields in `struct tcp_info` (linux/tcp.h), which only grows at its end.
const LAST_DATA_SENT_MS: usize = 44;
const LAST_DATA_RECEIVED_MS: usize = 52;
const RTT_US: usize = 68;
const RCV_RTT_US: usize = 92;
const BYTES_RECEIVED: usize = 128;
const MIN_RTT_US: usize = 148;
const DELIVERED: usize = 192;
/// The end of the last of them.
const LENGTH: usize = 196;

/// The value of `MIN_RTT_US` without a measurement.
const NONE: u32 = u32::MAX;

/// The RTT of a connection, as the kernel has measured it; `None` without a measurement.
pub fn read(socket: &OwnedFd, direction: Direction) -> Option<TcpInfo> {
    let info = tcp_info(socket.as_fd())?;
    let field = |at| field(&info, at);
    let (mean, idle) = match direction {
        Direction::Out => (RTT_US, LAST_DATA_SENT_MS),
        Direction::In => (RCV_RTT_US, LAST_DATA_RECEIVED_MS),
    };
    let (shortest_us, mean_us) = (field(MIN_RTT_US), field(mean));
    if shortest_us == NONE || shortest_us == 0 || mean_us == 0 {
        return None;
    }
    Some(TcpInfo { shortest_us, mean_us, delivered: field(DELIVERED), idle_ms: field(idle) })
}

/// Bytes received in order, read or not; and the current RTT in microseconds, queues included, or zero before it is
/// known.
pub fn received(socket: BorrowedFd<'_>) -> Option<(u64, u32)> {
    let info = tcp_info(socket)?;
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&info[BYTES_RECEIVED..BYTES_RECEIVED + 8]);
    Some((u64::from_ne_bytes(bytes), field(&info, RCV_RTT_US)))
}

fn field(info: &[u8; LENGTH], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&info[at..at + 4]);
    u32::from_ne_bytes(bytes)
}

fn tcp_info(socket: BorrowedFd<'_>) -> Option<[u8; LENGTH]> {
    let mut info = [0_u8; LENGTH];
    let mut length = libc::socklen_t::try_from(LENGTH).ok()?;
    // SAFETY: the descriptor is open as long as `socket` is borrowed; the kernel writes at most
    // `length` bytes to `info`, which has as many, and how many it wrote to `length`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast::<c_void>(),
            &raw mut length,
        )
    };
    // Kernels before 4.18 return a shorter structure, without the number of delivered packets.
    (result == 0 && length as usize == LENGTH).then_some(info)
}

/// Limits the receive window to `bytes`. The peer may still send what the window allowed before. Returns whether the
/// limit was set.
pub fn clamp_window(socket: BorrowedFd<'_>, bytes: libc::c_int) -> bool {
    // SAFETY: the descriptor is open as long as `socket` is borrowed; the kernel reads one integer
    // from `bytes`, whose size is passed with it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_WINDOW_CLAMP,
            (&raw const bytes).cast::<c_void>(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    result == 0
}
