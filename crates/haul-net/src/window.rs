//! How much the far end may send.

use std::os::fd::AsFd;

/// Asks the far end to send no more than about `bytes` from now on. What it was allowed to send before
/// it still may, so this has to be said while more is missing than what is under way, and again with
/// each piece that comes, since the kernel goes on looking for a window that is large enough. `false`
/// where the system cannot do that, and nothing is changed.
///
/// For protocols whose sender is stopped only by closing the connection: all that is under way then has
/// come in vain.
pub fn receive_at_most(socket: &impl AsFd, bytes: u64) -> bool {
    #[cfg(target_os = "linux")]
    {
        /// Less would make the sender wait for a round trip with each packet.
        const LEAST: u64 = 16 << 10;
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
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Reads for a while, the second half of it with a limit, and gives how much was under way when
    /// reading ended.
    fn under_way(most: Option<u64>) -> usize {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut receiver = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut sender, _) = listener.accept().unwrap();
        // It ends when the connection does.
        let sending = thread::spawn(move || while sender.write_all(&[0; 4096]).is_ok() {});
        let mut buffer = vec![0; 64 << 20];
        receiver.read_exact(&mut buffer).unwrap();
        for piece in buffer.chunks_mut(256 << 10) {
            if let Some(most) = most {
                assert!(receive_at_most(&receiver, most));
            }
            receiver.read_exact(piece).unwrap();
        }
        // The kernel takes what it allows for while nobody reads.
        thread::sleep(Duration::from_millis(300));
        receiver.set_nonblocking(true).unwrap();
        let received = receiver.read(&mut buffer).unwrap();
        drop(receiver);
        sending.join().unwrap();
        received
    }

    #[test]
    fn a_sender_comes_to_a_halt() {
        let (free, bound) = (under_way(None), under_way(Some(16 << 10)));
        assert!(bound < free / 4, "{bound} bytes instead of {free}");
    }
}
