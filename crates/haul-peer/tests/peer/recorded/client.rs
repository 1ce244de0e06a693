//! This build's client runs against recorded servers, which send the recorded responses. The [`cases`](super::cases)
//! assert the results.
//!
//! The client need not send the same frames: ids of requests and the division of data may differ, and the recorded
//! server refuses requests that it does not know, as an older server does.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use haul_peer::client::PeerHost;
use haul_peer::identity::Identity;
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_peer::tls::Role;
use haul_peer::wire::messages::{self, ToClient, ToServer, code, to_client, to_server};
use haul_peer::wire::{
    BulkHeader, FRAME_HEADER, Frame, bulk_head, decode, message_frame, piece_hash, verify,
};
use haul_storage::Block;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::cases::Case;
use super::file::{Line, parsed, receive, replaced};
use super::tap::{Bound, PATIENCE, accept, hello, message, welcome};

/// Length of the pieces in which data is sent for a Read that the recording does not have, in bytes.
const PIECE: usize = 8 << 10;

/// Runs the operations of a case against the server of a recording.
pub(super) async fn replay(case: &Case, lines: &[Line]) {
    let (identity, secret) = (Identity::ephemeral().unwrap(), Secret::generate().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::new(listener.local_addr().unwrap()).unwrap();
    let ticket = Ticket::new(identity.key(), secret.clone()).with_addresses([address]);
    let script = Script::new(lines);
    let serving = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.unwrap();
        // Further lanes are refused, as during the recording.
        drop(listener);
        let (stream, bound) = accept(socket, &identity).await;
        Server { stream, bound, secret, script }.run().await
    });
    let own = Identity::ephemeral().unwrap();
    let host = PeerHost::new(&ticket, &own, Handle::current()).unwrap();
    (case.run)(Arc::clone(&host)).await;
    drop(host);
    let script = timeout(PATIENCE, serving).await;
    let script = script.unwrap_or_else(|_| panic!("{}: the client stays connected", case.name));
    let script = script.unwrap();
    assert!(script.written == script.recorded_writes, "{}: other data was written", case.name);
}

/// Data by handle and offset.
type Data = HashMap<u32, BTreeMap<u64, Bytes>>;

/// The requests of a recording, and the server's responses.
struct Script {
    /// The server's response to the Hello.
    greeting: Bytes,
    exchanges: Vec<Exchange>,
    /// The recorded ids of requests, by their ids in this run.
    numbers: HashMap<u32, u32>,
    /// The recorded data that was read.
    read: Data,
    /// The recorded bytes that were written to each file, by handle.
    recorded_writes: HashMap<u32, Vec<u8>>,
    /// The same in this run.
    written: HashMap<u32, Vec<u8>>,
}

struct Exchange {
    request: ToServer,
    responses: Vec<Bytes>,
    is_used: bool,
}

impl Script {
    fn new(lines: &[Line]) -> Self {
        let mut script = Self {
            greeting: Bytes::new(),
            exchanges: Vec::new(),
            numbers: HashMap::new(),
            read: HashMap::new(),
            recorded_writes: HashMap::new(),
            written: HashMap::new(),
        };
        for line in lines {
            match (line.is_sent, parsed(&line.frame)) {
                (true, Frame::Message(bytes)) => {
                    let request: ToServer = decode(bytes).unwrap();
                    let exchange = Exchange { request, responses: Vec::new(), is_used: false };
                    script.exchanges.push(exchange);
                }
                (true, Frame::Bulk(header, data)) => {
                    add(&mut script.recorded_writes, &header, data);
                }
                (false, frame) => script.respond(&line.frame, frame),
                (true, Frame::Skipped) => {}
            }
        }
        script
    }

    /// Adds a recorded frame of the server.
    fn respond(&mut self, raw: &Bytes, frame: Frame) {
        let id = match frame {
            Frame::Message(bytes) => decode::<ToClient>(bytes).unwrap().id,
            Frame::Bulk(header, data) => {
                let pieces = self.read.entry(header.handle).or_default();
                pieces.insert(header.offset, data.into_bytes());
                header.id
            }
            Frame::Skipped => return,
        };
        if self.greeting.is_empty() {
            self.greeting = raw.clone();
            return;
        }
        // Writes are bulk frames and have no exchange: `Server::run` makes the responses to them.
        if let Some(exchange) = self.exchanges.iter_mut().find(|one| one.request.id == id) {
            exchange.responses.push(raw.clone());
        }
    }

    /// The recorded response to an equal request, with the id of this one.
    fn responses(&mut self, id: u32, body: &to_server::Body) -> Option<Vec<Bytes>> {
        let body = self.recorded(body);
        let found = self.exchanges.iter_mut().find(|one| {
            !one.is_used && !one.responses.is_empty() && one.request.body.as_ref() == Some(&body)
        })?;
        found.is_used = true;
        self.numbers.insert(id, found.request.id);
        Some(found.responses.iter().map(|frame| numbered(frame, id)).collect())
    }

    /// A request as it was recorded: the id of another request in it is the recorded one.
    fn recorded(&self, body: &to_server::Body) -> to_server::Body {
        let mut body = body.clone();
        if let to_server::Body::Read(read) = &mut body {
            read.opened_by = *self.numbers.get(&read.opened_by).unwrap_or(&read.opened_by);
        }
        body
    }

    /// A response to a Read that the recording does not have, with the recorded bytes of its range.
    fn range(&self, id: u32, read: &messages::Read) -> Option<Vec<Bytes>> {
        let pieces = self.read.get(&read.handle)?;
        let mut content: Vec<u8> = Vec::new();
        for (offset, piece) in pieces {
            let start = usize::try_from(*offset).unwrap();
            // Gaps between the pieces were not read in the recording.
            let end = start + piece.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[start..end].copy_from_slice(piece);
        }
        let end = (read.offset + read.length).min(content.len() as u64);
        let wanted = usize::try_from(read.offset).unwrap()..usize::try_from(end).unwrap();
        let mut frames = Vec::new();
        let mut offset = read.offset;
        for piece in content.get(wanted)?.chunks(PIECE) {
            let data = Block::from(Bytes::copy_from_slice(piece));
            let (hash, is_subtree) = piece_hash(offset, &data, None);
            let handle = read.handle;
            let header = BulkHeader { id, handle, offset, is_last: false, is_subtree, hash };
            frames.push([&bulk_head(&header, piece.len())[..], piece].concat().into());
            offset += piece.len() as u64;
        }
        frames.push(response(id, to_client::Body::ReadEnd(messages::ReadEnd { offset })));
        Some(frames)
    }
}

/// Adds written data, at its offset.
fn add(written: &mut HashMap<u32, Vec<u8>>, header: &BulkHeader, data: Block) {
    let content = written.entry(header.handle).or_default();
    let start = usize::try_from(header.offset).unwrap();
    let data = data.into_bytes();
    if content.len() < start + data.len() {
        content.resize(start + data.len(), 0);
    }
    content[start..start + data.len()].copy_from_slice(&data);
}

/// A recorded response with the id of a request in this run; unchanged if the id is the same.
fn numbered(frame: &Bytes, id: u32) -> Bytes {
    match parsed(frame) {
        Frame::Message(bytes) => {
            let recorded: ToClient = decode(bytes).unwrap();
            match recorded.id == id {
                true => frame.clone(),
                false => message_frame(&ToClient { id, ..recorded }).unwrap(),
            }
        }
        _ => {
            let mut frame = frame.to_vec();
            frame[FRAME_HEADER..FRAME_HEADER + 4].copy_from_slice(&id.to_be_bytes());
            frame.into()
        }
    }
}

fn response(id: u32, body: to_client::Body) -> Bytes {
    message_frame(&ToClient { id, body: Some(body) }).unwrap()
}

/// The recorded server, on a new connection.
struct Server {
    stream: TlsStream<TcpStream>,
    bound: Bound,
    secret: Secret,
    script: Script,
}

impl Server {
    /// Responds until the client closes the connection.
    async fn run(mut self) -> Script {
        while let Some(frame) = receive(&mut self.stream).await {
            let responses = match parsed(&frame) {
                Frame::Message(_) => {
                    let request: ToServer = message(&frame).unwrap();
                    match request.body {
                        Some(to_server::Body::Hello(_)) => vec![self.greet(&frame)],
                        Some(to_server::Body::Bye(_)) => break,
                        Some(body) => self.respond(request.id, &body),
                        None => vec![unknown(request.id)],
                    }
                }
                Frame::Bulk(header, data) => {
                    verify(&header, &data).unwrap();
                    add(&mut self.script.written, &header, data);
                    vec![response(header.id, to_client::Body::Done(messages::Empty {}))]
                }
                Frame::Skipped => Vec::new(),
            };
            // The client may have closed the connection.
            drop(self.stream.write_all(&responses.concat()).await);
            drop(self.stream.flush().await);
        }
        drop(self.stream.shutdown().await);
        self.script
    }

    fn greet(&self, frame: &Bytes) -> Bytes {
        let (nonce, _) = hello(frame).unwrap();
        let greeting = &self.script.greeting;
        match welcome(greeting) {
            Some(proof) => {
                let proven = self.bound.proof(Role::Server, &self.secret, &nonce);
                replaced(greeting, &proof, &proven)
            }
            // The recorded client was refused.
            None => greeting.clone(),
        }
    }

    fn respond(&mut self, id: u32, body: &to_server::Body) -> Vec<Bytes> {
        let done = to_client::Body::Done(messages::Empty {});
        match body {
            to_server::Body::More(_) => Vec::new(),
            to_server::Body::Ping(_) => {
                vec![response(id, to_client::Body::Pong(messages::Empty {}))]
            }
            // The client decides whether and when to send these.
            to_server::Body::Cancel(_)
            | to_server::Body::Answered(_)
            | to_server::Body::Close(_)
            | to_server::Body::Abort(_) => match id {
                0 => Vec::new(),
                _ => vec![response(id, done)],
            },
            body => {
                let found = self.script.responses(id, body);
                let found = found.or_else(|| match body {
                    to_server::Body::Read(read) => self.script.range(id, read),
                    _ => None,
                });
                found.unwrap_or_else(|| vec![unknown(id)])
            }
        }
    }
}

/// The response to a request that a server does not know.
fn unknown(id: u32) -> Bytes {
    response(
        id,
        to_client::Body::Failed(messages::Error {
            kind: code::ErrorKind::Unsupported.number(),
            retry: code::Retry::Never.number(),
            operation: "execute the request".to_owned(),
            cause: "the recording has no such request".to_owned(),
            hint: None,
        }),
    )
}
