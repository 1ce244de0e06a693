//! Limits the TCP receive window.

use std::os::fd::AsFd;

use rustix::io::ioctl_fionread;

/// Limits the bytes in flight from the peer to about `bytes`, at least 256 KiB, by the receive window. Returns whether
/// the limit was set.
///
/// The peer may still send what the window allowed before. So set the limit while more bytes are missing than are in
/// flight, and again with each piece received, since the kernel keeps enlarging the window.
///
/// The limit is not set while many bytes wait to be read. The receiver is the bottleneck then, and with a limit,
/// kernels before 6.7 may close the window for good.
///
/// Use it for protocols in which the only way to stop the sender is to close the connection (bytes in flight are wasted
/// then), and for senders that would otherwise probe the path until packets are lost.
pub fn receive_at_most(socket: &impl AsFd, bytes: u64) -> bool {
    let has_backlog = ioctl_fionread(socket).is_ok_and(|unread| unread > bytes / 2);
    !has_backlog && limit(socket, bytes)
}

/// Sets the limit; false if the system does not support it.
fn limit(socket: &impl AsFd, bytes: u64) -> bool {
    #[cfg(target_os = "linux")]
    {
        /// With a window below a few packets, the sender delays packets that are not full; on loopback a packet has
        /// 64 KiB. On a long path, a smaller window would slow down slow start.
        const MIN_WINDOW: u64 = 256 << 10;
        let bytes = libc::c_int::try_from(bytes.max(MIN_WINDOW)).unwrap_or(libc::c_int::MAX);
        crate::tcp::clamp_window(socket.as_fd(), bytes)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (socket, bytes);
        false
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    #[test]
    fn all_bytes_arrive_with_the_smallest_window() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut sender, _) = listener.accept().unwrap();
        let sent: Vec<u8> = (0..8 << 20).map(|at: u32| (at / 251) as u8).collect();
        let whole = sent.clone();
        let sending = thread::spawn(move || sender.write_all(&sent).unwrap());
        let mut received = vec![0; whole.len()];
        for piece in received.chunks_mut(100_000) {
            assert!(limit(&receiver, 1));
            receiver.read_exact(piece).unwrap();
        }
        sending.join().unwrap();
        assert!(received == whole);
    }

    #[test]
    fn a_socket_without_a_window_is_not_limited() {
        let (socket, _other) = UnixStream::pair().unwrap();
        assert!(!receive_at_most(&socket, 1));
    }
}
