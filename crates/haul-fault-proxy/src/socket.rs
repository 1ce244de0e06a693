//! Socket operations that std lacks: a non-blocking connect, closing with a reset, and whether the
//! peer has acknowledged everything.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};

/// One socket of a proxied connection, and its state.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) socket: TcpStream,
    /// Whether a read is worth trying: until one would block.
    pub(crate) readable: bool,
    /// Whether a write is worth trying: until one would block.
    pub(crate) writable: bool,
    /// Whether poll has reported a hangup (both directions are closed) or an error. Further reports would
    /// only wake the proxy again and again.
    pub(crate) hung: bool,
    /// Whether the peer has reset the connection: a read or write has failed, or poll has reported it.
    pub(crate) gone: bool,
}

impl Side {
    /// A socket that was just accepted or is being connected.
    pub(crate) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Small writes go out at once: only faults that a test sets cause delays.
        socket.set_nodelay(true)?;
        Ok(Self { socket, readable: false, writable: false, hung: false, gone: false })
    }

    /// Closes the socket with a reset. Bytes that the system has not sent yet are lost.
    pub(crate) fn reset(self) {
        // This fails only on a socket that no longer exists, and then the peer needs no reset.
        let _: rustix::io::Result<()> =
            sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

/// Begins to connect. The socket becomes writable once this has succeeded or failed.
pub(crate) fn connect(server: SocketAddr) -> io::Result<Side> {
    let family = if server.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let side = Side::new(open(family)?.into())?;
    match rustix::net::connect(&side.socket, &server) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(side),
        Err(error) => Err(error.into()),
    }
}

/// A TCP socket that programs started by the test do not inherit.
#[cfg(target_os = "linux")]
fn open(family: AddressFamily) -> rustix::io::Result<std::os::fd::OwnedFd> {
    rustix::net::socket_with(family, SocketType::STREAM, rustix::net::SocketFlags::CLOEXEC, None)
}

/// A TCP socket that programs started by the test do not inherit.
#[cfg(not(target_os = "linux"))]
fn open(family: AddressFamily) -> rustix::io::Result<std::os::fd::OwnedFd> {
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

/// Whether the connect succeeded. Call this once the socket is writable.
pub(crate) fn connected(side: &Side) -> io::Result<()> {
    sockopt::socket_error(&side.socket)??;
    // Where nothing listens, the system may connect a socket to itself, if it happens to choose the
    // same port.
    if side.socket.local_addr()? == side.socket.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}

/// Bytes written to a socket that the peer's system has not acknowledged. `None` where the system
/// does not report it.
///
/// There is an ioctl for this, but no safe wrapper; /proc has the number as well.
#[cfg(target_os = "linux")]
pub(crate) fn unconfirmed(socket: &TcpStream) -> Option<u64> {
    let (local, peer) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
    let table =
        if local.is_ipv4() { "/proc/thread-self/net/tcp" } else { "/proc/thread-self/net/tcp6" };
    let (local, peer) = (in_hex(local), in_hex(peer));
    let table = std::fs::read_to_string(table).ok()?;
    let queues = table.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let ours = fields.next() == Some(&local) && fields.next() == Some(&peer);
        if ours { fields.nth(1) } else { None }
    })?;
    u64::from_str_radix(queues.split(':').next()?, 16).ok()
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn unconfirmed(_socket: &TcpStream) -> Option<u64> {
    None
}

/// An address as /proc/net/tcp writes it: words of four bytes in native byte order.
#[cfg(target_os = "linux")]
fn in_hex(address: SocketAddr) -> String {
    use std::fmt::Write;

    let octets = match address.ip() {
        std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
        std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let mut text = String::new();
    for word in octets.chunks_exact(4) {
        let word = word.try_into().map_or(0, u32::from_ne_bytes);
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(text, "{word:08X}");
    }
    let _: std::fmt::Result = write!(text, ":{:04X}", address.port());
    text
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::io::{Read, Write};
    #[cfg(target_os = "linux")]
    use std::net::TcpListener;

    use super::*;

    #[cfg(target_os = "linux")]
    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn unacknowledged_bytes_are_read_from_proc() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (mut client, mut server) = pair(address);
            assert_eq!(unconfirmed(&client), Some(0), "{address}");
            client.set_nonblocking(true).unwrap();
            let mut sent = 0;
            while let Ok(count) = client.write(&[7; 65536]) {
                sent += count;
            }
            assert!(unconfirmed(&client).unwrap() > 0, "{address}");
            server.read_exact(&mut vec![0; sent]).unwrap();
            while unconfirmed(&client).unwrap() > 0 {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn connecting_to_a_port_without_listener_fails() {
        // The port is bound, so that no other test can listen on it.
        let taken = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&taken, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let taken = TcpStream::from(taken);
        let error = match connect(taken.local_addr().unwrap()) {
            Ok(side) => loop {
                match connected(&side) {
                    Ok(()) => std::thread::yield_now(),
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
