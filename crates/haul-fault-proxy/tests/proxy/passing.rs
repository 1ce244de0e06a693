//! Without faults the proxy is transparent: bytes, FINs and resets pass unchanged.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use haul_fault_proxy::{Bytes, ConnectionState, Connections, Direction, Fault, FaultProxy};

use crate::peers::*;
use crate::port::free_port;

#[test]
fn bytes_pass_unchanged_and_are_counted() {
    let server = Server::echo();
    let proxy = server.proxy();
    for size in [0, 1, 65_536, 3_000_000] {
        let bytes = pattern(size);
        let client = connect(&proxy);
        let mut reader = client.try_clone().unwrap();
        let reading = std::thread::spawn(move || receive(&mut reader));
        send(&client, &bytes);
        let received = reading.join().unwrap();
        assert_eq!(received.end, End::Fin);
        assert_same(&received.bytes, &bytes);
        let count = Bytes { read: size as u64, delivered: size as u64 };
        let last = proxy.stats().connections.pop().unwrap();
        assert_eq!((last.to_server, last.to_client), (count, count));
    }
    assert!(proxy.wait_until(|stats| stats.open == 0, PATIENCE));
    let stats = proxy.stats();
    let all = Bytes { read: 3_065_537, delivered: 3_065_537 };
    assert_eq!((stats.to_server, stats.to_client), (all, all));
    assert_eq!((stats.accepted, stats.refused, stats.fired.len()), (4, 0, 0));
    assert!(stats.connections.iter().all(|one| one.state == ConnectionState::Finished));
    assert!(stats.failures.is_empty(), "{:?}", stats.failures);
}

#[test]
fn a_client_that_has_ended_its_stream_still_gets_the_response() {
    let (server, _reports) = Server::reporting(|mut socket| {
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        socket.write_all(b"got ").unwrap();
        socket.write_all(&all).unwrap();
    });
    let proxy = server.proxy();
    assert_eq!(exchange(&proxy, b"this"), Received { bytes: b"got this".to_vec(), end: End::Fin });
}

#[test]
fn a_server_that_has_ended_its_stream_still_gets_everything() {
    let (server, reports) = Server::source(b"bye".to_vec());
    let proxy = server.proxy();
    let mut client = connect(&proxy);
    assert_eq!(receive(&mut client).bytes, b"bye");
    let bytes = pattern(500_000);
    send(&client, &bytes);
    let received = reports.recv().unwrap();
    assert_eq!(received.end, End::Fin);
    assert_same(&received.bytes, &bytes);
}

#[test]
fn a_reset_by_the_client_arrives_after_its_bytes() {
    let (server, reports) = Server::sink();
    let proxy = server.proxy();
    let mut client = connect(&proxy);
    client.write_all(b"last words").unwrap();
    assert!(proxy.wait_until(|stats| stats.to_server.delivered == 10, PATIENCE));
    reset(client);
    let received = reports.recv().unwrap();
    assert_eq!(received, Received { bytes: b"last words".to_vec(), end: End::Reset });
    assert_eq!(proxy.stats().connections[0].state, ConnectionState::Cut);
}

#[test]
fn a_reset_by_the_server_arrives_after_its_bytes() {
    let server = Server::new(|mut socket| {
        socket.write_all(b"last words").unwrap();
        // The client confirms that it has the bytes.
        socket.read_exact(&mut [0]).unwrap();
        reset(socket);
    });
    let proxy = server.proxy();
    let mut client = connect(&proxy);
    let mut received = [0; 10];
    client.read_exact(&mut received).unwrap();
    client.write_all(b"!").unwrap();
    assert_eq!(receive(&mut client).end, End::Reset);
    assert_eq!(proxy.stats().connections[0].state, ConnectionState::Cut);
}

/// Waits for the end of the client's stream and then, without sending anything, for a reset.
fn until_broken(mut socket: TcpStream) -> bool {
    assert_eq!(receive(&mut socket).end, End::Fin);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if socket.take_error().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn a_reset_after_the_end_of_the_stream_is_passed_on_while_idle() {
    let (server, reports) = Server::reporting(until_broken);
    let proxy = server.proxy();
    let client = connect(&proxy);
    client.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(MOMENT);
    reset(client);
    assert!(reports.recv().unwrap());
    assert_eq!(proxy.stats().connections[0].state, ConnectionState::Cut);
}

#[test]
fn an_end_and_a_reset_in_flight_together_both_arrive() {
    let (server, reports) = Server::reporting(until_broken);
    let proxy = server.proxy();
    let hour = Fault::delay(Duration::from_secs(3600));
    proxy.set(Connections::All, Direction::ToServer, hour);
    let mut client = connect(&proxy);
    client.write_all(b"bye").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(proxy.wait_until(|stats| stats.to_server.read == 3, PATIENCE));
    std::thread::sleep(MOMENT);
    reset(client);
    std::thread::sleep(MOMENT);
    assert_eq!(proxy.stats().open, 1);
    proxy.clear();
    assert!(reports.recv().unwrap());
    assert_eq!(proxy.stats().connections[0].state, ConnectionState::Cut);
}

#[test]
fn a_client_that_leaves_during_a_response_stops_the_server() {
    let (server, reports) = Server::reporting(|mut socket| {
        let block = [7; 65536];
        while socket.write_all(&block).is_ok() {}
    });
    let proxy = server.proxy();
    let mut client = connect(&proxy);
    client.read_exact(&mut [0; 100_000]).unwrap();
    drop(client);
    reports.recv().unwrap();
    assert!(proxy.wait_until(|stats| stats.open == 0, PATIENCE));
}

#[test]
fn a_refusal_by_the_server_resets_the_client_and_is_recorded() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let proxy = FaultProxy::to(address).start().unwrap();
    for number in 1..=2 {
        let received = exchange(&proxy, b"anybody there?");
        assert_eq!(received, Received { bytes: Vec::new(), end: End::Reset });
        let stats = proxy.stats();
        let failure = stats.failures.last().unwrap();
        assert_eq!(failure.connection, Some(number));
        assert_eq!((failure.operation, failure.kind), ("connect", ErrorKind::ConnectionRefused));
        assert_eq!(stats.connection(number).unwrap().state, ConnectionState::Unreachable);
        assert_eq!(stats.open, 0);
    }
}

#[test]
fn ipv4_and_ipv6_can_be_bridged() {
    let server = Server::on("[::1]:0", echo);
    let proxy = FaultProxy::to(server.address).start().unwrap();
    assert!(proxy.address().is_ipv4());
    assert_eq!(exchange(&proxy, b"4 to 6").bytes, b"4 to 6");

    let server = Server::echo();
    let proxy = FaultProxy::to(server.address).on_ipv6().start().unwrap();
    assert!(proxy.address().is_ipv6());
    assert_eq!(exchange(&proxy, b"6 to 4").bytes, b"6 to 4");
    // For a hard cut, the proxy looks up the client's socket, which is IPv6, in /proc.
    proxy.set(Connections::All, Direction::ToClient, Fault::CutHard { after: 1 });
    assert_eq!(exchange(&proxy, b"6 to 4"), Received { bytes: b"6".to_vec(), end: End::Reset });
}

#[test]
fn two_hundred_connections_at_once_keep_their_bytes_apart() {
    let server = Server::echo();
    let proxy = server.proxy();
    let mut clients: Vec<_> = (0..200).map(|_| connect(&proxy)).collect();
    assert!(proxy.wait_until(|stats| stats.open == 200, PATIENCE));
    let bytes = |client: usize| pattern(40_000 + client)[client..].to_vec();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(&bytes(number)).unwrap();
    }
    for (number, mut client) in clients.into_iter().enumerate() {
        client.shutdown(Shutdown::Write).unwrap();
        let received = receive(&mut client);
        assert_eq!(received.end, End::Fin);
        assert_same(&received.bytes, &bytes(number));
    }
    assert!(proxy.wait_until(|stats| stats.open == 0, PATIENCE));
    let stats = proxy.stats();
    assert_eq!((stats.accepted, stats.peak_open), (200, 200));
    assert_eq!(stats.to_client.delivered, 200 * 40_000);
}

#[test]
fn bytes_that_the_receiver_does_not_take_are_not_read() {
    let bytes = pattern(64 << 20);
    let (server, _reports) = Server::source(bytes.clone());
    let proxy = server.proxy();
    let mut client = connect(&proxy);
    std::thread::sleep(MOMENT);
    let in_flight =
        |stats: &haul_fault_proxy::Stats| stats.to_client.read - stats.to_client.delivered;
    let mut most = in_flight(&proxy.stats());
    let mut received = vec![0; bytes.len()];
    for part in received.chunks_mut(1 << 20) {
        client.read_exact(part).unwrap();
        most = most.max(in_flight(&proxy.stats()));
    }
    assert_same(&received, &bytes);
    assert!(most <= 1 << 20, "{most} bytes were in the proxy");
}

#[test]
fn a_hundred_megabytes_pass_unchanged_through_delay_and_rate_both_ways() {
    let server = Server::echo();
    let proxy = FaultProxy::to(server.address)
        .set(Connections::All, Direction::ToServer, Fault::delay(Duration::from_millis(20)))
        .set(Connections::All, Direction::ToServer, Fault::Rate(150_000_000))
        .set(
            Connections::All,
            Direction::ToClient,
            Fault::Delay { time: Duration::from_millis(10), jitter: Duration::from_millis(10) },
        )
        .set(Connections::All, Direction::ToClient, Fault::SharedRate(200_000_000))
        .start()
        .unwrap();
    let bytes = pattern(104 << 20);
    let mut client = connect(&proxy);
    let mut writer: TcpStream = client.try_clone().unwrap();
    let sent = bytes.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&sent).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let received = receive(&mut client);
    writing.join().unwrap();
    assert_eq!(received.end, End::Fin);
    assert_same(&received.bytes, &bytes);
    assert_eq!(proxy.fired().len(), 4);
}
