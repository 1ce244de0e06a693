//! Servers and clients for the tests: threads that send, receive, and report how the stream ended.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_fault_proxy::FaultProxy;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketType};

/// The timeout after which a test that hangs fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Time to wait for something that must not happen.
pub const MOMENT: Duration = Duration::from_millis(150);

/// A server with one thread per connection. Drop it after the proxy.
pub struct Server {
    pub address: SocketAddr,
    stopping: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    /// Runs `serve` for each connection.
    pub fn new(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        Self::on("127.0.0.1:0", serve)
    }

    pub fn on(address: &str, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let accepting = std::thread::spawn(move || {
            let mut serving = Vec::new();
            loop {
                let (socket, _) = listener.accept().unwrap();
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                socket.set_read_timeout(Some(PATIENCE)).unwrap();
                socket.set_write_timeout(Some(PATIENCE)).unwrap();
                let serve = serve.clone();
                serving.push(std::thread::spawn(move || serve(socket)));
            }
            for thread in serving {
                thread.join().unwrap();
            }
        });
        Self { address, stopping, accepting: Some(accepting) }
    }

    /// Sends back what it receives, and ends when the client does.
    pub fn echo() -> Self {
        Self::new(echo)
    }

    /// Sends these bytes and ends its stream, then reports everything that it received.
    pub fn source(bytes: Vec<u8>) -> (Self, Receiver<Received>) {
        let bytes = Arc::new(bytes);
        Self::reporting(move |mut socket| {
            let sent = send(&socket, &bytes);
            receive_after(sent, &mut socket)
        })
    }

    /// Sends these bytes, but does not end its stream before the client does.
    pub fn quiet_source(bytes: Vec<u8>) -> (Self, Receiver<Received>) {
        let bytes = Arc::new(bytes);
        Self::reporting(move |mut socket| {
            let sent = write(&socket, &bytes);
            receive_after(sent, &mut socket)
        })
    }

    /// Reports what it received and how the stream ended.
    pub fn sink() -> (Self, Receiver<Received>) {
        Self::reporting(|mut socket| receive(&mut socket))
    }

    pub fn reporting<R: Send + 'static>(
        serve: impl Fn(TcpStream) -> R + Clone + Send + 'static,
    ) -> (Self, Receiver<R>) {
        let (report, reports) = channel();
        let report = Arc::new(Mutex::new(report));
        let server = Self::new(move |socket| {
            let result = serve(socket);
            // The test may have ended and dropped the receiver.
            let _ = report.lock().unwrap().send(result);
        });
        (server, reports)
    }

    pub fn proxy(&self) -> FaultProxy {
        FaultProxy::to(self.address).start().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let result = self.accepting.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}

pub fn echo(mut socket: TcpStream) {
    let mut buffer = vec![0; 65536];
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        if socket.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    let _ = socket.shutdown(Shutdown::Write);
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Fin,
    Reset,
    /// It did not end within the socket's timeout.
    Timeout,
}

/// The bytes received, and how the stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub bytes: Vec<u8>,
    pub end: End,
}

/// Receives up to the end of the stream.
pub fn receive(socket: &mut TcpStream) -> Received {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 65536];
    let end = loop {
        match socket.read(&mut buffer) {
            Ok(0) => break End::Fin,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) => match error.kind() {
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => break End::Reset,
                ErrorKind::WouldBlock | ErrorKind::TimedOut => break End::Timeout,
                ErrorKind::Interrupted => {}
                _ => panic!("{error}"),
            },
        }
    };
    Received { bytes, end }
}

/// Receives until nothing has arrived for a moment.
pub fn receive_briefly(socket: &mut TcpStream) -> Received {
    socket.set_read_timeout(Some(MOMENT)).unwrap();
    let received = receive(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    received
}

/// Connects without checking that the connection still exists. The proxy may have reset it already,
/// which std reports as a connect error, although bytes sent before can be read.
pub fn connect(proxy: &FaultProxy) -> TcpStream {
    let address = proxy.address();
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = TcpStream::from(rustix::net::socket(family, SocketType::STREAM, None).unwrap());
    socket.set_nonblocking(true).unwrap();
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
        Err(error) => panic!("{error}"),
    }
    poll(&mut [PollFd::new(&socket, PollFlags::OUT)], None).unwrap();
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// Connects, sends, and receives what an echo or source server sends, up to its end.
pub fn exchange(proxy: &FaultProxy, bytes: &[u8]) -> Received {
    let mut socket = connect(proxy);
    let sent = send(&socket, bytes);
    receive_after(sent, &mut socket)
}

/// Sends all bytes; if the connection broke, returns how it ended.
pub fn write(mut socket: &TcpStream, bytes: &[u8]) -> Option<End> {
    match socket.write_all(bytes) {
        Ok(()) => None,
        Err(error) => match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Some(End::Reset),
            _ => panic!("{error}"),
        },
    }
}

/// Sends all bytes and ends the stream; if the connection broke, returns how it ended.
pub fn send(socket: &TcpStream, bytes: &[u8]) -> Option<End> {
    let broken = write(socket, bytes);
    if broken.is_none() {
        // It may be broken by now, which the next read reports.
        let _ = socket.shutdown(Shutdown::Write);
    }
    broken
}

/// Receives up to the end. The system reports a reset once, and may have done so while sending.
pub fn receive_after(sent: Option<End>, socket: &mut TcpStream) -> Received {
    let Received { bytes, end } = receive(socket);
    Received { bytes, end: sent.unwrap_or(end) }
}

/// Sends bytes and receives the same number.
pub fn ping(socket: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    socket.write_all(bytes).unwrap();
    let mut response = vec![0; bytes.len()];
    socket.read_exact(&mut response).unwrap();
    response
}

/// Closes with a reset.
pub fn reset(socket: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap();
    drop(socket);
}

/// Bytes in which no stretch repeats.
pub fn pattern(count: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..count.div_ceil(8) as u64)
        .flat_map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 32)).to_le_bytes())
        .collect();
    bytes.truncate(count);
    bytes
}

/// Asserts equality; a failure does not print megabytes.
#[track_caller]
pub fn assert_same(got: &[u8], wanted: &[u8]) {
    let differs = got.iter().zip(wanted).position(|(got, wanted)| got != wanted);
    assert_eq!(differs, None, "first byte that differs");
    assert_eq!(got.len(), wanted.len(), "length");
}
