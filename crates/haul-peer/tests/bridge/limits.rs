//! Tests of the limits of a bridge.

use std::time::{Duration, Instant};

use haul_peer::bridge::messages::{Refusal, from_bridge};
use haul_peer::bridge::{BridgeLimits, preamble};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::{Client, PATIENCE, bind, closed, data, pair, receive, room, sharer, with_limits};

#[tokio::test]
async fn data_connections_without_a_counterpart_expire() {
    let claim = Duration::from_millis(500);
    let bridge = with_limits(BridgeLimits { claim, ..BridgeLimits::default() }).await;
    let start = Instant::now();
    let mut stray = data(&bridge, &[7; 32]).await;
    closed(&mut stray).await;
    assert!(start.elapsed() >= claim);
    // A connection that is announced, while the sharer opens none.
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let mut client = Client::connect(&bridge).await;
    let id = preamble::random_id().unwrap();
    let mut near = data(&bridge, &id).await;
    let request = client.join(&room, &[id]);
    client.request(request).await;
    let incoming = sharer.incoming().await;
    closed(&mut near).await;
    // The sharer's connection is not expected any more.
    let mut late = data(&bridge, &incoming.connections[0]).await;
    closed(&mut late).await;
}

#[tokio::test]
async fn a_connection_id_cannot_be_used_twice() {
    // So long that only a refusal closes the second connection in time.
    let claim = PATIENCE * 2;
    let bridge = with_limits(BridgeLimits { claim, ..BridgeLimits::default() }).await;
    let _first = data(&bridge, &[7; 32]).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut second = data(&bridge, &[7; 32]).await;
    closed(&mut second).await;
}

#[tokio::test]
async fn joins_of_an_address_are_limited_per_minute() {
    let limits = BridgeLimits { joins_per_minute: 3, ..BridgeLimits::default() };
    let bridge = with_limits(limits).await;
    let room = room();
    let _sharer = sharer(&bridge, &room).await;
    for _ in 0..3 {
        let mut client = Client::connect(&bridge).await;
        let request = client.join(&room, &[]);
        assert!(matches!(client.request(request).await, from_bridge::Body::Joined(_)));
    }
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&room, &[]);
    assert_eq!(client.refused(request).await, Refusal::Rate);
}

#[tokio::test]
async fn a_quota_ends_pairs_and_refuses_joins() {
    let bridge = bind(|builder| builder.quota(Some(100_000))).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let (mut near, mut far) = pair(&bridge, &mut sharer, &room).await;
    let sending = tokio::spawn(async move {
        // It fails when the bridge closes the connection.
        while near.write_all(&[0; 10_000]).await.is_ok() {}
    });
    let mut received = Vec::new();
    // The end may be a reset.
    drop(timeout(PATIENCE, far.read_to_end(&mut received)).await.unwrap());
    assert!(received.len() <= 100_000 + (256 << 10), "{}", received.len());
    sending.await.unwrap();
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&room, &[]);
    assert_eq!(client.refused(request).await, Refusal::Quota);
}

#[tokio::test]
async fn a_rate_applies_to_all_pairs_of_a_sharer() {
    let bridge = bind(|builder| builder.max_rate(Some(2_000_000))).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let mut pairs = Vec::new();
    for _ in 0..2 {
        pairs.push(pair(&bridge, &mut sharer, &room).await);
    }
    let start = Instant::now();
    let copies = pairs.into_iter().map(|(mut near, mut far)| {
        tokio::spawn(async move {
            let sent = vec![0; 700_000];
            tokio::join!(
                async { far.write_all(&sent).await.unwrap() },
                receive(&mut near, 700_000),
            );
        })
    });
    for copy in copies.collect::<Vec<_>>() {
        copy.await.unwrap();
    }
    // 0.7 s for both together, less the burst of 0.1 s and the pause after the last piece, which the receivers do not
    // wait for.
    assert!(start.elapsed() >= Duration::from_millis(350), "{:?}", start.elapsed());
}

#[tokio::test]
async fn sharers_and_their_connections_are_limited() {
    let limits = BridgeLimits { connections_of_sharer: 1, ..BridgeLimits::default() };
    let bridge = bind(|builder| builder.max_sessions(1).limits(limits)).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let mut other = Client::connect(&bridge).await;
    let request = other.registration("token", &super::room());
    assert_eq!(other.refused(request).await, Refusal::Busy);
    let _first = pair(&bridge, &mut sharer, &room).await;
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&room, &[preamble::random_id().unwrap()]);
    assert_eq!(client.refused(request).await, Refusal::Busy);
}

#[tokio::test]
async fn a_silent_sharer_is_forgotten() {
    let silence = Duration::from_millis(300);
    let bridge = with_limits(BridgeLimits { silence, ..BridgeLimits::default() }).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    assert!(sharer.receive().await.is_none(), "the connection stays open");
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&room, &[]);
    assert_eq!(client.refused(request).await, Refusal::Room);
}
