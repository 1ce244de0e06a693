//! One connection, with TLS or without.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BufMut;
use haul_net::tls::READ_AHEAD;
use haul_net::{BudgetShare, Direction, Hold, HostWaits, ReceiveBudget, RttGauge};
use haul_storage::Result;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::{broken, lost};

/// How long a server may be silent, and where long waits for it are reported.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    /// A connection fails when nothing is received on it, or taken from it, for this long.
    pub(crate) silence: Duration,
    pub(crate) waits: HostWaits,
}

impl Patience {
    /// Awaits what moves bytes on a connection; `what` is expected from the server.
    async fn within<T>(
        &self,
        operation: &'static str,
        what: impl Fn() -> String,
        moving: impl Future<Output = io::Result<T>>,
    ) -> Result<T> {
        match self.waits.within(self.silence, what, moving).await {
            Some(moved) => moved.map_err(|error| broken(operation, error)),
            None => {
                let seconds = self.silence.as_secs_f32();
                Err(lost(operation, format!("no data in either direction for {seconds} s")))
            }
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream {
    link: Link,
    patience: Patience,
    /// The command whose data this connection carries; empty on a control connection.
    command: Arc<str>,
    /// TLS was not ended before the connection was.
    broke_off: bool,
    /// What comes counts for how much may be under way.
    feeder: Option<BudgetShare>,
    /// Times the packets of a data connection in use.
    gauge: Option<(Arc<RttGauge>, Hold)>,
    /// No more than this is wanted.
    wanted: u64,
    /// The far end was told to send no more than so much.
    limited: bool,
}

#[derive(Debug)]
enum Link {
    Plain(TcpStream),
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
    /// None: there is nothing to come.
    Nothing,
}

impl Link {
    fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(stream) => Some(stream.get_ref().0.get_ref()),
            Self::Nothing => None,
        }
    }
}

/// What the connections of one lane share: servers take a data connection for that of a control
/// connection only if it resumes its session.
#[derive(Debug, Clone)]
pub(crate) struct Security {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Security {
    /// With sessions of its own: a server may keep those of each control connection apart, and what
    /// another one gave is worth nothing then.
    pub(crate) fn new(base: &ClientConfig, name: ServerName<'static>) -> Self {
        let mut config = base.clone();
        config.resumption = rustls::client::Resumption::in_memory_sessions(4);
        Self { config: Arc::new(config), name }
    }

    /// Begins TLS, unless it is there.
    pub(crate) async fn secure(&self, stream: Stream) -> io::Result<Stream> {
        let what = stream.handshake();
        let Link::Plain(plain) = stream.link else { return Ok(stream) };
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let buffered = BufReader::with_capacity(READ_AHEAD, plain);
        let handshake = connector.connect(self.name.clone(), buffered);
        let Patience { silence, waits } = &stream.patience;
        let secure = waits.within(*silence, || what.clone(), handshake).await;
        let secure = secure.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))??;
        Ok(Stream { link: Link::Tls(Box::new(secure)), ..stream })
    }
}

impl Stream {
    /// A control connection in plain text.
    pub(crate) fn plain(stream: TcpStream, patience: Patience) -> Self {
        Self::over(Link::Plain(stream), patience, Arc::from(""))
    }

    /// A data connection in plain text, for the data of `command`.
    pub(crate) fn data(stream: TcpStream, patience: Patience, command: Arc<str>) -> Self {
        Self::over(Link::Plain(stream), patience, command)
    }

    /// What a server sends that says it is done before it has begun: an end.
    pub(crate) fn nothing(patience: Patience) -> Self {
        Self::over(Link::Nothing, patience, Arc::from(""))
    }

    const fn over(link: Link, patience: Patience, command: Arc<str>) -> Self {
        Self {
            link,
            patience,
            command,
            broke_off: false,
            feeder: None,
            gauge: None,
            wanted: u64::MAX,
            limited: false,
        }
    }

    /// How long nothing at all may come or go.
    pub(crate) const fn silence(&self) -> Duration {
        self.patience.silence
    }

    fn handshake(&self) -> String {
        match &self.command[..] {
            "" => "TLS handshake".to_owned(),
            command => format!("TLS handshake for {command}"),
        }
    }

    /// Waits until something has come, or the end.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self.link.socket() {
            Some(socket) => socket.readable().await,
            None => Ok(()),
        }
    }

    /// Whether it is encrypted.
    pub(crate) const fn is_secure(&self) -> bool {
        matches!(self.link, Link::Tls(_))
    }

    /// At its end: whether TLS said so. Without TLS nobody could.
    pub(crate) const fn ended_properly(&self) -> Option<bool> {
        if self.is_secure() { Some(!self.broke_off) } else { None }
    }

    /// Reads data of the connection's command; 0 at the end.
    pub(crate) async fn receive(
        &mut self,
        operation: &'static str,
        buffer: &mut (impl BufMut + Send),
    ) -> Result<usize> {
        let (patience, command) = (self.patience.clone(), Arc::clone(&self.command));
        let what = || format!("data of {command}");
        patience.within(operation, what, self.read_buf(buffer)).await
    }

    /// Reads what is expected on a control connection, as `what` names it; 0 at the end.
    pub(crate) async fn receive_reply(
        &mut self,
        operation: &'static str,
        what: &str,
        buffer: &mut (impl BufMut + Send),
    ) -> Result<usize> {
        let patience = self.patience.clone();
        patience.within(operation, || what.to_owned(), self.read_buf(buffer)).await
    }

    /// Says that no more than so many bytes of what comes are wanted. What else was sent until the
    /// connection is closed would have come in vain.
    pub(crate) const fn expect_at_most(&mut self, bytes: u64) {
        self.wanted = bytes;
    }

    /// From now on, bytes received count toward this receive_budget.
    pub(crate) fn feed(&mut self, receive_budget: Option<&Arc<ReceiveBudget>>) {
        self.feeder = receive_budget
            .zip(self.link.socket())
            .map(|(receive_budget, socket)| receive_budget.feeder(socket));
    }

    /// Times packets until the stream is dropped or [`Stream::rest`] is called; `None` where that cannot be done.
    pub(crate) fn measure(&mut self, direction: Direction) -> Option<&Arc<RttGauge>> {
        let (gauge, hold) = RttGauge::of_data(self.link.socket()?, direction).ok()?;
        let (gauge, _) = self.gauge.insert((Arc::new(gauge), hold));
        Some(gauge)
    }

    /// From now on, bytes received count toward no receive_budget: the download is suspended.
    pub(crate) fn rest(&mut self) {
        (self.feeder, self.gauge) = (None, None);
    }

    /// Counts what came, and says how much more may be under way.
    pub(crate) fn came(&mut self, bytes: u64) {
        let Some(socket) = self.link.socket() else { return };
        let share = self.feeder.as_mut().and_then(|feeder| feeder.share(socket));
        if self.wanted < u64::MAX {
            self.wanted = self.wanted.saturating_sub(bytes);
        }
        let most = share.unwrap_or(u64::MAX).min(self.wanted);
        // What has been said holds until something else is.
        let is_limit = most < u64::MAX;
        if !is_limit && !self.limited {
            return;
        }
        // Where it cannot be said more comes, and is thrown away.
        if haul_net::receive_at_most(socket, most) {
            self.limited = is_limit;
        }
    }

    /// Sends all of it. A slow connection may take its time, a dead one may not.
    pub(crate) async fn send(&mut self, operation: &'static str, bytes: &[u8]) -> Result<()> {
        let (patience, command) = (self.patience.clone(), Arc::clone(&self.command));
        let what = || match &command[..] {
            "" => "send buffer space for a command".to_owned(),
            command => format!("send buffer space for {command}"),
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            let sent = patience.within(operation, what, self.write(rest)).await?;
            if sent == 0 {
                return Err(lost(operation, "the connection accepts no more data"));
            }
            rest = &rest[sent..];
        }
        patience.within(operation, what, self.flush()).await
    }

    /// Says that nothing more comes from here.
    pub(crate) async fn end(&mut self, operation: &'static str) -> Result<()> {
        let (patience, command) = (self.patience.clone(), Arc::clone(&self.command));
        let what = || format!("send buffer space for the end of {command}");
        patience.within(operation, what, self.shutdown()).await
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.link {
            Link::Nothing => Poll::Ready(Ok(())),
            Link::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Link::Tls(stream) => match Pin::new(stream).poll_read(context, buffer) {
                // Many servers end a data connection without saying so to TLS. Whether all has come
                // the length tells, and the reply on the control connection.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    this.broke_off = true;
                    Poll::Ready(Ok(()))
                }
                other => other,
            },
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().link {
            Link::Nothing => Poll::Ready(Ok(0)),
            Link::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Link::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().link {
            Link::Nothing => Poll::Ready(Ok(())),
            Link::Plain(stream) => Pin::new(stream).poll_flush(context),
            Link::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().link {
            Link::Nothing => Poll::Ready(Ok(())),
            Link::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Link::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
