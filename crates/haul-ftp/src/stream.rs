//! A control or data connection, with or without TLS.

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

/// The timeout of a connection, and where long waits are reported.
#[derive(Debug, Clone)]
pub(crate) struct Patience {
    /// A connection fails when no data moves in either direction for this long.
    pub(crate) silence: Duration,
    pub(crate) waits: HostWaits,
}

impl Patience {
    /// Awaits an I/O operation on a connection, within the timeout. `what` names the awaited data or event in reports
    /// of long waits.
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
    /// The connection ended without a TLS `close_notify`.
    is_truncated: bool,
    /// The error of an earlier read: a socket returns it once, then the end.
    failure: Option<Failure>,
    /// This connection's share of the receive budget, which limits the bytes in flight.
    share: Option<BudgetShare>,
    /// Measures the RTT of a data connection in use.
    gauge: Option<(Arc<RttGauge>, Hold)>,
    /// Maximum bytes that are still wanted.
    wanted: u64,
    /// Whether the receive window is limited.
    limited: bool,
}

/// The error of a read.
#[derive(Debug)]
struct Failure {
    kind: io::ErrorKind,
    code: Option<i32>,
}

impl Failure {
    fn error(&self) -> io::Error {
        self.code.map_or_else(|| self.kind.into(), io::Error::from_raw_os_error)
    }
}

#[derive(Debug)]
enum Link {
    Plain(TcpStream),
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
    /// No connection: reads return the end at once.
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

/// The TLS configuration that the connections of one lane share. Many servers accept a data connection only if
/// it resumes the TLS session of the control connection.
#[derive(Debug, Clone)]
pub(crate) struct Security {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Security {
    /// A configuration with its own session cache: a server may accept only sessions of the same control connection.
    pub(crate) fn new(base: &ClientConfig, name: ServerName<'static>) -> Self {
        let mut config = base.clone();
        config.resumption = rustls::client::Resumption::in_memory_sessions(4);
        Self { config: Arc::new(config), name }
    }

    /// Performs the TLS handshake, unless the stream already uses TLS.
    ///
    /// # Errors
    /// `TimedOut` after the timeout of the connection; those of the handshake.
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

    /// An empty data stream, for a server that reports success without opening a data connection.
    pub(crate) fn nothing(patience: Patience) -> Self {
        Self::over(Link::Nothing, patience, Arc::from(""))
    }

    const fn over(link: Link, patience: Patience, command: Arc<str>) -> Self {
        Self {
            link,
            patience,
            command,
            is_truncated: false,
            failure: None,
            share: None,
            gauge: None,
            wanted: u64::MAX,
            limited: false,
        }
    }

    /// How long no data may move in either direction.
    pub(crate) const fn silence(&self) -> Duration {
        self.patience.silence
    }

    /// Sets how long no data may move in either direction.
    pub(crate) const fn set_silence(&mut self, silence: Duration) {
        self.patience.silence = silence;
    }

    fn handshake(&self) -> String {
        match &self.command[..] {
            "" => "TLS handshake".to_owned(),
            command => format!("TLS handshake for {command}"),
        }
    }

    /// Waits until the socket can be read: data, the end of the stream, or a TLS session ticket.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self.link.socket() {
            Some(socket) => socket.readable().await,
            None => Ok(()),
        }
    }

    /// Whether the connection uses TLS.
    pub(crate) const fn is_secure(&self) -> bool {
        matches!(self.link, Link::Tls(_))
    }

    /// At the end of the stream: whether it ended with a TLS `close_notify`; `None` without TLS.
    pub(crate) const fn ended_properly(&self) -> Option<bool> {
        if self.is_secure() { Some(!self.is_truncated) } else { None }
    }

    /// Reads from a data connection; returns 0 at the end.
    pub(crate) async fn receive(
        &mut self,
        operation: &'static str,
        buffer: &mut (impl BufMut + Send),
    ) -> Result<usize> {
        let (patience, command) = (self.patience.clone(), Arc::clone(&self.command));
        let what = || format!("data of {command}");
        patience.within(operation, what, self.read_buf(buffer)).await
    }

    /// Reads from a control connection; returns 0 at the end. `what` describes the expected reply.
    pub(crate) async fn receive_reply(
        &mut self,
        operation: &'static str,
        what: &str,
        buffer: &mut (impl BufMut + Send),
    ) -> Result<usize> {
        let patience = self.patience.clone();
        patience.within(operation, || what.to_owned(), self.read_buf(buffer)).await
    }

    /// Limits the receive window to the bytes that are still wanted, because everything sent beyond them until the
    /// connection is closed would be wasted.
    pub(crate) const fn expect_at_most(&mut self, bytes: u64) {
        self.wanted = bytes;
    }

    /// Counts bytes received from now on toward this receive budget.
    pub(crate) fn count_toward(&mut self, receive_budget: Option<&Arc<ReceiveBudget>>) {
        self.share = receive_budget
            .zip(self.link.socket())
            .map(|(receive_budget, socket)| receive_budget.add_connection(socket));
    }

    /// Measures the RTT until the stream is dropped or [`Stream::suspend`] is called; `None` where that is not
    /// possible.
    pub(crate) fn measure(&mut self, direction: Direction) -> Option<&Arc<RttGauge>> {
        let (gauge, hold) = RttGauge::of_data(self.link.socket()?, direction).ok()?;
        let (gauge, _) = self.gauge.insert((Arc::new(gauge), hold));
        Some(gauge)
    }

    /// Suspends a download: its bytes no longer count toward the receive budget, and the RTT is not measured.
    pub(crate) fn suspend(&mut self) {
        (self.share, self.gauge) = (None, None);
    }

    /// Counts received bytes, and adjusts the receive window.
    pub(crate) fn on_received(&mut self, bytes: u64) {
        let Some(socket) = self.link.socket() else { return };
        let share = self.share.as_mut().and_then(|share| share.allowed_bytes(socket));
        if self.wanted < u64::MAX {
            self.wanted = self.wanted.saturating_sub(bytes);
        }
        let most = share.unwrap_or(u64::MAX).min(self.wanted);
        // A limit stays in effect until it is replaced.
        let is_limit = most < u64::MAX;
        if !is_limit && !self.limited {
            return;
        }
        // If the window cannot be limited, more bytes than needed arrive and are discarded.
        if haul_net::receive_at_most(socket, most) {
            self.limited = is_limit;
        }
    }

    /// Sends all of `bytes`. The timeout starts anew with each write that makes progress, so only a connection that
    /// accepts nothing fails.
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

    /// Closes the sending direction.
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
        if let Some(failure) = &this.failure {
            return Poll::Ready(Err(failure.error()));
        }
        let read = match &mut this.link {
            Link::Nothing => Poll::Ready(Ok(())),
            Link::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Link::Tls(stream) => match Pin::new(stream).poll_read(context, buffer) {
                // Many servers close a data connection without a TLS `close_notify`. The size and the reply on the
                // control connection show whether the data is complete.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    this.is_truncated = true;
                    Poll::Ready(Ok(()))
                }
                other => other,
            },
        };
        if let Poll::Ready(Err(error)) = &read {
            this.failure = Some(Failure { kind: error.kind(), code: error.raw_os_error() });
        }
        read
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    /// Formerly, the second read returned the end of the data, so that a listing that was cut off looked complete.
    #[tokio::test]
    async fn every_read_of_a_connection_that_was_reset_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"unread").await.unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"half").unwrap();
        let patience = Patience { silence: Duration::from_secs(20), waits: HostWaits::default() };
        let mut stream = Stream::data(client, patience, Arc::from("MLSD"));
        let mut buffer = bytes::BytesMut::new();
        assert_eq!(stream.receive("list", &mut buffer).await.unwrap(), 4);
        // With unread data, this is a reset.
        drop(server);
        for _ in 0..2 {
            let error = stream.receive("list", &mut buffer).await.unwrap_err();
            assert!(error.to_string().contains("reset"), "{error}");
        }
    }
}
