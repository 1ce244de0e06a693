//! Delays: everything arrives late and in order, and only the capacity of the line limits the bytes in flight.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy, Injected};

use crate::peers::*;

const HOUR: Duration = Duration::from_secs(3600);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Sends messages to a server that notes when each arrives, and returns their delays, shortest first.
/// Asserts that the messages arrive in order.
fn delays(messages: u64, fault: Fault) -> Vec<Duration> {
    let (server, reports) = Server::reporting(|mut socket| {
        let mut message = [0; 8];
        let mut arrived = Vec::new();
        while socket.read_exact(&mut message).is_ok() {
            arrived.push((u64::from_le_bytes(message), Instant::now()));
        }
        arrived
    });
    let proxy = FaultProxy::to(server.address)
        .seed(5)
        .set(Connections::All, Direction::ToServer, fault)
        .start()
        .unwrap();
    let mut client = connect(&proxy);
    let mut sent = Vec::new();
    for number in 0..messages {
        sent.push(Instant::now());
        client.write_all(&number.to_le_bytes()).unwrap();
        std::thread::sleep(ms(3));
    }
    client.shutdown(Shutdown::Write).unwrap();
    let arrived = reports.recv().unwrap();
    assert_eq!(proxy.fired().len(), 1);
    assert!(arrived.iter().map(|(number, _)| *number).eq(0..messages), "order");
    let mut delays: Vec<_> =
        arrived.iter().zip(sent).map(|((_, arrived), sent)| *arrived - sent).collect();
    delays.sort();
    delays
}

#[test]
fn every_message_is_late_by_the_delay() {
    let delays = delays(30, Fault::delay(ms(100)));
    assert!(delays[0] >= ms(100), "{delays:?}");
}

#[test]
fn jitter_adds_to_the_delay_and_preserves_the_order() {
    let delays = delays(40, Fault::Delay { time: ms(50), jitter: ms(100) });
    assert!(delays[0] >= ms(50), "{delays:?}");
    // Half of the draws are above the middle.
    assert!(*delays.last().unwrap() >= ms(100), "{delays:?}");
}

#[test]
fn delays_of_both_directions_and_of_several_rules_add_up() {
    let server = Server::echo();
    let proxy = server.proxy();
    let mut client = connect(&proxy);
    ping(&mut client, b"not yet");
    proxy.set(Connections::All, Direction::ToServer, Fault::delay(ms(40)));
    proxy.set(Connections::Nth(1), Direction::ToServer, Fault::delay(ms(50)));
    proxy.set(Connections::First(1), Direction::ToClient, Fault::delay(ms(60)));
    proxy.set(Connections::From(2), Direction::ToClient, Fault::delay(HOUR));
    let start = Instant::now();
    assert_eq!(ping(&mut client, b"slow"), b"slow");
    assert!(start.elapsed() >= ms(150));
    let fired: Vec<_> = proxy.fired().iter().map(|fired| fired.what).collect();
    assert_eq!(
        fired,
        [(Direction::ToServer, 40), (Direction::ToServer, 50), (Direction::ToClient, 60)].map(
            |(direction, time)| Injected::Stream {
                direction,
                fault: Fault::delay(ms(time)),
                at: 7
            }
        )
    );
}

#[test]
fn a_delay_does_not_limit_the_bytes_in_flight() {
    let (server, _reports) = Server::sink();
    let proxy = FaultProxy::to(server.address)
        .set(Connections::All, Direction::ToServer, Fault::delay(HOUR))
        .start()
        .unwrap();
    let mut client = connect(&proxy);
    // Far more than the system's buffers hold.
    client.write_all(&pattern(40_000_000)).unwrap();
    assert!(proxy.wait_until(|stats| stats.to_server.read == 40_000_000, PATIENCE));
    assert_eq!(proxy.stats().to_server.delivered, 0);
}

#[test]
fn the_end_of_the_stream_and_a_reset_are_delayed_too() {
    let (server, reports) = Server::reporting(|mut socket| (receive(&mut socket), Instant::now()));
    let proxy = server.proxy();
    proxy.set(Connections::All, Direction::ToServer, Fault::delay(ms(100)));
    for (number, end) in [(1, End::Fin), (2, End::Reset)] {
        let mut client = connect(&proxy);
        client.write_all(b"x").unwrap();
        assert!(proxy.wait_until(|stats| stats.to_server.read == number, PATIENCE));
        let start = Instant::now();
        match end {
            End::Fin => client.shutdown(Shutdown::Write).unwrap(),
            _ => reset(client),
        }
        let (received, at) = reports.recv().unwrap();
        assert_eq!(received, Received { bytes: b"x".to_vec(), end });
        assert!(at - start >= ms(100), "{end:?}");
    }
}

#[test]
fn bytes_in_flight_arrive_when_the_delay_is_lifted() {
    let server = Server::echo();
    let proxy = server.proxy();
    let delay = proxy.set(Connections::All, Direction::ToServer, Fault::delay(HOUR));
    let mut client = connect(&proxy);
    client.write_all(b"late").unwrap();
    assert!(proxy.wait_until(|stats| stats.to_server.read == 4, PATIENCE));
    assert!(proxy.lift(delay));
    assert!(!proxy.lift(delay));
    let mut response = [0; 4];
    client.read_exact(&mut response).unwrap();
    assert_eq!(&response, b"late");
}

#[test]
fn an_infinite_delay_holds_bytes_until_it_is_lifted() {
    let server = Server::echo();
    let proxy = server.proxy();
    proxy.set(Connections::All, Direction::ToServer, Fault::delay(Duration::MAX));
    let mut client = connect(&proxy);
    client.write_all(b"never").unwrap();
    assert_eq!(receive_briefly(&mut client), Received { bytes: Vec::new(), end: End::Timeout });
    proxy.clear();
    client.read_exact(&mut [0; 5]).unwrap();
}

#[test]
fn a_line_takes_no_more_than_its_capacity() {
    const CAPACITY: u64 = 1 << 20;
    let (server, reports) = Server::sink();
    let proxy = FaultProxy::to(server.address)
        .line_capacity(CAPACITY as usize)
        .set(Connections::All, Direction::ToServer, Fault::delay(HOUR))
        .start()
        .unwrap();
    let bytes = pattern(40 << 20);
    let client = connect(&proxy);
    let sent = bytes.clone();
    let sending = std::thread::spawn(move || send(&client, &sent));
    assert!(proxy.wait_until(|stats| stats.to_server.read > CAPACITY / 2, PATIENCE));
    std::thread::sleep(MOMENT);
    assert!(proxy.stats().to_server.read <= CAPACITY);
    proxy.clear();
    let received = reports.recv().unwrap();
    sending.join().unwrap();
    assert_same(&received.bytes, &bytes);
}

#[test]
fn a_line_without_capacity_still_moves_bytes() {
    let server = Server::echo();
    let proxy = FaultProxy::to(server.address).line_capacity(0).start().unwrap();
    let bytes = pattern(2_000);
    assert_same(&exchange(&proxy, &bytes).bytes, &bytes);
}
