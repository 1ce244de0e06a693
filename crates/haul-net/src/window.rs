//! How much the far end may send.

use std::os::fd::AsFd;

use rustix::io::ioctl_fionread;

/// Asks the far end to have no more than about `bytes` under way that have not come yet. What it was
/// allowed to send before it still may, so this has to be said while more is missing than what is under
/// way, and again with each piece that comes, since the kernel goes on looking for a window that is large
/// enough.
///
/// Less than 256 KiB is not asked for. Nothing is said while much waits to be read: then nothing else
/// limits, and a kernel before 6.7 that is told a limit may let nothing more through at all. Whether it was
/// said.
///
/// For protocols whose sender is stopped only by closing the connection, where all that is under way then
/// has come in vain, and for senders that would find out how much the path takes by losing packets.
pub fn receive_at_most(socket: &impl AsFd, bytes: u64) -> bool {
    let much_waits = ioctl_fionread(socket).is_ok_and(|unread| unread > bytes / 2);
    !much_waits && limit(socket, bytes)
}

/// `false` where the system cannot do that.
fn limit(socket: &impl AsFd, bytes: u64) -> bool {
    #[cfg(target_os = "linux")]
    {
        /// With less than a few packets' worth the sender waits before it sends one that is not full. On
        /// loopback a packet is 64 KiB. On a long path a slow start is held up by less than this.
        const LEAST: u64 = 256 << 10;
        let bytes = libc::c_int::try_from(bytes.max(LEAST)).unwrap_or(libc::c_int::MAX);
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
    fn all_arrives_however_little_may_be_under_way() {
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
    fn what_has_no_window_is_left_alone() {
        let (socket, _other) = UnixStream::pair().unwrap();
        assert!(!receive_at_most(&socket, 1));
    }
}
