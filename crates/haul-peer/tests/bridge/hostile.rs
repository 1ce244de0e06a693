//! Tests of a bridge with invalid and hostile input.

use std::time::Duration;

use haul_peer::bridge::messages::{Refusal, RoomOffer, to_bridge};
use haul_peer::bridge::{BridgeLimits, preamble};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Client, bind, closed, pair, receive, room, sharer, with_limits};

#[tokio::test]
async fn connections_that_send_garbage_or_nothing_are_closed() {
    // Long enough for the handshakes of the valid clients, also on a busy machine.
    let handshake = Duration::from_secs(3);
    let bridge = with_limits(BridgeLimits { handshake, ..BridgeLimits::default() }).await;
    let cut = &preamble::encode(&[7; 32])[..20];
    let wrong = [&b"haulbr2\n"[..], &[7; 32]].concat();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 100],
        &[0x16, 3, 1, 0xff, 0xff, 0, 0],
        &[0x16; 4000],
        cut,
        &wrong,
        &[],
    ] {
        let mut stream = TcpStream::connect(bridge.addresses()[0]).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        closed(&mut stream).await;
    }
    // A handshake without a request.
    let mut client = Client::connect(&bridge).await;
    assert!(client.receive().await.is_none());
    let room = room();
    sharer(&bridge, &room).await;
}

#[tokio::test]
async fn giant_and_malformed_messages_are_refused() {
    let bridge = bind(|builder| builder).await;
    for bytes in [
        // A frame of 4 GiB, one without a kind, a piece of a file, and one that is not protobuf.
        &[0xff, 0xff, 0xff, 0xff, 1][..],
        &[0, 0, 0, 0, 0],
        &[0, 0, 0, 60, 2],
        &[0, 0, 0, 4, 1, 0xff, 0xff, 0xff],
    ] {
        let mut client = Client::connect(&bridge).await;
        client.stream.write_all(bytes).await.unwrap();
        client.stream.flush().await.unwrap();
        assert!(client.receive().await.is_none(), "{bytes:?}");
    }
    let room = room();
    let mut client = Client::connect(&bridge).await;
    let invalid = |change: fn(&mut RoomOffer)| {
        let to_bridge::Body::Register(mut request) = client.registration("token", &room) else {
            panic!()
        };
        request.rooms.iter_mut().for_each(change);
        to_bridge::Body::Register(request)
    };
    let requests =
        [invalid(|offer| offer.name.truncate(31)), invalid(|offer| offer.key = vec![0; 33].into())];
    for request in requests {
        assert_eq!(client.refused(request).await, Refusal::Invalid);
    }
    let to_bridge::Body::Register(mut request) = client.registration("token", &room) else {
        panic!()
    };
    request.rooms = vec![request.rooms[0].clone(); 25];
    assert_eq!(client.refused(to_bridge::Body::Register(request)).await, Refusal::Invalid);
    let request = client.join(&room, &[]);
    assert_eq!(client.refused(request).await, Refusal::Room);
    assert!(client.receive().await.is_none(), "the connection stays open after four refusals");
}

#[tokio::test]
async fn a_thousand_half_open_connections_do_not_stop_a_registered_sharer() {
    let most = getrlimit(Resource::Nofile).maximum;
    if most.is_some_and(|most| most < 4096) {
        eprintln!("SKIPPED: too few open files are allowed");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    let bridge = bind(|builder| builder).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let mut half_open = Vec::new();
    for at in 0..1000 {
        let mut stream = TcpStream::connect(bridge.addresses()[0]).await.unwrap();
        match at % 3 {
            0 => {}
            1 => stream.write_all(&[0x16, 3, 1]).await.unwrap(),
            _ => stream.write_all(b"haulbr1\n").await.unwrap(),
        }
        half_open.push(stream);
    }
    let (mut near, mut far) = pair(&bridge, &mut sharer, &room).await;
    near.write_all(b"still").await.unwrap();
    assert_eq!(receive(&mut far, 5).await, b"still");
    far.write_all(b"here").await.unwrap();
    assert_eq!(receive(&mut near, 4).await, b"here");
    drop(half_open);
}
