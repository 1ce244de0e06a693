//! A connection to an origin: TCP, directly or through a proxy, and TLS for `https`.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use haul_net::tls::{self, TlsOptions};
use haul_net::{
    BudgetShare, DialOptions, Hold, HostWaits, Reach, ReceiveBudget, RttGauge, Waits, dial,
    with_port,
};
use haul_storage::{Error, ErrorKind, Result};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::options::HttpOptions;
use super::order::Order;
use super::proxy::{Proxies, tunnel};
use crate::parse::proxy::{Protocol, Proxy};
use crate::parse::{Origin, WebScheme};

/// Opens connections, all with the same TLS and proxy settings.
#[derive(Debug)]
pub struct Connector {
    options: TlsOptions,
    proxies: Proxies,
    tls: Mutex<Option<Arc<ClientConfig>>>,
    waits: Waits,
    reach: Reach,
    hosts: Mutex<HashMap<Origin, Host>>,
}

/// State that all connections to a server share.
#[derive(Debug, Clone)]
pub struct Host {
    /// The waits for it.
    pub waits: HostWaits,
    /// Whether a body that was to be discarded did not end.
    pub endless: Arc<AtomicBool>,
    /// What is known about the order of its responses.
    pub order: Arc<Order>,
}

/// An open connection.
#[derive(Debug)]
pub struct Connected<T> {
    /// The connection.
    pub stream: T,
    /// The RTT of the TCP handshake with the server or the HTTP proxy; through a SOCKS proxy, that of the request to
    /// connect.
    pub rtt: Duration,
    /// Reads the kernel's RTT of the connection.
    pub gauge: Option<RttGauge>,
}

impl Connector {
    /// With the user's options.
    pub fn new(options: &HttpOptions) -> Self {
        let (waits, reach) = (options.waits.clone(), options.reach);
        let (options, proxies) = (options.tls.clone(), options.proxies.clone());
        let (tls, hosts) = (Mutex::default(), Mutex::default());
        Self { options, proxies, tls, waits, reach, hosts }
    }

    /// The shared state of a server.
    pub fn host(&self, origin: &Origin) -> Host {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Host {
            waits: self.waits.of(with_port(origin.host(), origin.port())),
            endless: Arc::default(),
            order: Arc::default(),
        };
        hosts.entry(origin.clone()).or_insert_with(new).clone()
    }

    /// The waits for a server.
    pub fn waits(&self, origin: &Origin) -> HostWaits {
        self.host(origin).waits
    }

    /// The HTTP proxy of a server without TLS; each request through it names the whole URL.
    ///
    /// # Errors
    /// The configured proxy (environment or option) cannot be used.
    pub fn proxy_of_plain(&self, origin: &Origin) -> Result<Option<Proxy>> {
        if origin.scheme() == WebScheme::Https {
            return Ok(None);
        }
        Ok(self.proxies.of(origin)?.filter(|proxy| proxy.protocol == Protocol::Http))
    }

    /// Connects without sending a request. `dialled` gets the RTT as soon as it is known.
    pub async fn reach(
        &self,
        origin: &Origin,
        dialled: impl FnOnce(Duration) + Send,
    ) -> Result<Connected<Link>> {
        let waits = self.waits(origin);
        waits.watch(|| "connection".to_owned(), self.opened(origin, dialled)).await
    }

    async fn opened(
        &self,
        origin: &Origin,
        dialled: impl FnOnce(Duration) + Send,
    ) -> Result<Connected<Link>> {
        let silence = self.waits.silence();
        let proxy = self.proxies.of(origin)?;
        let socks = proxy.as_ref().and_then(Proxy::socks);
        let proxy = proxy.filter(|_| socks.is_none());
        let options = DialOptions {
            family: self.reach.family,
            limit: Some(self.reach.limit),
            silence: Some(silence),
            proxy: socks,
            ..DialOptions::default()
        };
        let to = proxy.as_ref().map_or(origin, |proxy| &proxy.origin);
        let tcp = dial(to.host(), to.port(), &options).await?;
        dialled(tcp.rtt);
        let (gauge, hold) = RttGauge::of(&tcp.stream).ok().unzip();
        let mut layers = Layered::Plain(tcp.stream);
        if let Some(proxy) = &proxy {
            if proxy.origin.scheme() == WebScheme::Https {
                layers = self.secure(layers, &proxy.origin).await?;
            }
            if origin.scheme() == WebScheme::Https {
                let opened = timeout(silence, tunnel(&mut layers, proxy, origin)).await;
                opened.unwrap_or_else(|_| Err(silent(proxy, silence)))?;
            }
        }
        if origin.scheme() == WebScheme::Https {
            layers = self.secure(layers, origin).await?;
        }
        Ok(Connected {
            stream: Link { layers, feeder: None, waits: self.waits(origin), _hold: hold },
            rtt: tcp.rtt,
            gauge,
        })
    }

    async fn secure(&self, layers: Layered, origin: &Origin) -> Result<Layered> {
        let config = self.tls()?;
        let silence = self.waits.silence();
        let name = tls::server_name(origin.host())?;
        let at = with_port(origin.host(), origin.port());
        let failed = |error| tls::explain(error, &at);
        let connector = TlsConnector::from(config);
        match layers {
            Layered::Plain(stream) => {
                let buffered = BufReader::with_capacity(tls::READ_AHEAD, stream);
                let done = timeout(silence, connector.connect(name, buffered)).await;
                let stream = in_time(done).map_err(failed)?;
                Ok(Layered::Tls(Box::new(stream)))
            }
            // TLS to a proxy, and within that TLS to the server.
            other => {
                let inner: Box<dyn Stream> = Box::new(other);
                let done = timeout(silence, connector.connect(name, inner)).await;
                let stream = in_time(done).map_err(failed)?;
                Ok(Layered::Within(Box::new(stream)))
            }
        }
    }

    fn tls(&self) -> Result<Arc<ClientConfig>> {
        let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*tls {
            return Ok(Arc::clone(config));
        }
        let config = self.options.client_config(&[b"http/1.1"])?;
        Ok(Arc::clone(tls.insert(config)))
    }
}

/// A connection, and the resources released with it.
#[derive(Debug)]
pub struct Link {
    layers: Layered,
    /// This connection's share of the receive budget; bytes received count toward it.
    feeder: Option<BudgetShare>,
    waits: HostWaits,
    _hold: Option<Hold>,
}

impl Link {
    /// From now on, bytes received count toward this receive budget.
    pub fn feed(&mut self, receive_budget: &Arc<ReceiveBudget>) {
        self.feeder = self.layers.socket().map(|socket| receive_budget.add_connection(socket));
    }

    /// If the socket accepted bytes, that counts as a sign of life of the peer.
    fn on_written(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.waits.on_activity();
        }
    }

    /// Bytes were received: updates the limit of bytes in flight.
    fn on_received(&mut self) {
        self.waits.on_activity();
        let Some((socket, feeder)) = self.layers.socket().zip(self.feeder.as_mut()) else { return };
        let Some(most) = feeder.allowed_bytes(socket) else { return };
        // If the limit cannot be set now, because many bytes are unread, the next received bytes set it.
        haul_net::receive_at_most(socket, most);
    }
}

#[derive(Debug)]
enum Layered {
    Plain(TcpStream),
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
    Within(Box<TlsStream<Box<dyn Stream>>>),
}

impl Layered {
    /// The TCP socket, unless it is hidden by TLS within TLS to a proxy.
    fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(stream) => Some(stream.get_ref().0.get_ref()),
            Self::Within(_) => None,
        }
    }
}

/// A stream that TLS can run over.
trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Sync + Unpin> Stream for T {}

fn in_time<T>(done: Result<io::Result<T>, Elapsed>) -> io::Result<T> {
    done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn silent(proxy: &Proxy, silence: Duration) -> Error {
    let error = Error::new(ErrorKind::Unreachable, "connect through the proxy").at(proxy);
    error.because(format!("timed out after {} s", silence.as_secs()))
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.layers).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.on_received();
        }
        read
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.layers).poll_write(context, bytes);
        self.on_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.layers).poll_write_vectored(context, pieces);
        self.on_written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.layers).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.layers).poll_shutdown(context)
    }
}

impl AsyncRead for Layered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Within(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Layered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Within(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Within(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
            Self::Within(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Within(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn all_bytes_arrive_over_a_connection_with_a_receive_budget() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        let receive_budget = ReceiveBudget::over(Duration::from_millis(20)).unwrap();
        let mut link = Link {
            layers: Layered::Plain(stream),
            feeder: None,
            waits: HostWaits::default(),
            _hold: None,
        };
        link.feed(&receive_budget);
        assert!(link.feeder.is_some());
        let whole: Vec<u8> = (0..16 << 20).map(|at: u32| (at / 251) as u8).collect();
        let sent = whole.clone();
        let sending = tokio::spawn(async move {
            far.write_all(&sent).await.unwrap();
            far
        });
        let mut received = vec![0; whole.len()];
        for piece in received.chunks_mut(1_000_003) {
            link.read_exact(piece).await.unwrap();
            // The reader may be slower than the sender.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(sending.await.unwrap());
        assert!(received == whole);
        assert_eq!(link.read(&mut [0; 1]).await.unwrap(), 0);
    }
}
