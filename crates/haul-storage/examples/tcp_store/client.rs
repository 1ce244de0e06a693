//! The client of the protocol: one connection, opened when needed, with one request at a time. Here errors
//! get their kind, operation and location.

use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, TryGetError};
use haul_storage::{Entry, Error, ErrorKind, LinkStatus, Location, RelPath, Result};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wire::{self, Op, REFUSALS, Request};

/// A server that takes longer for one response counts as lost.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Client {
    location: Location,
    address: SocketAddr,
    stream: tokio::sync::Mutex<Option<TcpStream>>,
    status: Mutex<LinkStatus>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        // A backend of haul itself would have its own `Scheme`.
        let location = Location::Named { name: address.to_string(), path: Vec::new() };
        let (stream, status) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { location, address, stream, status }
    }

    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Sends a request and decodes the fields of its response.
    pub async fn ask<T>(
        &self,
        request: Request,
        decode: impl FnOnce(&mut Bytes) -> Result<T, TryGetError>,
    ) -> Result<T> {
        let outcome = match self.exchange(&request).await {
            Ok(mut fields) => decode(&mut fields).map_err(|error| {
                Error::new(ErrorKind::Protocol, request.op.verb()).with_source(error)
            }),
            Err(error) => Err(error),
        };
        outcome.map_err(|error| error.at(self.location.display(&request.path)))
    }

    /// Sends a request whose response has no fields.
    pub async fn tell(&self, request: Request) -> Result<()> {
        self.ask(request, |_| Ok(())).await
    }

    /// An entry and the id of its content.
    pub async fn look(&self, op: Op, path: &RelPath) -> Result<(Entry, u64)> {
        self.ask(Request::new(op, path), |fields| wire::get_entry(path, fields)).await
    }

    pub fn status(&self) -> LinkStatus {
        let status = *self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = match self.stream.try_lock() {
            Ok(slot) => slot.is_some(),
            // A request is using it, unless it is the first one, which is still connecting.
            Err(_) => status.connect.is_some(),
        };
        LinkStatus { open: is_open.into(), ..status }
    }

    fn note(&self, change: impl FnOnce(&mut LinkStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the fields of the response. If sending or receiving fails or is dropped halfway, the connection
    /// is closed: the rest of one response must not be taken for the next. A refusal leaves it open.
    async fn exchange(&self, request: &Request) -> Result<Bytes> {
        let operation = request.op.verb();
        if request.body().remaining() > wire::MAX_FRAME {
            return Err(Error::new(ErrorKind::InvalidInput, operation).because("it is too long"));
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
            self.note(|status| status.rtt = Some(status.rtt.map_or(rtt, |least| least.min(rtt))));
            Ok((stream, response))
        };
        let outcome = timeout(PATIENCE, work).await.unwrap_or_else(|late| Err(late.into()));
        let (stream, mut response) = outcome.map_err(|error: io::Error| {
            self.note(|status| status.refused += 1);
            let kind = match error.kind() {
                io::ErrorKind::InvalidData => ErrorKind::Protocol,
                // Includes the end of the stream: a new connection may help.
                _ => ErrorKind::Unreachable,
            };
            Error::new(kind, operation).with_source(error)
        })?;
        *slot = Some(stream);
        match response.try_get_u8().map(usize::from) {
            Ok(0) => Ok(response),
            Ok(n) if n <= REFUSALS.len() => Err(Error::new(REFUSALS[n - 1], operation)),
            _ => Err(Error::new(ErrorKind::Protocol, operation).because("unknown status")),
        }
    }

    async fn connect(&self) -> io::Result<TcpStream> {
        let begun = Instant::now();
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        self.note(|status| _ = status.connect.get_or_insert(begun.elapsed()));
        Ok(stream)
    }
}
