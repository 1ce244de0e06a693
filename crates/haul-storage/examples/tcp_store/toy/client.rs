//! The client library: one connection, opened when needed, with one request at a time.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use bytes::{Buf, Bytes, TryGetError};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::wire::{self, Refusal, Request};

/// Time limit for one request, including connecting; after it, the connection counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// The connection could not be opened, was lost, or was silent for too long.
    Connection(io::Error),
    /// The server sent something that is not the protocol.
    Malformed,
    /// The request is longer than a frame may be, and was not sent.
    TooLong,
    Refused(Refusal),
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(error) => write!(to, "{error}"),
            Self::Malformed => write!(to, "the response is malformed"),
            Self::TooLong => write!(to, "the request is too long"),
            Self::Refused(refusal) => write!(to, "the server refuses: {refusal:?}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<TryGetError> for Failure {
    fn from(_: TryGetError) -> Self {
        Self::Malformed
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Malformed,
            _ => Self::Connection(error),
        }
    }
}

/// Statistics of the connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured {
    pub is_open: bool,
    /// Connections that were lost or could not be opened.
    pub lost: usize,
    /// The shortest time from a request to its response.
    pub rtt: Option<Duration>,
    /// How long the first connection took to open.
    pub connect: Option<Duration>,
}

#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    stream: tokio::sync::Mutex<Option<TcpStream>>,
    measured: Mutex<Measured>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: tokio::sync::Mutex::default(), measured: Mutex::default() }
    }

    pub fn measured(&self) -> Measured {
        let measured = *self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = match self.stream.try_lock() {
            Ok(slot) => slot.is_some(),
            // A request is using it, or reopening it after a loss, unless it was never open.
            Err(_) => measured.connect.is_some(),
        };
        Measured { is_open, ..measured }
    }

    /// Sends a request. Returns the fields of the response.
    ///
    /// If sending or receiving fails or is dropped halfway, the connection is closed: the rest of one response must
    /// not be taken for the next. A refusal leaves it open.
    ///
    /// # Errors
    /// The server refuses the request or cannot be reached, the response is malformed, or the request is too long.
    pub async fn request(&self, request: &Request) -> Result<Bytes, Failure> {
        if request.body().remaining() > wire::MAX_FRAME {
            return Err(Failure::TooLong);
        }
        let mut slot = self.stream.lock().await;
        let idle = slot.take();
        let work = async {
            let mut stream = match idle {
                Some(stream) => stream,
                None => self.connect().await?,
            };
            let begun = Instant::now();
            wire::send(&mut stream, request.body()).await?;
            let response = wire::receive(&mut stream).await?;
            let rtt = begun.elapsed();
            self.note(|seen| seen.rtt = Some(seen.rtt.map_or(rtt, |least| least.min(rtt))));
            Ok((stream, response))
        };
        let outcome = timeout(PATIENCE, work).await.unwrap_or_else(|late| Err(late.into()));
        let (stream, mut response) = outcome.map_err(|error: io::Error| {
            self.note(|seen| seen.lost += 1);
            Failure::from(error)
        })?;
        *slot = Some(stream);
        match response.try_get_u8()? {
            0 => Ok(response),
            status => Err(Refusal::of(status).map_or(Failure::Malformed, Failure::Refused)),
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let begun = Instant::now();
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        self.note(|seen| _ = seen.connect.get_or_insert(begun.elapsed()));
        Ok(stream)
    }

    fn note(&self, change: impl FnOnce(&mut Measured)) {
        change(&mut self.measured.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
