//! A router for tests, on a loopback address of its own. The test provides its responses by NAT-PMP, PCP and UPnP,
//! correct or not.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::gateway::Route;
use super::limits;

/// The port of SSDP.
const SSDP: u16 = 1900;

/// The last byte of the next router's address: each router has its own.
static NEXT: AtomicU8 = AtomicU8::new(1);

/// Returns the response to a packet, if there is one.
pub(super) type Responder = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send>;

/// Responds to a SOAP request or one for the description, by writing to the connection.
pub(super) type Page = Box<dyn Fn(&str, &mut TcpStream) + Send>;

/// A running router.
pub(super) struct Router {
    address: Ipv4Addr,
    /// How long a client waits for its response to a search.
    search: Duration,
    log: Arc<Mutex<Vec<String>>>,
    ended: Arc<AtomicBool>,
    /// The threads that respond to packets.
    responding: Vec<JoinHandle<()>>,
}

impl Router {
    /// A router without any service.
    pub(super) fn new() -> Self {
        // Other test programs may run on this machine at the same time.
        let process = (std::process::id() % 250 + 1) as u8;
        let address = Ipv4Addr::new(127, 77, process, NEXT.fetch_add(1, Ordering::Relaxed));
        let (log, ended) = Default::default();
        Self { address, search: limits::SEARCH, log, ended, responding: Vec::new() }
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.address
    }

    pub(super) fn route(&self) -> Route {
        Route { gateway: self.address, own: Ipv4Addr::LOCALHOST, search: self.search }
    }

    /// The requests that its services have recorded.
    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a function that records a request.
    pub(super) fn recorder(&self) -> impl Fn(String) + Send + Sync + 'static + use<> {
        let log = Arc::clone(&self.log);
        move |line| log.lock().unwrap_or_else(PoisonError::into_inner).push(line)
    }

    /// Responds to packets to the port of NAT-PMP and PCP.
    pub(super) fn pcp(mut self, responder: Responder) -> Self {
        self.udp(crab_nat::GATEWAY_PORT, responder);
        self
    }

    /// Responds to searches with the location of a description, which `page` sends.
    pub(super) fn upnp(mut self, location: &str, page: Page) -> Self {
        if location.starts_with("OWN") {
            // This router responds, but late on a busy machine.
            self.search = Duration::from_secs(20);
        }
        let listener = TcpListener::bind((self.address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = format!("http://{}:{port}", self.address);
        let location = location.replace("OWN", &own);
        let found = format!("HTTP/1.1 200 OK\r\nLOCATION: {location}\r\n\r\n").into_bytes();
        self.udp(SSDP, Box::new(move |_| Some(found.clone())));
        let ended = Arc::clone(&self.ended);
        listener.set_nonblocking(true).unwrap();
        thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut stream, _)) => {
                        stream.set_nonblocking(false).unwrap();
                        let request = request(&mut stream);
                        page(&request, &mut stream);
                    }
                    Err(_) => thread::sleep(Duration::from_millis(5)),
                }
            }
        });
        self
    }

    fn udp(&mut self, port: u16, responder: Responder) {
        let socket = UdpSocket::bind((self.address, port)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let ended = Arc::clone(&self.ended);
        self.responding.push(thread::spawn(move || {
            let mut packet = [0; 2048];
            while !ended.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut packet) else { continue };
                if let Some(response) = responder(&packet[..length]) {
                    // The client may be gone.
                    drop(socket.send_to(&response, from));
                }
            }
        }));
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.responding.drain(..) {
            // If it has panicked, the router has not responded, and its test has failed.
            drop(thread.join());
        }
    }
}

/// Reads a request with its body.
fn request(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer).unwrap_or(0);
        text.extend_from_slice(&buffer[..length]);
        let read = String::from_utf8_lossy(&text).into_owned();
        let body = read.split_once("\r\n\r\n").map(|(_, body)| body);
        let is_whole = body.is_some_and(|body| read.starts_with("GET") || body.ends_with("\r\n"));
        if is_whole || length == 0 {
            return read;
        }
    }
}

/// Sends a response.
pub(super) fn respond(stream: &mut TcpStream, status: &str, body: &str) {
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    // The client may be gone.
    drop(stream.write_all(format!("{head}{body}").as_bytes()));
}

/// The PCP response that grants a mapping request: the requested port at this external address.
pub(super) fn granted(request: &[u8], ip: Ipv4Addr, lease: u32) -> Vec<u8> {
    let mut response = request[..60].to_vec();
    // "R" and the opcode MAP, no error; the epoch, and 12 reserved bytes.
    response[1] = 0x81;
    response[3] = 0;
    response[4..8].copy_from_slice(&lease.to_be_bytes());
    response[8..24].fill(0);
    response[44..60].copy_from_slice(&ip.to_ipv6_mapped().octets());
    response
}

/// The lifetime of a mapping request of PCP.
pub(super) fn lifetime(request: &[u8]) -> u32 {
    u32::from_be_bytes(request[4..8].try_into().unwrap())
}
