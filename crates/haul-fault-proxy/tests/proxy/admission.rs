//! Refused, stalled and paused connections, and reading stats.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use haul_fault_proxy::{ConnectionState, Connections, FaultProxy, Injected};

use crate::peers::*;

fn works(proxy: &FaultProxy) -> bool {
    exchange(proxy, b"hello") == Received { bytes: b"hello".to_vec(), end: End::Fin }
}

fn is_refused(proxy: &FaultProxy) -> bool {
    exchange(proxy, b"hello") == Received { bytes: Vec::new(), end: End::Reset }
}

#[test]
fn connections_are_refused_from_the_given_number_on() {
    let server = Server::echo();
    let proxy = FaultProxy::to(server.address).refuse(Connections::From(3)).start().unwrap();
    assert!(works(&proxy));
    assert!(works(&proxy));
    assert!(is_refused(&proxy));
    assert!(is_refused(&proxy));
    let stats = proxy.stats();
    assert_eq!((stats.accepted, stats.refused), (4, 2));
    assert_eq!(stats.connection(2).unwrap().to_server.delivered, 5);
    assert_eq!(stats.connection(3).unwrap().state, ConnectionState::Refused);
    assert_eq!(stats.connection(3).unwrap().to_server.read, 0);
    assert!(stats.connection(0).is_none() && stats.connection(5).is_none());
    let fired: Vec<_> = stats.fired.iter().map(|fired| (fired.connection, fired.what)).collect();
    assert_eq!(fired, [(3, Injected::Refused), (4, Injected::Refused)]);
    proxy.clear();
    assert!(works(&proxy));
}

#[test]
fn a_refusal_leaves_open_connections_alone() {
    let server = Server::echo();
    let proxy = server.proxy();
    let mut open = connect(&proxy);
    ping(&mut open, b"before");
    proxy.refuse(Connections::All);
    assert!(is_refused(&proxy));
    assert_eq!(ping(&mut open, b"after"), b"after");
}

#[test]
fn connections_beyond_the_open_limit_are_refused() {
    let server = Server::echo();
    let proxy = FaultProxy::to(server.address).limit_open(2).start().unwrap();
    let mut first = connect(&proxy);
    let mut second = connect(&proxy);
    ping(&mut first, b"1");
    ping(&mut second, b"2");
    for _ in 0..3 {
        assert!(is_refused(&proxy));
    }
    assert_eq!(ping(&mut first, b"1"), b"1");
    drop(first);
    assert!(proxy.wait_until(|stats| stats.open == 1, PATIENCE));
    assert!(works(&proxy));
    let stats = proxy.stats();
    assert_eq!((stats.accepted, stats.refused, stats.peak_open), (6, 3, 2));
    assert!(stats.fired.iter().all(|fired| fired.what == Injected::OverLimit(2)));
}

#[test]
fn a_stalled_connection_is_accepted_and_forwarded_once_the_stall_is_lifted() {
    let server = Server::echo();
    let proxy = FaultProxy::to(server.address).stall(Connections::Nth(1)).start().unwrap();
    let mut stalled = connect(&proxy);
    stalled.write_all(b"hello").unwrap();
    assert_eq!(receive_briefly(&mut stalled), Received { bytes: Vec::new(), end: End::Timeout });
    assert!(works(&proxy));
    let stats = proxy.stats();
    assert_eq!(stats.connections[0].to_server.read, 0);
    assert_eq!(stats.connections[0].state, ConnectionState::Open);
    assert_eq!((stats.fired[0].connection, stats.fired[0].what), (1, Injected::Stalled));
    // A connection that is already forwarded does not stall.
    let mut open = connect(&proxy);
    ping(&mut open, b"before");
    let all = proxy.stall(Connections::All);
    ping(&mut open, b"after");
    proxy.lift(all);
    proxy.clear();
    let mut response = [0; 5];
    stalled.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"hello");
}

#[test]
fn a_stalled_connection_is_no_longer_open_after_a_reset_by_the_client() {
    let server = Server::echo();
    let proxy = FaultProxy::to(server.address).stall(Connections::All).start().unwrap();
    let client = connect(&proxy);
    assert!(proxy.wait_until(|stats| stats.open == 1, PATIENCE));
    reset(client);
    assert!(proxy.wait_until(|stats| stats.open == 0, PATIENCE));
}

#[test]
fn a_paused_proxy_forwards_nothing_and_loses_nothing() {
    let server = Server::echo();
    let proxy = server.proxy();
    let mut open = connect(&proxy);
    ping(&mut open, b"before");
    let before = proxy.stats();
    proxy.pause();
    open.write_all(b"during").unwrap();
    let mut new = connect(&proxy);
    new.write_all(b"new").unwrap();
    assert_eq!(receive_briefly(&mut open).end, End::Timeout);
    let paused = proxy.stats();
    assert_eq!(paused.to_server, before.to_server);
    assert_eq!(paused.accepted, 1);
    proxy.resume();
    let mut response = [0; 6];
    open.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"during");
    new.read_exact(&mut response[..3]).unwrap();
    assert_eq!(&response[..3], b"new");
}

#[test]
fn a_paused_proxy_can_cut_all_connections() {
    let server = Server::echo();
    let proxy = server.proxy();
    let mut client = connect(&proxy);
    ping(&mut client, b"before");
    proxy.pause();
    proxy.cut_all();
    assert_eq!(receive(&mut client).end, End::Reset);
    proxy.resume();
    assert!(works(&proxy));
}

#[test]
fn wait_until_returns_false_only_after_the_timeout() {
    let server = Server::echo();
    let proxy = server.proxy();
    let start = Instant::now();
    assert!(!proxy.wait_until(|stats| stats.open == 1, MOMENT));
    assert!(start.elapsed() >= MOMENT);
    assert!(!proxy.wait_until(|stats| stats.open == 1, Duration::ZERO));
    assert!(proxy.wait_until(|stats| stats.open == 0, Duration::ZERO));
}

#[test]
fn the_condition_of_wait_until_may_use_the_proxy() {
    let server = Server::echo();
    let proxy = server.proxy();
    proxy.stall(Connections::All);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(works(&proxy)));
        let lifted = proxy.wait_until(
            |stats| {
                if stats.open == 1 {
                    proxy.clear();
                }
                stats.to_client.delivered == 5
            },
            Duration::MAX,
        );
        assert!(lifted);
    });
}

#[test]
fn stats_are_readable_while_many_bytes_flow() {
    let (server, _reports) = Server::sink();
    let proxy = server.proxy();
    let bytes = pattern(128 << 20);
    let mut client = connect(&proxy);
    std::thread::scope(|scope| {
        let sending = scope.spawn(move || client.write_all(&bytes).unwrap());
        let mut samples = std::collections::BTreeSet::new();
        while !sending.is_finished() {
            samples.insert(proxy.stats().to_server.delivered);
        }
        // Stats were also read while the bytes were flowing.
        assert!(samples.len() >= 5, "{samples:?}");
    });
}
