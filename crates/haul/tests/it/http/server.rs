//! An HTTP/1.1 server that sends the responses of a test's script, and records the requests.
//!
//! ```text
//! connection → one request after the other, also pipelined ones → script → Response → bytes
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::response::{End, Response};

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// Its number among all requests, from 1.
    pub(super) number: u64,
    /// The number of its connection, from 1.
    pub(super) connection: u64,
    /// Its number on its connection, from 1.
    pub(super) nth: u64,
    /// Connections that are open at this moment.
    pub(super) open: u64,
    pub(super) method: String,
    pub(super) target: String,
    fields: Vec<(String, String)>,
}

impl Request {
    /// A header field.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The request without a header field.
    pub(super) fn without(&self, name: &str) -> Self {
        let mut request = self.clone();
        request.fields.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        request
    }

    /// First and last byte of `Range: bytes=a-b`; the last is `usize::MAX` in `bytes=a-`.
    pub(super) fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().ok()?, last.parse().unwrap_or(usize::MAX)))
    }

    /// Whether it is for a range that does not begin with the first byte.
    pub(super) fn is_later_part(&self) -> bool {
        self.range().is_some_and(|(first, _)| first > 0)
    }

    fn read(stream: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let mut lines = lines.iter();
        let mut words = lines.next().map(|line| line.split(' ')).into_iter().flatten();
        let mut word = || words.next().unwrap_or_default().to_owned();
        let (method, target) = (word(), word());
        let pairs = lines.filter_map(|line| line.split_once(':'));
        let fields =
            pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
        Ok(Some(Self { number: 0, connection: 0, nth: 0, open: 0, method, target, fields }))
    }
}

type Script = dyn Fn(&Request) -> Response + Send + Sync;

/// The server; it ends with its test.
pub(super) struct Server {
    address: SocketAddr,
    tls: bool,
    shared: Arc<Shared>,
}

struct Shared {
    script: Box<Script>,
    tls: Option<Arc<ServerConfig>>,
    /// How long a connection may be without a request before it is closed.
    patience: Option<Duration>,
    /// More connections than this are closed as soon as they are accepted.
    most_open: u64,
    requests: Mutex<Vec<Request>>,
    /// Names of the header fields that the script has set, of all responses together. Fields that the server adds
    /// (`Content-Length`, `Transfer-Encoding`) are not among them.
    response_fields: Mutex<Vec<String>>,
    accepted: AtomicU64,
    closed: AtomicU64,
    stopped: AtomicBool,
}

impl Server {
    /// Starts a server with the responses of `script`.
    pub(super) fn start(script: impl Fn(&Request) -> Response + Send + Sync + 'static) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST, script)
    }

    /// As [`Server::start`], on this address.
    pub(super) fn start_on(
        address: Ipv4Addr,
        script: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(address, u64::MAX, None, None, script)
    }

    /// As [`Server::start`], with a bound on connections, and on how long they may be idle.
    pub(super) fn with_most_open(
        most_open: u64,
        patience: impl Into<Option<Duration>>,
        script: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Ipv4Addr::LOCALHOST, most_open, patience.into(), None, script)
    }

    /// As [`Server::start`], behind TLS.
    pub(super) fn with_tls(
        tls: Arc<ServerConfig>,
        script: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(Ipv4Addr::LOCALHOST, u64::MAX, None, Some(tls), script)
    }

    fn start_with(
        address: Ipv4Addr,
        most_open: u64,
        patience: Option<Duration>,
        tls: Option<Arc<ServerConfig>>,
        script: impl Fn(&Request) -> Response + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let is_tls = tls.is_some();
        let shared = Arc::new(Shared {
            script: Box::new(script),
            tls,
            patience,
            most_open,
            requests: Mutex::default(),
            response_fields: Mutex::default(),
            accepted: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || serving.accept(&listener));
        Self { address, tls: is_tls, shared }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.address)
    }

    /// All requests so far.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Number of responses in which the script set a header field.
    pub(super) fn responses_with(&self, name: &str) -> u64 {
        self.shared.response_fields.lock().unwrap().iter().filter(|known| *known == name).count()
            as u64
    }

    /// Connections that were accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread, which waits for a connection.
        drop(TcpStream::connect(self.address));
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        while let Ok((stream, _)) = listener.accept() {
            if self.stopped.load(Ordering::SeqCst) {
                return;
            }
            let connection = self.accepted.fetch_add(1, Ordering::SeqCst) + 1;
            if self.open() > self.most_open {
                self.closed.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            let this = Arc::clone(&self);
            thread::spawn(move || {
                // It is not a failure of the server if the client disconnects.
                drop(this.serve(connection, &stream));
                this.closed.fetch_add(1, Ordering::SeqCst);
            });
        }
    }

    fn open(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst) - self.closed.load(Ordering::SeqCst)
    }

    fn serve(&self, connection: u64, tcp: &TcpStream) -> io::Result<()> {
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(self.patience)?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(tcp.try_clone()?),
            Some(config) => {
                let session = ServerConnection::new(Arc::clone(config)).unwrap();
                Box::new(StreamOwned::new(session, tcp.try_clone()?))
            }
        };
        let mut stream = BufReader::new(stream);
        let mut nth = 0;
        while let Some(request) = Request::read(&mut stream)? {
            nth += 1;
            let request = {
                let mut all = self.requests.lock().unwrap();
                let number = all.len() as u64 + 1;
                all.push(Request { number, connection, nth, open: self.open(), ..request });
                all[all.len() - 1].clone()
            };
            let response = (self.script)(&request);
            let names = response.fields.iter().map(|(name, _)| name.clone());
            self.response_fields.lock().unwrap().extend(names);
            let sent = response.send(request.method == "HEAD", stream.get_mut());
            match response.end {
                End::Stays => sent?,
                End::Closes => {
                    tcp.shutdown(Shutdown::Write)?;
                    // With unread data the connection would be reset, and the response might be
                    // lost.
                    tcp.set_read_timeout(Some(Duration::from_secs(2)))?;
                    while stream.get_mut().read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
                    return Ok(());
                }
                End::Resets => {
                    return Ok(rustix::net::sockopt::set_socket_linger(tcp, Some(Duration::ZERO))?);
                }
                End::Drops => return Ok(()),
            }
        }
        Ok(())
    }
}
