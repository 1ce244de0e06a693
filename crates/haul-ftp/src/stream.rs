//! One connection, with TLS or without.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// rustls asks for a few thousand bytes at a time; the kernel is asked for this many.
const RECEIVED: usize = 128 << 10;

/// A connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<BufReader<TcpStream>>>),
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

    /// Begins TLS.
    pub(crate) async fn secure(&self, stream: TcpStream) -> io::Result<Stream> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = BufReader::with_capacity(RECEIVED, stream);
        Ok(Stream::Tls(Box::new(connector.connect(self.name.clone(), stream).await?)))
    }
}

impl Stream {
    /// Whether it is encrypted.
    pub(crate) const fn is_secure(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The connection below, if it is plain.
    pub(crate) fn into_plain(self) -> Option<TcpStream> {
        match self {
            Self::Plain(stream) => Some(stream),
            Self::Tls(_) => None,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => match Pin::new(stream).poll_read(context, buffer) {
                // Many servers end a data connection without saying so to TLS. Whether all has come
                // the length tells, and the reply on the control connection.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
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
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
