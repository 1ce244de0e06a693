//! Tests of spoken codes, through a bridge.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_net::Secret as Token;
use haul_peer::bridge::code::{Code, CodeEvent, CodeOffer, fetch};
use haul_peer::bridge::messages::{Meet, Offer, Refusal, from_bridge, to_bridge};
use haul_peer::bridge::room::TokenKey;
use haul_peer::bridge::{BridgeLimits, BridgeServer, preamble};
use haul_peer::identity::Identity;
use haul_peer::ticket::{Secret, Ticket};
use haul_storage::ErrorKind;
use tokio::io::AsyncWriteExt;

use super::peers::address;
use super::{Client, PATIENCE, bind, data, receive, unlimited_attempts, with_limits};

/// The lifetime of a code that is valid until its test ends.
const LONG: Duration = Duration::from_secs(600);

/// A ticket that is offered.
struct Offering {
    ticket: Ticket,
    code: Code,
    events: Receiver<CodeEvent>,
    _offer: CodeOffer,
}

impl Offering {
    fn next(&self) -> CodeEvent {
        tokio::task::block_in_place(|| self.events.recv_timeout(PATIENCE).unwrap())
    }
}

async fn offer(bridge: &BridgeServer, lifetime: Duration) -> Offering {
    let key = Identity::ephemeral().unwrap().key();
    let ticket = Ticket::new(key, Secret::generate().unwrap());
    let (sender, events) = channel();
    let (offer, code) = CodeOffer::builder(address(bridge), ticket.clone())
        .token(Some(Token::new("token")))
        .lifetime(lifetime)
        .observer(move |event| drop(sender.send(event.action)))
        .start()
        .await
        .unwrap();
    Offering { ticket, code, events, _offer: offer }
}

/// A code with the same number and other words.
fn wrong(code: &Code) -> Code {
    let words = if code.to_string().ends_with("-acorn") { "acorn-angle" } else { "acorn-acorn" };
    format!("{}-{words}", code.number()).parse().unwrap()
}

/// Waits until the code's number is free: the bridge may need a moment to notice that the sharer has left.
async fn until_gone(bridge: &BridgeServer, code: &Code) {
    let start = Instant::now();
    loop {
        let error = fetch(&address(bridge), code).await.unwrap_err();
        if error.kind() == ErrorKind::NotFound {
            assert!(error.to_string().contains("no sharer has this number"), "{error}");
            return;
        }
        assert!(start.elapsed() < PATIENCE, "the number is still in use: {error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn offered(client: &Client, number: u32, key: u8) -> to_bridge::Body {
    let proof = TokenKey::new("token").unwrap().prove(&client.exporter, &client.key);
    to_bridge::Body::Offer(Offer {
        min_version: 1,
        max_version: 1,
        token_proof: Bytes::copy_from_slice(&proof),
        number,
        key: vec![key; 32].into(),
    })
}

fn meeting(number: u32, connection: &[u8]) -> to_bridge::Body {
    let connection = Bytes::copy_from_slice(connection);
    to_bridge::Body::Meet(Meet { min_version: 1, max_version: 1, number, connection })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_code_fetches_the_ticket_once() {
    let bridge = bind(|builder| builder).await;
    let offering = offer(&bridge, LONG).await;
    assert!((1..=99).contains(&offering.code.number()), "{:?}", offering.code);
    let ticket = fetch(&address(&bridge), &offering.code).await.unwrap();
    assert_eq!(ticket, offering.ticket);
    assert_eq!(offering.next(), CodeEvent::Used);
    until_gone(&bridge, &offering.code).await;
    bridge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_guess_replaces_the_code_and_the_fifth_ends_it() {
    let bridge = bind(|builder| builder).await;
    let offering = offer(&bridge, LONG).await;
    let mut code = offering.code.clone();
    for guess in 1..=5 {
        let error = fetch(&address(&bridge), &wrong(&code)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        assert!(error.to_string().contains("the code is wrong"), "{error}");
        let CodeEvent::Guessed { next } = offering.next() else { panic!("{guess}") };
        // The burned code is not accepted, although its words are right.
        fetch(&address(&bridge), &code).await.unwrap_err();
        match next {
            Some(next) if guess < 5 => {
                assert_ne!(next, code);
                code = next;
            }
            next => assert_eq!((next, guess), (None, 5)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_code_after_a_wrong_guess_fetches_the_ticket() {
    let bridge = bind(|builder| builder).await;
    let offering = offer(&bridge, LONG).await;
    fetch(&address(&bridge), &wrong(&offering.code)).await.unwrap_err();
    let CodeEvent::Guessed { next: Some(next) } = offering.next() else { panic!() };
    assert_eq!(fetch(&address(&bridge), &next).await.unwrap(), offering.ticket);
    assert_eq!(offering.next(), CodeEvent::Used);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_code_expires() {
    let bridge = bind(|builder| builder).await;
    let offering = offer(&bridge, Duration::from_millis(300)).await;
    assert_eq!(offering.next(), CodeEvent::Expired);
    until_gone(&bridge, &offering.code).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_code_ends_with_its_offer() {
    let bridge = bind(|builder| builder).await;
    let Offering { code, _offer, .. } = offer(&bridge, LONG).await;
    drop(_offer);
    let start = Instant::now();
    loop {
        let mut client = Client::connect(&bridge).await;
        let id = preamble::random_id().unwrap();
        if let from_bridge::Body::Refused(refused) =
            client.request(meeting(code.number(), &id)).await
        {
            return assert_eq!(Refusal::of(refused.code), Some(Refusal::Room));
        }
        // The bridge may not have noticed yet.
        assert!(start.elapsed() < PATIENCE, "the number is still in use");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_of_several_sharers_do_not_mix() {
    let bridge = bind(|builder| builder).await;
    let (one, other) = (offer(&bridge, LONG).await, offer(&bridge, LONG).await);
    assert_ne!(one.code.number(), other.code.number());
    assert_eq!(fetch(&address(&bridge), &other.code).await.unwrap(), other.ticket);
    assert_eq!(fetch(&address(&bridge), &one.code).await.unwrap(), one.ticket);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_bridge_assigns_the_same_number_again() {
    let identity = Identity::ephemeral().unwrap();
    let start = |listen| {
        BridgeServer::builder()
            .token(Some(Token::new("token")))
            .limits(unlimited_attempts())
            .listen(listen)
    };
    let first = start("127.0.0.1:0".parse().unwrap()).bind(&identity).await.unwrap();
    let (at, bridge) = (first.addresses()[0], address(&first));
    let offering = offer(&first, LONG).await;
    first.stop().await;
    let _second = loop {
        match start(at).bind(&identity).await {
            Ok(bridge) => break bridge,
            // The port may still be in use for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    let start = Instant::now();
    let ticket = loop {
        match fetch(&bridge, &offering.code).await {
            Ok(ticket) => break ticket,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
        // The sharer pauses before it connects again.
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(ticket, offering.ticket);
}

#[tokio::test]
async fn a_sharer_with_a_code_needs_the_token() {
    let bridge = bind(|builder| builder).await;
    let key = Identity::ephemeral().unwrap().key();
    let ticket = Ticket::new(key, Secret::generate().unwrap());
    for token in [None, Some(Token::new("other"))] {
        let offer = CodeOffer::builder(address(&bridge), ticket.clone()).token(token);
        let error = offer.start().await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    }
    // Both sides need the bridge's key.
    let unknown = address(&bridge).with_key(None);
    let offer = CodeOffer::builder(unknown.clone(), ticket).start().await;
    assert_eq!(offer.map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
    let code = "7-orbit-candle".parse().unwrap();
    assert_eq!(fetch(&unknown, &code).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn attempts_at_numbers_are_limited_per_minute() {
    let limits = BridgeLimits { codes_per_minute: 3, ..BridgeLimits::default() };
    let bridge = with_limits(limits).await;
    for _ in 0..3 {
        let mut client = Client::connect(&bridge).await;
        assert_eq!(client.refused(meeting(7, &[7; 32])).await, Refusal::Room);
    }
    let mut client = Client::connect(&bridge).await;
    assert_eq!(client.refused(meeting(7, &[7; 32])).await, Refusal::Rate);
    let code = "7-orbit-candle".parse().unwrap();
    let error = fetch(&address(&bridge), &code).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
}

/// The receiver proves nothing to the bridge, and does not learn where the sharer is.
#[tokio::test]
async fn a_number_connects_without_a_proof_and_without_addresses() {
    let bridge = bind(|builder| builder).await;
    let mut sharer = Client::connect(&bridge).await;
    let request = offered(&sharer, 0, 7);
    let from_bridge::Body::Offered(found) = sharer.request(request).await else { panic!() };
    assert!((1..=99).contains(&found.number) && found.ttl_seconds > 0, "{found:?}");
    let mut client = Client::connect(&bridge).await;
    let id = preamble::random_id().unwrap();
    let mut near = data(&bridge, &id).await;
    let from_bridge::Body::Joined(joined) = client.request(meeting(found.number, &id)).await else {
        panic!()
    };
    assert_eq!(joined.sharer_observed, "");
    let incoming = sharer.incoming().await;
    assert_eq!(incoming.joiner_observed, joined.observed);
    let mut far = data(&bridge, &incoming.connections[0]).await;
    near.write_all(b"hello").await.unwrap();
    assert_eq!(receive(&mut far, 5).await, b"hello");
}

#[tokio::test]
async fn offers_and_meetings_have_to_be_valid() {
    let bridge = bind(|builder| builder).await;
    let mut first = Client::connect(&bridge).await;
    let request = offered(&first, 42, 1);
    assert!(matches!(first.request(request).await, from_bridge::Body::Offered(_)));
    // A connection has one code, and no rooms beside it.
    let request = offered(&first, 0, 1);
    assert_eq!(first.refused(request).await, Refusal::Invalid);
    let request = first.registration("token", &super::room());
    assert_eq!(first.refused(request).await, Refusal::Invalid);
    // Only a sharer with the same key can take the number over.
    let mut other = Client::connect(&bridge).await;
    let request = offered(&other, 42, 2);
    assert_eq!(other.refused(request).await, Refusal::Mac);
    let request = offered(&other, 1_000_000, 2);
    assert_eq!(other.refused(request).await, Refusal::Invalid);
    let request = offered(&other, 42, 1);
    assert!(matches!(other.request(request).await, from_bridge::Body::Offered(_)));
    let mut client = Client::connect(&bridge).await;
    assert_eq!(client.refused(meeting(42, &[7; 31])).await, Refusal::Invalid);
    assert_eq!(client.refused(meeting(0, &[7; 32])).await, Refusal::Room);
    let to_bridge::Body::Meet(mut later) = meeting(42, &[7; 32]) else { panic!() };
    later.min_version = 2;
    assert_eq!(client.refused(to_bridge::Body::Meet(later)).await, Refusal::Version);
}
