//! Both sides of an exchange, over a stream in memory.

use std::net::SocketAddr;

use haul_storage::ErrorKind;
use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use zeroize::Zeroizing;

use super::super::channel::Channel;
use super::fetch::receive;
use super::keys::{Half, Side};
use super::messages::{
    CodeRefusal, Confirm, FromSharer, Granted, Reply, Start, ToSharer, from_sharer, to_sharer,
};
use super::responder::{CodeResponder, Verdict};
use crate::identity::Identity;
use crate::ticket::{Secret, Ticket};
use crate::tls;

const CODE: &str = "7-orbit-candle";

type Verdicts = UnboundedReceiver<(Verdict, SocketAddr)>;

fn ticket() -> Ticket {
    let key = Identity::ephemeral().unwrap().key();
    Ticket::new(key, Secret::generate().unwrap())
}

fn from() -> SocketAddr {
    "192.0.2.1:1".parse().unwrap()
}

fn responder(ticket: &Ticket) -> (CodeResponder, Verdicts) {
    let (sender, verdicts) = unbounded_channel();
    let text = Zeroizing::new(ticket.to_string());
    (CodeResponder::new(CODE.parse().unwrap(), text, sender).unwrap(), verdicts)
}

/// Fetches the ticket as a receiver with this code.
async fn fetch(responder: &CodeResponder, code: &str) -> haul_storage::Result<Ticket> {
    fetch_from(responder, code, from()).await
}

/// Fetches the ticket as a receiver at `from`.
async fn fetch_from(
    responder: &CodeResponder,
    code: &str,
    from: SocketAddr,
) -> haul_storage::Result<Ticket> {
    let (near, far) = duplex(1 << 16);
    let code = code.parse().unwrap();
    let (received, _) = tokio::join!(receive(near, &code), responder.serve(far, from));
    received
}

/// A receiver that the test controls.
struct Receiver {
    channel: Channel<tokio_rustls::client::TlsStream<DuplexStream>>,
    exporter: [u8; 32],
}

impl Receiver {
    async fn connect(stream: DuplexStream) -> Self {
        let identity = Identity::ephemeral().unwrap();
        let config = tls::code_client_config(identity.pkcs8(), &identity.spki()).unwrap();
        let stream =
            tls::connect(stream, config, std::time::Duration::from_secs(30)).await.unwrap();
        let exporter = tls::exporter(stream.get_ref().1).unwrap();
        Self { channel: Channel::new(stream), exporter }
    }

    async fn send(&mut self, body: to_sharer::Body) {
        self.channel.send(&ToSharer { body: Some(body) }).await.unwrap();
    }

    async fn next(&mut self) -> from_sharer::Body {
        self.channel.next::<FromSharer>().await.unwrap().unwrap().body.unwrap()
    }

    async fn refused(&mut self) -> Option<CodeRefusal> {
        match self.next().await {
            from_sharer::Body::Refused(refused) => CodeRefusal::of(refused.code),
            other => panic!("{other:?}"),
        }
    }
}

fn start(half: &Half) -> to_sharer::Body {
    to_sharer::Body::Start(Start { min_version: 1, max_version: 1, share: half.share() })
}

#[tokio::test]
async fn a_code_gives_the_ticket_once() {
    let ticket = ticket();
    let (responder, mut verdicts) = responder(&ticket);
    assert_eq!(fetch(&responder, CODE).await.unwrap(), ticket);
    assert_eq!(verdicts.try_recv().unwrap(), (Verdict::Granted, from()));
    let error = fetch(&responder, CODE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no longer valid"), "{error}");
    assert!(verdicts.try_recv().is_err());
}

#[tokio::test]
async fn one_wrong_guess_burns_the_code() {
    let (responder, mut verdicts) = responder(&ticket());
    let error = fetch(&responder, "7-orbit-orbit").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("the code is wrong"), "{error}");
    assert_eq!(verdicts.try_recv().unwrap(), (Verdict::Wrong, from()));
    let error = fetch(&responder, CODE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(!responder.end(), "the code has ended");
}

/// Of several simultaneous guesses, only one is judged.
#[tokio::test]
async fn guesses_at_once_count_like_guesses_in_a_row() {
    let (responder, mut verdicts) = responder(&ticket());
    let guesses = ["7-orbit-acorn", "7-orbit-angle", "7-orbit-anvil", CODE];
    let (mut nears, mut fars): (Vec<_>, Vec<_>) = guesses.iter().map(|_| duplex(1 << 16)).unzip();
    let mut receivers = Vec::new();
    let serving = fars.drain(..).map(|far| responder.serve(far, from()));
    let receiving = async {
        for (near, guess) in nears.drain(..).zip(guesses) {
            let mut receiver = Receiver::connect(near).await;
            let half = Half::start(Side::Receiver, &guess.parse().unwrap(), receiver.exporter);
            receiver.send(start(&half)).await;
            let from_sharer::Body::Reply(reply) = receiver.next().await else { panic!() };
            receivers.push((receiver, half.finish(&reply.share).unwrap()));
        }
        let mut refusals = Vec::new();
        for (receiver, keys) in &mut receivers {
            let mac = keys.mac(Side::Receiver).to_vec().into();
            receiver.send(to_sharer::Body::Confirm(Confirm { mac })).await;
            refusals.push(receiver.refused().await.unwrap());
        }
        refusals
    };
    let (refusals, _) = tokio::join!(receiving, futures_util::future::join_all(serving));
    let (wrong, ended) = (CodeRefusal::Wrong, CodeRefusal::Ended);
    assert_eq!(refusals, [wrong, ended, ended, ended]);
    assert_eq!(verdicts.try_recv().unwrap().0, Verdict::Wrong);
    assert!(verdicts.try_recv().is_err());
}

/// Such a receiver has learnt nothing: the sharer's message depends on random numbers, and its mac follows the
/// confirmation.
#[tokio::test]
async fn a_receiver_that_does_not_confirm_has_not_guessed() {
    let ticket = ticket();
    let (responder, mut verdicts) = responder(&ticket);
    let (near, far) = duplex(1 << 16);
    let receiving = async {
        let mut receiver = Receiver::connect(near).await;
        let code = "7-orbit-orbit".parse().unwrap();
        let half = Half::start(Side::Receiver, &code, receiver.exporter);
        receiver.send(start(&half)).await;
        assert!(matches!(receiver.next().await, from_sharer::Body::Reply(_)));
        receiver.channel.close().await;
    };
    let ((), served) = tokio::join!(receiving, responder.serve(far, from()));
    served.unwrap_err();
    assert!(verdicts.try_recv().is_err());
    assert_eq!(fetch(&responder, CODE).await.unwrap(), ticket);
}

#[tokio::test]
async fn a_ticket_that_did_not_arrive_can_be_fetched_again() {
    let ticket = ticket();
    let (responder, mut verdicts) = responder(&ticket);
    take(&responder).await;
    assert!(verdicts.try_recv().is_err());
    assert_eq!(fetch(&responder, CODE).await.unwrap(), ticket);
    assert_eq!(verdicts.try_recv().unwrap().0, Verdict::Granted);
}

/// Formerly, an eavesdropper who knew the code could fetch the ticket unnoticed, before or after its receiver.
#[tokio::test]
async fn receivers_in_two_networks_cannot_both_use_a_code() {
    let (responder, mut verdicts) = responder(&ticket());
    take(&responder).await;
    assert_eq!(responder.granted(), Some(from()));
    let elsewhere = "198.51.100.1:1".parse().unwrap();
    let error = fetch_from(&responder, CODE, elsewhere).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(verdicts.try_recv().unwrap(), (Verdict::Granted, from()));
    assert_eq!(fetch(&responder, CODE).await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// Proves knowledge of the code, and does not confirm that the ticket has arrived.
async fn take(responder: &CodeResponder) {
    let (near, far) = duplex(1 << 16);
    let receiving = async {
        let mut receiver = Receiver::connect(near).await;
        let half = Half::start(Side::Receiver, &CODE.parse().unwrap(), receiver.exporter);
        receiver.send(start(&half)).await;
        let from_sharer::Body::Reply(reply) = receiver.next().await else { panic!() };
        let keys = half.finish(&reply.share).unwrap();
        let mac = keys.mac(Side::Receiver).to_vec().into();
        receiver.send(to_sharer::Body::Confirm(Confirm { mac })).await;
        drop(receiver);
    };
    let ((), served) = tokio::join!(receiving, responder.serve(far, from()));
    served.unwrap_err();
}

/// A bridge that poses as the sharer does not know the words of the code.
#[tokio::test]
async fn a_false_sharer_is_recognized() {
    let (near, far) = duplex(1 << 16);
    let code = CODE.parse().unwrap();
    let sharer = async {
        let identity = Identity::ephemeral().unwrap();
        let config = tls::code_server_config(identity.pkcs8(), &identity.spki()).unwrap();
        let limit = std::time::Duration::from_secs(30);
        let stream = tls::accept(far, config, limit).await.unwrap();
        let exporter = tls::exporter(stream.get_ref().1).unwrap();
        let mut channel = Channel::new(stream);
        let message = channel.next::<ToSharer>().await.unwrap().unwrap();
        let Some(to_sharer::Body::Start(start)) = message.body else { panic!() };
        let half = Half::start(Side::Sharer, &"7-acorn-acorn".parse().unwrap(), exporter);
        let share = half.share();
        let keys = half.finish(&start.share).unwrap();
        let reply = from_sharer::Body::Reply(Reply { share });
        channel.send(&FromSharer { body: Some(reply) }).await.unwrap();
        let message = channel.next::<ToSharer>().await.unwrap().unwrap();
        let Some(to_sharer::Body::Confirm(confirm)) = message.body else { panic!() };
        assert!(!keys.verify(Side::Receiver, &confirm.mac));
        let mac = keys.mac(Side::Sharer).to_vec().into();
        let granted = Granted { mac, ticket: keys.seal(&ticket().to_string()).unwrap() };
        let granted = from_sharer::Body::Granted(granted);
        channel.send(&FromSharer { body: Some(granted) }).await.unwrap();
    };
    let (received, ()) = tokio::join!(receive(near, &code), sharer);
    let error = received.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("does not know the code"), "{error}");
}

#[tokio::test]
async fn other_versions_and_garbage_are_no_guesses() {
    let ticket = ticket();
    let (responder, mut verdicts) = responder(&ticket);
    let (near, far) = duplex(1 << 16);
    let receiving = async {
        let mut receiver = Receiver::connect(near).await;
        let later = Start { min_version: 2, max_version: 3, share: vec![0; 33].into() };
        receiver.send(to_sharer::Body::Start(later)).await;
        assert_eq!(receiver.refused().await, Some(CodeRefusal::Version));
    };
    let ((), served) = tokio::join!(receiving, responder.serve(far, from()));
    served.unwrap();
    let (mut near, far) = duplex(1 << 16);
    let receiving = async {
        near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        drop(near);
    };
    let ((), served) = tokio::join!(receiving, responder.serve(far, from()));
    served.unwrap_err();
    for share in [vec![], vec![b'A'; 33], vec![0xff; 33], vec![b'A'; 4000]] {
        let (near, far) = duplex(1 << 16);
        let receiving = async {
            let mut receiver = Receiver::connect(near).await;
            let start = Start { min_version: 1, max_version: 1, share: share.into() };
            receiver.send(to_sharer::Body::Start(start)).await;
            // An invalid point ends the exchange; a valid one gets a reply, and nothing else.
            drop(receiver.channel.next::<FromSharer>().await);
        };
        let ((), served) = tokio::join!(receiving, responder.serve(far, from()));
        served.unwrap_err();
    }
    assert!(verdicts.try_recv().is_err());
    assert_eq!(fetch(&responder, CODE).await.unwrap(), ticket);
}
