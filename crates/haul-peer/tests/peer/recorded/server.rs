//! Recorded clients run against this build's server: its responses must mean the same as the recorded ones.
//!
//! These may differ: session, token, proof and limits in a Welcome; numbers of handles and files; the free space; times
//! that no client has set; the texts of errors; how entries and data are divided between frames. If a later version
//! adds a field to a response, mask it too ([`masked`]), since old clients ignore it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

use bytes::Bytes;
use haul_peer::identity::Identity;
use haul_peer::server::PeerServer;
use haul_peer::ticket::{PeerKey, Secret};
use haul_peer::tls::Role;
use haul_peer::wire::messages::{
    self, ToClient, ToServer, entry_outcome, to_client, to_server, whole_outcome,
};
use haul_peer::wire::{FRAME_HEADER, Frame, decode, message_frame, verify};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::super::grant;
use super::cases::{self, Case};
use super::file::{Line, parsed, receive, replaced};
use super::tap::{Bound, PATIENCE, dial, hello};

/// Starts a server for a case. Also returns the secret of the client's ticket.
pub(super) async fn serve(case: &Case) -> (PeerServer, Secret) {
    let secret = Secret::generate().unwrap();
    let known = if case.is_known { secret.clone() } else { Secret::generate().unwrap() };
    let server = PeerServer::builder(cases::storage(), "share");
    let server = server.grant(grant(&known, case.is_writable));
    let server = server.bind(&Identity::ephemeral().unwrap()).await.unwrap();
    (server, secret)
}

/// Sends the frames of a recorded client to a server, each once the responses that preceded it in the recording have
/// arrived.
pub(super) async fn replay(case: &Case, lines: &[Line]) {
    let (server, secret) = serve(case).await;
    let mut recorded = Responses { notices: notices(lines), ..Responses::default() };
    let mut last = HashMap::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_sent) {
        last.insert(recorded.take(&line.frame), at);
    }
    let to = (server.addresses()[0], *server.key());
    let mut client = Client::connect(to, secret).await;
    for (at, line) in lines.iter().enumerate() {
        if line.is_sent {
            client.send(&line.frame, &recorded).await;
        } else if let Some(id) = last.iter().find(|(_, last)| **last == at).map(|(id, _)| *id) {
            client.wait_for(id, &recorded).await;
        }
    }
    let found = client.responses.all;
    for (id, response) in recorded.all {
        // The recorded client cancelled the request, or does not need the response.
        if !response.is_complete() || recorded.notices.contains(&id) {
            continue;
        }
        let (then, now) = (response.meaning(), found.get(&id).map(Response::meaning));
        assert_eq!(Some(then), now, "{}: the response to request {id}", case.name);
    }
    server.stop().await;
}

/// The recorded client, on a new connection.
struct Client {
    stream: TlsStream<TcpStream>,
    bound: Bound,
    secret: Secret,
    responses: Responses,
    /// The numbers of open files in this run, by the recorded ones.
    handles: HashMap<u32, u32>,
}

impl Client {
    async fn connect((address, key): (SocketAddr, PeerKey), secret: Secret) -> Self {
        let (stream, bound) = dial(address, key).await;
        Self { stream, bound, secret, responses: Responses::default(), handles: HashMap::new() }
    }

    async fn send(&mut self, frame: &Bytes, recorded: &Responses) {
        let frame = match parsed(frame) {
            Frame::Message(bytes) => {
                let message: ToServer = decode(bytes).unwrap();
                if let Some(to_server::Body::Cancel(cancel)) = &message.body
                    && recorded.all.get(&cancel.id).is_some_and(Response::is_complete)
                {
                    // In the recording, the response was complete, even if it crossed the Cancel. Without this wait,
                    // the Cancel might reach the server earlier, and end the request.
                    self.wait_for(cancel.id, recorded).await;
                }
                self.changed(frame, message)
            }
            Frame::Bulk(header, _) => {
                let mut frame = frame.to_vec();
                let handle = self.current_handle(header.handle);
                frame[FRAME_HEADER + 4..FRAME_HEADER + 8].copy_from_slice(&handle.to_be_bytes());
                frame.into()
            }
            Frame::Skipped => frame.clone(),
        };
        // The server has closed the connection if it has refused the Hello.
        drop(self.stream.write_all(&frame).await);
        drop(self.stream.flush().await);
    }

    /// A recorded message with the proof and the handle of this run.
    fn changed(&mut self, frame: &Bytes, mut message: ToServer) -> Bytes {
        if let Some((nonce, proof)) = hello(frame) {
            let proven = self.bound.proof(Role::Client, &self.secret, &nonce);
            return replaced(frame, &proof, &proven);
        }
        if let Some(to_server::Body::Read(read)) = &message.body {
            self.responses.all.entry(message.id).or_default().start = read.offset;
        }
        let Some(handle) = message.body.as_mut().and_then(handle) else { return frame.clone() };
        let current = self.current_handle(*handle);
        if current == *handle {
            return frame.clone();
        }
        *handle = current;
        message_frame(&message).unwrap()
    }

    /// The handle in this run for a recorded one.
    fn current_handle(&self, handle: u32) -> u32 {
        self.handles.get(&handle).copied().unwrap_or(handle)
    }

    /// Receives frames until the response to a request is complete.
    async fn wait_for(&mut self, id: u32, recorded: &Responses) {
        let then = &recorded.all[&id];
        if !then.is_complete() || recorded.notices.contains(&id) {
            return;
        }
        while !self.responses.all.get(&id).is_some_and(Response::is_complete) {
            let received = timeout(PATIENCE, receive(&mut self.stream)).await;
            let received = received.unwrap_or_else(|_| panic!("no response to request {id}"));
            let frame = received.unwrap_or_else(|| panic!("closed before request {id}"));
            self.responses.take(&frame);
        }
        let opened = |response: &Response| response.messages.first().and_then(opened_handle);
        if let (Some(then), Some(now)) = (opened(then), opened(&self.responses.all[&id])) {
            self.handles.insert(then, now);
        }
    }
}

fn opened_handle(body: &to_client::Body) -> Option<u32> {
    match body {
        to_client::Body::Opened(opened) => Some(opened.handle),
        to_client::Body::Created(created) => Some(created.handle),
        _ => None,
    }
}

/// The handle in a request.
fn handle(body: &mut to_server::Body) -> Option<&mut u32> {
    match body {
        to_server::Body::Read(read) if read.opened_by == 0 => Some(&mut read.handle),
        to_server::Body::Recheck(request) => Some(&mut request.handle),
        to_server::Body::ReadMetadata(request) => Some(&mut request.handle),
        to_server::Body::NextData(request) => Some(&mut request.handle),
        to_server::Body::Close(request) => Some(&mut request.handle),
        to_server::Body::Record(request) => Some(&mut request.handle),
        to_server::Body::Sync(request) => Some(&mut request.handle),
        to_server::Body::Commit(request) => Some(&mut request.handle),
        to_server::Body::Abort(request) => Some(&mut request.handle),
        to_server::Body::Reopen(request) => Some(&mut request.handle),
        _ => None,
    }
}

/// Requests whose responses a server need not send before it closes the connection.
fn notices(lines: &[Line]) -> HashSet<u32> {
    let requests = lines.iter().filter(|line| line.is_sent).filter_map(Line::message::<ToServer>);
    let is_notice = |body: &to_server::Body| {
        use to_server::Body;
        matches!(body, Body::Close(_) | Body::Cancel(_) | Body::Answered(_))
    };
    requests.filter(|one| one.body.as_ref().is_some_and(is_notice)).map(|one| one.id).collect()
}

/// Responses, by the ids of their requests.
#[derive(Default)]
struct Responses {
    all: BTreeMap<u32, Response>,
    notices: HashSet<u32>,
}

impl Responses {
    /// Adds a frame from a server; returns the id of its request.
    fn take(&mut self, frame: &Bytes) -> u32 {
        match parsed(frame) {
            Frame::Message(bytes) => {
                let ToClient { id, body } = decode(bytes).unwrap();
                self.all.entry(id).or_default().messages.extend(body);
                id
            }
            Frame::Bulk(header, data) => {
                verify(&header, &data).unwrap();
                let pieces = &mut self.all.entry(header.id).or_default().pieces;
                pieces.insert(header.offset, data.into_bytes());
                header.id
            }
            Frame::Skipped => 0,
        }
    }
}

/// All frames of the response to a request.
#[derive(Default)]
struct Response {
    messages: Vec<to_client::Body>,
    /// The offset at which a read begins.
    start: u64,
    pieces: BTreeMap<u64, Bytes>,
}

impl Response {
    /// Whether the response has arrived completely.
    fn is_complete(&self) -> bool {
        match self.messages.last() {
            None => false,
            Some(to_client::Body::Entries(entries)) => entries.last,
            Some(to_client::Body::Wholes(wholes)) => wholes.last,
            // ReadEnd may overtake the data.
            Some(to_client::Body::ReadEnd(end)) => {
                let start = self.pieces.keys().next().copied().unwrap_or(self.start);
                let bytes: usize = self.pieces.values().map(Bytes::len).sum();
                start + bytes as u64 >= end.offset
            }
            Some(_) => true,
        }
    }

    /// Its meaning, independent of the division into frames.
    fn meaning(&self) -> (Vec<to_client::Body>, Vec<u8>) {
        let mut merged = Vec::new();
        for body in self.messages.iter().cloned().map(masked) {
            match (merged.last_mut(), body) {
                (Some(to_client::Body::Entries(all)), to_client::Body::Entries(more)) => {
                    all.outcomes.extend(more.outcomes);
                    all.last = more.last;
                }
                (Some(to_client::Body::Wholes(all)), to_client::Body::Wholes(more)) => {
                    all.outcomes.extend(more.outcomes);
                    all.last = more.last;
                }
                (_, body) => merged.push(body),
            }
        }
        (merged, self.pieces.values().flatten().copied().collect())
    }
}

/// A response without the parts that may differ.
fn masked(mut body: to_client::Body) -> to_client::Body {
    use to_client::Body;
    match &mut body {
        Body::Welcome(welcome) => {
            welcome.session.clear();
            welcome.token.clear();
            welcome.proof.clear();
            welcome.limits = None;
            // The servers of earlier versions do not report this.
            if let Some(can) = &mut welcome.capabilities {
                can.conditional_commits = false;
            }
        }
        Body::Refused(refused) => refused.text.clear(),
        Body::Failed(error) => mask_error(error),
        Body::Entries(entries) => {
            for outcome in entries.outcomes.iter_mut().filter_map(|one| one.outcome.as_mut()) {
                match outcome {
                    entry_outcome::Outcome::Entry(entry) => {
                        mask_time(&mut entry.modified);
                        entry.id = None;
                    }
                    entry_outcome::Outcome::Error(error) => mask_error(error),
                }
            }
        }
        Body::Wholes(wholes) => {
            for outcome in wholes.outcomes.iter_mut().filter_map(|one| one.outcome.as_mut()) {
                match outcome {
                    whole_outcome::Outcome::Whole(whole) => {
                        if let Some(identity) = &mut whole.identity {
                            mask_identity(identity);
                        }
                        if let Some(metadata) = &mut whole.metadata {
                            mask_time(&mut metadata.modified);
                        }
                    }
                    whole_outcome::Outcome::Error(error) => mask_error(error),
                }
            }
        }
        Body::Opened(opened) => {
            opened.handle = 0;
            if let Some(identity) = &mut opened.identity {
                mask_identity(identity);
            }
        }
        Body::Created(created) => created.handle = 0,
        Body::Metadata(metadata) => mask_time(&mut metadata.modified),
        Body::Identity(identity) => mask_identity(identity),
        Body::SpaceIs(space) => {
            space.space = space.space.take().map(|_| Box::default());
        }
        _ => {}
    }
    body
}

fn mask_error(error: &mut messages::Error) {
    error.cause.clear();
    error.hint = None;
}

fn mask_identity(identity: &mut messages::Identity) {
    mask_time(&mut identity.modified);
    identity.id = None;
}

fn mask_time(time: &mut Option<messages::Time>) {
    if time.as_ref().is_some_and(|time| time.seconds != cases::SET.seconds) {
        *time = Some(messages::Time::default());
    }
}
