//! A connection to an origin: TCP, TLS, HTTP/1.1.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use haul_net::tls::{self, TlsOptions};
use haul_net::{DialOptions, Gauge, Hold, dial, with_port};
use haul_storage::{Error, ErrorKind, Result};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::body::Payload;
use crate::parse::{Origin, WebScheme};

/// How long a connection may take, and how long bytes that were sent may stay unconfirmed.
const PATIENCE: Duration = Duration::from_secs(60);

/// The most that is read at once; hyper finds how much is worth it.
const READ_MOST: usize = 512 << 10;

/// Makes connections, all with the same idea of whom to trust.
#[derive(Debug)]
pub struct Connector {
    options: TlsOptions,
    tls: Mutex<Option<Arc<ClientConfig>>>,
    runtime: Handle,
}

/// A connection that bytes go through.
#[derive(Debug)]
pub struct Connected<T> {
    /// The connection.
    pub stream: T,
    /// The round trip of the TCP handshake.
    pub round_trip: Duration,
    /// What the kernel knows of it.
    pub gauge: Option<Gauge>,
}

impl Connector {
    /// Connections are kept going on `runtime`.
    pub fn new(options: TlsOptions, runtime: Handle) -> Self {
        Self { options, tls: Mutex::default(), runtime }
    }

    /// Connects, for requests one after the other. `dialled` learns the round trip as soon as it is
    /// known.
    pub async fn connect(
        &self,
        origin: &Origin,
        dialled: impl FnOnce(Duration) + Send,
    ) -> Result<Connected<SendRequest<Payload>>> {
        let Connected { stream, round_trip, gauge } = self.reach(origin, dialled).await?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(READ_MOST);
        let shaken = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|error| {
            Error::new(ErrorKind::Unreachable, "connect").at(origin).with_source(error)
        })?;
        // What ends a connection is told to whoever has a request on it.
        self.runtime.spawn(async move { drop(connection.await) });
        Ok(Connected { stream: sender, round_trip, gauge })
    }

    /// Connects, and says nothing yet.
    pub async fn reach(
        &self,
        origin: &Origin,
        dialled: impl FnOnce(Duration) + Send,
    ) -> Result<Connected<Link>> {
        let options = DialOptions {
            limit: Some(PATIENCE),
            silence: Some(PATIENCE),
            ..DialOptions::default()
        };
        let tcp = dial(origin.host(), origin.port(), &options).await?;
        dialled(tcp.round_trip);
        let (gauge, hold) = Gauge::of(&tcp.stream).ok().unzip();
        let way = if origin.scheme() == WebScheme::Https {
            let config = self.tls()?;
            let name = tls::server_name(origin.host())?;
            let at = with_port(origin.host(), origin.port());
            let handshake = TlsConnector::from(config).connect(name, tcp.stream);
            let done = timeout(PATIENCE, handshake).await;
            let done = done.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            Way::Tls(Box::new(done.map_err(|error| tls::explain(error, &at))?))
        } else {
            Way::Plain(tcp.stream)
        };
        Ok(Connected { stream: Link { way, _hold: hold }, round_trip: tcp.round_trip, gauge })
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

/// A stream, and what of it has to end with it.
#[derive(Debug)]
pub struct Link {
    way: Way,
    _hold: Option<Hold>,
}

#[derive(Debug)]
enum Way {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Way::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Way::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Way::Tls(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_flush(context),
            Way::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.way {
            Way::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Way::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
