//! One lane: the handshake, the proof of the secret, then requests until the connection ends.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::{AbortHandle, Abortable};
use haul_net::{Admitted, RttGauge, Running};
use haul_storage::{Block, Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use super::access::Refusal;
use super::activity::Joined;
use super::greeting::{hello, refused};
use super::lanes::After;
use super::limits;
use super::outcomes::Begin;
use super::requests::{self, Reply};
use super::served::{ClientAction, Served};
use super::session::Session;
use crate::lane::{self, Frames};
use crate::outbox::Outgoing;
use crate::tls;
use crate::wire::convert::clipped;
use crate::wire::messages::code::Refusal as Code;
use crate::wire::messages::{self, to_client, to_server};
use crate::wire::{BulkHeader, Frame, decode, message_frame, verify};

/// Serves a lane until it ends, or the server stops.
pub(super) async fn serve(
    served: Arc<Served>,
    socket: TcpStream,
    from: SocketAddr,
    admitted: Admitted,
    mut running: Running,
) {
    let outcome = tokio::select! {
        opened = open(&served, socket, from, admitted) => match opened {
            Ok(Some(lane)) => lane.run(&served, &mut running).await,
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        },
        () = running.stopped() => Ok(()),
    };
    if let Err(error) = outcome {
        served.observer.notify(from, ClientAction::Failed(error.cause()));
    }
}

/// A lane that was accepted.
struct Lane {
    session: Arc<Session>,
    /// Its number in the session.
    number: u64,
    frames: Frames<ReadHalf<TlsStream<TcpStream>>>,
    writing: WriteHalf<TlsStream<TcpStream>>,
    /// Messages to send.
    messages: UnboundedReceiver<Bytes>,
    _counted: (Admitted, Joined),
}

/// Accepts a lane; `None` if it was refused.
async fn open(
    served: &Arc<Served>,
    socket: TcpStream,
    from: SocketAddr,
    admitted: Admitted,
) -> Result<Option<Lane>> {
    lane::set(&socket).map_err(|error| lane::lost(&error))?;
    // `from` is the client's address, whichever side has connected. Through a bridge, the socket's peer is the bridge.
    let is_bridged = socket.peer_addr().is_ok_and(|peer| peer != from);
    let config = Arc::clone(&served.tls);
    let stream = tls::accept(socket, config, limits::HANDSHAKE).await;
    let stream = stream.map_err(|error| tls::explain(error, &from.to_string()))?;
    if let Ok((gauge, _hold)) = RttGauge::of(stream.get_ref().0)
        && let Some(rtt) = gauge.sample()
    {
        lane::adapt(stream.get_ref().0, rtt.shortest).map_err(|error| lane::lost(&error))?;
    }
    let connection = stream.get_ref().1;
    let exporter = tls::exporter(connection)?;
    let client_key = tls::peer_key(connection)
        .ok_or_else(|| Error::new(ErrorKind::Unauthenticated, "verify the client"))?;
    let (reading, writing) = tokio::io::split(stream);
    let mut frames = Frames::new(reading);
    let hello = timeout(limits::HANDSHAKE, hello(&mut frames)).await;
    let hello = match hello.unwrap_or_else(|_| Err(refused("no Hello in time"))) {
        Ok(hello) => hello,
        Err(error) if error.kind() == ErrorKind::Protocol => {
            return refuse(served, writing, from, (Code::Hello, &error.cause())).await;
        }
        Err(error) => return Err(error),
    };
    let (session, welcome) = match served.access.admit(&hello, exporter, client_key).await {
        Ok(admitted) => admitted,
        Err(refusal) => {
            return refuse(served, writing, from, (refusal.code(), refusal.text())).await;
        }
    };
    let (sender, messages) = unbounded_channel();
    // The channel is new. Welcome precedes everything that others send on the lane.
    drop(sender.send(welcome));
    let number = match session.add_lane(sender, Bytes::copy_from_slice(&hello.nonce)) {
        Ok(number) => number,
        Err(why) => return refuse(served, writing, from, why).await,
    };
    admitted.mark_authenticated();
    frames.accept_all();
    let joined = session.activity.join(from, is_bridged);
    served.observer.notify(from, ClientAction::Joined);
    Ok(Some(Lane { session, number, frames, writing, messages, _counted: (admitted, joined) }))
}

impl Lane {
    /// Executes requests until the lane ends, its ticket expires, or the server stops.
    async fn run(self, served: &Arc<Served>, running: &mut Running) -> Result<()> {
        let Self { session, number, mut frames, writing, messages, _counted } = self;
        let ended = {
            let traffic = frames.traffic();
            let taken = |piece: &Outgoing| session.activity.sent(piece.data.len());
            let sending = lane::send(writing, messages, &session.outbox, &traffic, taken);
            tokio::pin!(sending);
            let ended = {
                let receiving = receive(&mut frames, &session, number);
                tokio::pin!(receiving);
                tokio::select! {
                    sent = &mut sending => {
                        Some(sent.map(|()| End::Lost).map_err(|error| lane::lost(&error)))
                    }
                    received = &mut receiving => {
                        session.remove_lane(number);
                        // What is queued on this lane is still sent: the client has closed it, and reads to its end.
                        Some(match received {
                            Ok(end) => tokio::select! {
                                sent = sending.as_mut() => {
                                    sent.map(|()| end).map_err(|error| lane::lost(&error))
                                }
                                () = session.expired() => Ok(end),
                                () = running.stopped() => Ok(end),
                            },
                            Err(error) => Err(error),
                        })
                    }
                    () = session.expired() => None,
                    () = running.stopped() => None,
                }
            };
            if ended.is_none()
                && let Some(reason) = reason_of_end(served, &session)
            {
                send_goodbye(&session, number, reason);
                // A client that still sends would not receive the message, because its lane would be reset.
                let draining = async { while let Ok(Some(_)) = frames.next().await {} };
                let closing = async { tokio::join!(sending, draining) };
                drop(timeout(limits::GOODBYE, closing).await);
            }
            match ended {
                None if session.is_expired() => {
                    expire(served, &session);
                    Some(Err(refused(Refusal::Expired.text())))
                }
                ended => ended,
            }
        };
        session.remove_lane(number);
        let Some(ended) = ended else { return Ok(()) };
        conclude(served, session, !matches!(ended, Ok(End::Bye)));
        ended.map(drop)
    }
}

/// Why the client must not replace a lane that the server closes; `None` if it may connect again.
fn reason_of_end(served: &Served, session: &Session) -> Option<(Code, &'static str)> {
    if session.is_expired() {
        return Some((Code::Expired, Refusal::Expired.text()));
    }
    served.is_ending().then_some((Code::Ended, "the sharer has ended the share"))
}

/// Notifies a client, on one of its lanes, why its session ends. The lane is closed behind the message.
fn send_goodbye(session: &Session, lane: u64, (code, text): (Code, &str)) {
    let (code, text) = (code.number(), text.to_owned());
    let body = Some(to_client::Body::Refused(messages::Refused { code, text }));
    // It is short, so it can be encoded.
    if let Ok(message) = message_frame(&messages::ToClient { id: 0, body }) {
        session.send(lane, &message, false);
    }
    session.remove_lane(lane);
}

/// Sends the client the reason why its lane is refused, and closes the lane.
async fn refuse(
    served: &Served,
    mut writing: impl AsyncWrite + Unpin,
    from: SocketAddr,
    (code, text): (Code, &str),
) -> Result<Option<Lane>> {
    let text = clipped(text);
    served.observer.notify(from, ClientAction::Refused(text.clone()));
    let body = Some(to_client::Body::Refused(messages::Refused { code: code.number(), text }));
    let message = message_frame(&messages::ToClient { id: 0, body })?;
    let written = async {
        writing.write_all(&message).await?;
        writing.shutdown().await
    };
    let written = timeout(limits::HANDSHAKE, written).await;
    let written = written.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    written.map(|()| None).map_err(|error| lane::lost(&error))
}

/// Ends a session whose last lane has ended: at once, or if it lost a lane within the last [`limits::LINGER`], after
/// that time unless a lane joins.
fn conclude(served: &Arc<Served>, session: Arc<Session>, is_lost: bool) {
    match session.after_lane(is_lost) {
        After::Continues => {}
        After::Ended => {
            served.access.forget(&session);
            served.report_end(&session);
        }
        After::Waits(joined) => {
            let served = Arc::clone(served);
            tokio::spawn(async move {
                sleep(limits::LINGER).await;
                if session.end_if_idle(joined) {
                    served.access.forget(&session);
                }
                // It may have been ended earlier, for another session that needed its place or its part file.
                if session.has_ended() {
                    served.report_end(&session);
                }
            });
        }
    }
}

/// Ends a session whose ticket has expired. For [`limits::LINGER`], further lanes are refused with that reason.
pub(super) fn expire(served: &Arc<Served>, session: &Arc<Session>) {
    // Each of its lanes calls this.
    if !session.close_all() {
        return;
    }
    served.report_end(session);
    let (served, session) = (Arc::clone(served), Arc::clone(session));
    tokio::spawn(async move {
        sleep(limits::LINGER).await;
        served.access.forget(&session);
    });
}

/// How a lane ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The client has closed it.
    Bye,
    /// Without a Bye.
    Lost,
}

/// Receives requests until the client closes the lane.
async fn receive(
    frames: &mut Frames<impl AsyncRead + Unpin>,
    session: &Arc<Session>,
    lane: u64,
) -> Result<End> {
    while let Some(frame) = frames.next().await? {
        match frame {
            Frame::Message(bytes) => {
                let messages::ToServer { id, body, again } = decode(bytes)?;
                match body {
                    Some(to_server::Body::Cancel(request)) => {
                        match request.once {
                            true => session.cancel_once(request.id),
                            false => session.cancel(request.id),
                        }
                        confirm(session, lane, id);
                    }
                    Some(to_server::Body::Answered(confirmed)) => {
                        session.confirmed(&confirmed);
                        confirm(session, lane, id);
                    }
                    Some(to_server::Body::LaneLost(lost)) => {
                        session.lose_lane(&lost.nonce, lane);
                        confirm(session, lane, id);
                    }
                    Some(to_server::Body::More(more)) => session.permit(more.id, more.messages),
                    Some(to_server::Body::Bye(_)) => return Ok(End::Bye),
                    Some(body) => start(&counted(session, lane, id).await?, body, again),
                    None => counted(session, lane, id)
                        .await?
                        .fail(&Error::new(ErrorKind::Unsupported, "execute the request")),
                }
            }
            Frame::Bulk(header, data) => write(session, lane, header, data).await?,
            Frame::Skipped => {}
        }
    }
    Ok(End::Lost)
}

/// Counts a request. Waits while too many responses are pending: the lane reads nothing until the client has read
/// responses.
async fn counted(session: &Arc<Session>, lane: u64, id: u32) -> Result<Reply> {
    let counted = Arc::clone(&session.budgets.pending).acquire_owned();
    let counted = with_pongs(session, lane, counted).await;
    let ended = |_| Error::new(ErrorKind::Interrupted, "execute the request");
    let counted = Arc::new(counted.map_err(ended)?);
    Ok(Reply { session: Arc::clone(session), lane, id, counted })
}

/// Waits for room, and sends a Pong every [`limits::LIFE`]: the lane reads no Pings meanwhile, so its client would
/// consider it lost.
async fn with_pongs<T>(session: &Session, lane: u64, wait: impl Future<Output = T>) -> T {
    let mut wait = std::pin::pin!(wait);
    loop {
        if let Ok(done) = timeout(limits::LIFE, wait.as_mut()).await {
            return done;
        }
        let body = Some(to_client::Body::Pong(messages::Empty {}));
        if let Ok(pong) = message_frame(&messages::ToClient { id: 0, body }) {
            session.send(lane, &pong, false);
        }
    }
}

/// Confirms a request that was executed at once, without being counted: a Cancel must get through when too many
/// responses are pending. In that case no response is sent, and the client repeats the request if the lane is lost.
fn confirm(session: &Arc<Session>, lane: u64, id: u32) {
    if let Ok(counted) = Arc::clone(&session.budgets.pending).try_acquire_owned()
        && id != 0
    {
        let reply = Reply { session: Arc::clone(session), lane, id, counted: Arc::new(counted) };
        reply.send(to_client::Body::Done(messages::Empty {}));
    }
}

/// Starts a request, unless it is a copy of one that runs or has been executed.
fn start(reply: &Reply, body: to_server::Body, again: bool) {
    if reply.id == 0 {
        // The client ignores the response. Only requests that release something are allowed.
        if matches!(body, to_server::Body::Close(_) | to_server::Body::Abort(_)) {
            tokio::spawn(requests::execute(requests::Running(reply.clone()), body));
        }
        return;
    }
    if body.is_once() {
        match reply.session.begin_once(reply.id, reply.lane, again) {
            Begin::Execute => {}
            Begin::Runs => return,
            Begin::Respond(response) => return reply.repeat(response),
            Begin::Refuse => return reply.fail(&unknown_outcome()),
        }
    }
    let (task, registration) = AbortHandle::new_pair();
    if reply.session.begin(reply.id, task) {
        let request = requests::execute(requests::Running(reply.clone()), body);
        tokio::spawn(Abortable::new(request, registration));
    } else {
        let error = Error::new(ErrorKind::InvalidInput, "execute the request");
        reply.fail(&error.because("a request with this number is in progress"));
    }
}

fn unknown_outcome() -> Error {
    Error::new(ErrorKind::Interrupted, "execute the request")
        .because("it may have been executed before, and its outcome is not known any more")
}

/// Starts a write. Waits for room, which stops the lane until earlier writes are done.
async fn write(session: &Arc<Session>, lane: u64, header: BulkHeader, data: Block) -> Result<()> {
    let reply = counted(session, lane, header.id).await?;
    if let Err(error) = verify(&header, &data) {
        reply.fail(&Error::from(error));
        return Ok(());
    }
    let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
    // The semaphore is never closed.
    let room = Arc::clone(&session.budgets.received).acquire_many_owned(bytes);
    let room = with_pongs(session, lane, room).await;
    tokio::spawn(async move {
        requests::write(reply, header, data).await;
        drop(room);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use haul_storage::memory::MemoryStorage;

    use super::super::fan::Fan;
    use super::super::grant::Grant;
    use super::*;
    use crate::ticket::Secret;
    use crate::tls::ProofKey;
    use crate::wire::FRAME_HEADER;

    #[tokio::test]
    async fn a_lane_that_its_client_has_lost_ends() {
        let grant = Grant::new(Secret::generate().unwrap());
        let key = ProofKey::from_token(&[1; 32]).unwrap();
        let session = Session::new([1; 16], key, Fan::new(MemoryStorage::new()), &grant);
        let nonces = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        let [mut first, mut second] = nonces.clone().map(|nonce| {
            let (messages, sent) = unbounded_channel();
            (session.add_lane(messages, nonce).unwrap(), sent)
        });
        // Not the lane that carries the message.
        session.lose_lane(&nonces[1], second.0);
        session.lose_lane(&Bytes::from_static(b"none"), second.0);
        assert!(first.1.try_recv().is_err() && !first.1.is_closed() && !second.1.is_closed());
        session.lose_lane(&nonces[0], second.0);
        assert!(first.1.is_closed() && !second.1.is_closed());
        session.send(first.0, &Bytes::from_static(b"response"), true);
        assert_eq!(second.1.try_recv().unwrap(), "response");
    }

    /// A client considers a lane lost if nothing arrives on it for 30 s.
    #[tokio::test(start_paused = true)]
    async fn a_lane_that_waits_for_a_slow_disk_sends_pongs() {
        let grant = Grant::new(Secret::generate().unwrap());
        let key = ProofKey::from_token(&[1; 32]).unwrap();
        let session = Session::new([1; 16], key, Fan::new(MemoryStorage::new()), &grant);
        let (messages, mut sent) = unbounded_channel();
        let lane = session.add_lane(messages, Bytes::new()).unwrap();
        let waiting = with_pongs(&session, lane, pending::<()>());
        timeout(Duration::from_secs(35), waiting).await.unwrap_err();
        let frames: Vec<_> = std::iter::from_fn(|| sent.try_recv().ok()).collect();
        assert_eq!(frames.len(), 3);
        let pong: messages::ToClient = decode(frames[0].slice(FRAME_HEADER..)).unwrap();
        assert_eq!(pong.id, 0);
        assert_eq!(pong.body, Some(to_client::Body::Pong(messages::Empty {})));
    }
}
