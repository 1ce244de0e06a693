//! Recorded clients talk to this build's server: its responses must mean what the recorded ones meant.
//!
//! What may differ: session, token, proof and limits in a Welcome; numbers of handles, files and volumes; times that no
//! client has set; the words of errors; how entries and data are divided between frames. If a later version adds a field
//! to a response, add it to these ([`masked`]), since old clients ignore it.

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

/// A server for a case. Returns the secret of the client's ticket, too.
pub(super) async fn serve(case: &Case) -> (PeerServer, Secret) {
    let secret = Secret::generate().unwrap();
    let known = if case.is_known { secret.clone() } else { Secret::generate().unwrap() };
    let server = PeerServer::builder(cases::storage(), "share");
    let server = server.grant(grant(&known, case.is_writable));
    let server = server.bind(&Identity::ephemeral().unwrap()).await.unwrap();
    (server, secret)
}

/// Sends the frames of a recorded client to a server, each after the responses that preceded it.
pub(super) async fn replay(case: &Case, lines: &[Line]) {
    let (server, secret) = serve(case).await;
    let mut recorded = Answers { notices: notices(lines), ..Answers::default() };
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
    let found = client.answers.all;
    for (id, answer) in recorded.all {
        // The client cancelled it, or does not need the response.
        if !answer.is_complete() || recorded.notices.contains(&id) {
            continue;
        }
        let (then, now) = (answer.meaning(), found.get(&id).map(Answer::meaning));
        assert_eq!(Some(then), now, "{}: the response to request {id}", case.name);
    }
    server.stop().await;
}

/// The recorded client, on a connection of today.
struct Client {
    stream: TlsStream<TcpStream>,
    bound: Bound,
    secret: Secret,
    answers: Answers,
    /// The numbers of open files in this run, by the recorded ones.
    handles: HashMap<u32, u32>,
}

impl Client {
    async fn connect((address, key): (SocketAddr, PeerKey), secret: Secret) -> Self {
        let (stream, bound) = dial(address, key).await;
        Self { stream, bound, secret, answers: Answers::default(), handles: HashMap::new() }
    }

    async fn send(&mut self, frame: &Bytes, recorded: &Answers) {
        let frame = match parsed(frame) {
            Frame::Message(bytes) => {
                let message: ToServer = decode(bytes).unwrap();
                if let Some(to_server::Body::Cancel(cancel)) = &message.body
                    && recorded.all.get(&cancel.id).is_some_and(Answer::is_complete)
                {
                    // In the recording, it came after the response.
                    self.wait_for(cancel.id, recorded).await;
                }
                self.changed(frame, message)
            }
            Frame::Bulk(header, _) => {
                let mut frame = frame.to_vec();
                let handle = self.today(header.handle);
                frame[FRAME_HEADER + 4..FRAME_HEADER + 8].copy_from_slice(&handle.to_be_bytes());
                frame.into()
            }
            Frame::Skipped => frame.clone(),
        };
        // The server has closed the connection if it has refused the Hello.
        drop(self.stream.write_all(&frame).await);
        drop(self.stream.flush().await);
    }

    /// A message with the proof and the handle of today.
    fn changed(&mut self, frame: &Bytes, mut message: ToServer) -> Bytes {
        if let Some((nonce, proof)) = hello(frame) {
            let proven = self.bound.proof(Role::Client, &self.secret, &nonce);
            return replaced(frame, &proof, &proven);
        }
        if let Some(to_server::Body::Read(read)) = &message.body {
            self.answers.all.entry(message.id).or_default().start = read.offset;
        }
        let Some(handle) = message.body.as_mut().and_then(handle) else { return frame.clone() };
        let today = self.today(*handle);
        if today == *handle {
            return frame.clone();
        }
        *handle = today;
        message_frame(&message).unwrap()
    }

    fn today(&self, handle: u32) -> u32 {
        self.handles.get(&handle).copied().unwrap_or(handle)
    }

    /// Receives frames until the response to a request is there.
    async fn wait_for(&mut self, id: u32, recorded: &Answers) {
        let then = &recorded.all[&id];
        if !then.is_complete() || recorded.notices.contains(&id) {
            return;
        }
        while !self.answers.all.get(&id).is_some_and(Answer::is_complete) {
            let received = timeout(PATIENCE, receive(&mut self.stream)).await;
            let received = received.unwrap_or_else(|_| panic!("no response to request {id}"));
            let frame = received.unwrap_or_else(|| panic!("closed before request {id}"));
            self.answers.take(&frame);
        }
        let opened = |answer: &Answer| answer.messages.first().and_then(opened_handle);
        if let (Some(then), Some(now)) = (opened(then), opened(&self.answers.all[&id])) {
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

/// Responses, by the numbers of their requests.
#[derive(Default)]
struct Answers {
    all: BTreeMap<u32, Answer>,
    notices: HashSet<u32>,
}

impl Answers {
    /// Adds a frame from a server; returns the number of its request.
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

/// All that was sent for a request.
#[derive(Default)]
struct Answer {
    messages: Vec<to_client::Body>,
    /// Where a read begins.
    start: u64,
    pieces: BTreeMap<u64, Bytes>,
}

impl Answer {
    /// Whether nothing more follows.
    fn is_complete(&self) -> bool {
        match self.messages.last() {
            None => false,
            Some(to_client::Body::Entries(entries)) => entries.last,
            Some(to_client::Body::Wholes(wholes)) => wholes.last,
            // It may overtake the data.
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
            // The servers of earlier versions do not report it.
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
