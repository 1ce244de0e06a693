//! Connections cut early: by reset or FIN, in one direction or both, one connection or all.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::Duration;

use haul_fault_proxy::{
    ConnectionState, Connections, Direction, Fault, FaultProxy, Fired, Injected, RuleId,
};

use crate::peers::*;

const LENGTH: usize = 200_000;

/// No byte, one byte, within a read of 64 KiB and at its end, within later reads, all bytes but one.
const WITHIN: [usize; 8] = [0, 1, 777, 65_535, 65_536, 65_537, 100_000, LENGTH - 1];

fn fired_once(rule: RuleId, direction: Direction, fault: Fault, at: usize) -> [Fired; 1] {
    let what = Injected::Stream { direction, fault, at: at as u64 };
    [Fired { rule, connection: 1, what, times: 1 }]
}

#[test]
fn a_hard_cut_to_the_client_resets_both_sides_after_exactly_n_bytes() {
    let bytes = pattern(LENGTH);
    for count in WITHIN {
        let (server, reports) = Server::quiet_source(bytes.clone());
        let fault = Fault::CutHard { after: count as u64 };
        let proxy = server.proxy();
        let rule = proxy.set(Connections::All, Direction::ToClient, fault);
        let received = receive(&mut connect(&proxy));
        assert_eq!(received.end, End::Reset, "{count}");
        assert_same(&received.bytes, &bytes[..count]);
        assert_eq!(proxy.fired(), fired_once(rule, Direction::ToClient, fault, count));
        assert_eq!(proxy.stats().connections[0].state, ConnectionState::Cut);
        assert_eq!(proxy.stats().to_client.delivered, count as u64);
        assert_eq!(reports.recv().unwrap().end, End::Reset, "{count}");
    }
}

#[test]
fn a_hard_cut_to_the_server_resets_both_sides_after_exactly_n_bytes() {
    let bytes = pattern(LENGTH);
    for count in WITHIN {
        let (server, reports) = Server::sink();
        let fault = Fault::CutHard { after: count as u64 };
        let proxy = server.proxy();
        let rule = proxy.set(Connections::All, Direction::ToServer, fault);
        let mut client = connect(&proxy);
        let sent = write(&client, &bytes);
        assert_eq!(receive_after(sent, &mut client).end, End::Reset, "{count}");
        let received = reports.recv().unwrap();
        assert_eq!(received.end, End::Reset, "{count}");
        assert_same(&received.bytes, &bytes[..count]);
        assert_eq!(proxy.fired(), fired_once(rule, Direction::ToServer, fault, count));
    }
}

#[test]
fn a_cut_fires_at_the_end_of_the_stream_but_not_beyond_it() {
    let bytes = pattern(LENGTH);
    let at_the_end = [
        (Fault::CutHard { after: LENGTH as u64 }, End::Reset),
        (Fault::CutSoft { after: LENGTH as u64 }, End::Fin),
        (Fault::Truncate { after: LENGTH as u64 }, End::Fin),
    ];
    for (fault, end) in at_the_end {
        let (server, _reports) = Server::source(bytes.clone());
        let proxy = server.proxy();
        let rule = proxy.set(Connections::All, Direction::ToClient, fault);
        let received = receive(&mut connect(&proxy));
        assert_eq!(received.end, end, "{fault:?}");
        assert_same(&received.bytes, &bytes);
        assert_eq!(proxy.fired(), fired_once(rule, Direction::ToClient, fault, LENGTH));
    }
    let after = LENGTH as u64 + 1;
    for fault in [Fault::CutHard { after }, Fault::CutSoft { after }, Fault::Truncate { after }] {
        let (server, reports) = Server::source(bytes.clone());
        let proxy = server.proxy();
        proxy.set(Connections::All, Direction::ToClient, fault);
        let mut client = connect(&proxy);
        let received = receive(&mut client);
        assert_eq!(received.end, End::Fin, "{fault:?}");
        assert_same(&received.bytes, &bytes);
        assert_same(&ping_pong(&mut client, &reports), b"still here");
        assert_eq!(proxy.fired(), []);
    }
}

/// Sends bytes and FIN to the server, and returns what it received: the other direction works up to its end.
fn ping_pong(
    client: &mut std::net::TcpStream,
    reports: &std::sync::mpsc::Receiver<Received>,
) -> Vec<u8> {
    assert_eq!(send(client, b"still here"), None);
    let received = reports.recv().unwrap();
    assert_eq!(received.end, End::Fin);
    received.bytes
}

#[test]
fn a_hard_cut_waits_for_a_receiver_that_is_slow_to_read() {
    // Both are more than the socket buffer of a client that does not read. The first may fit into the proxy's
    // send buffer; the second is more than both buffers hold by default on Linux.
    for count in [2_000_000, 20_000_000] {
        let bytes = pattern(count + 1000);
        let (server, _reports) = Server::quiet_source(bytes.clone());
        let proxy = server.proxy();
        let rule = proxy.set(
            Connections::All,
            Direction::ToClient,
            Fault::CutHard { after: count as u64 },
        );
        let mut client = connect(&proxy);
        // Whether the cut has fired by now depends on the buffers of this system.
        proxy.wait_until(|stats| stats.has_fired(rule), Duration::from_millis(500));
        std::thread::sleep(MOMENT);
        let received = receive(&mut client);
        assert_eq!(received.end, End::Reset);
        assert_same(&received.bytes, &bytes[..count]);
    }
}

#[test]
fn a_hard_cut_does_not_wait_for_a_receiver_that_is_gone() {
    let (server, reports) = Server::quiet_source(pattern(3_000_000));
    let proxy = server.proxy();
    let cut = Fault::CutHard { after: 2_000_000 };
    let rule = proxy.set(Connections::All, Direction::ToClient, cut);
    let client = connect(&proxy);
    proxy.wait_until(|stats| stats.has_fired(rule), Duration::from_millis(500));
    reset(client);
    assert!(proxy.wait_until(|stats| stats.open == 0, PATIENCE));
    assert_eq!(reports.recv().unwrap().end, End::Reset);
}

#[test]
fn a_soft_cut_ends_both_streams_with_a_fin() {
    let bytes = pattern(LENGTH);
    for count in WITHIN {
        let (server, reports) = Server::quiet_source(bytes.clone());
        let fault = Fault::CutSoft { after: count as u64 };
        let proxy = server.proxy();
        let rule = proxy.set(Connections::All, Direction::ToClient, fault);
        let mut client = connect(&proxy);
        let received = receive(&mut client);
        assert_eq!(received.end, End::Fin, "{count}");
        assert_same(&received.bytes, &bytes[..count]);
        let at_server = reports.recv().unwrap();
        assert_eq!(at_server, Received { bytes: Vec::new(), end: End::Fin }, "{count}");
        // Bytes sent after the cut disappear without an error.
        client.write_all(&pattern(5_000_000)).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(proxy.wait_until(|stats| stats.open == 0, PATIENCE));
        let stats = proxy.stats();
        assert_eq!(stats.connections[0].state, ConnectionState::Finished);
        assert_eq!(stats.to_server.delivered, 0);
        assert_eq!(proxy.fired(), fired_once(rule, Direction::ToClient, fault, count));
    }
}

#[test]
fn a_truncated_response_ends_cleanly_and_the_other_direction_continues() {
    let bytes = pattern(LENGTH);
    for count in WITHIN {
        let (server, reports) = Server::quiet_source(bytes.clone());
        let fault = Fault::Truncate { after: count as u64 };
        let proxy = server.proxy();
        let rule = proxy.set(Connections::All, Direction::ToClient, fault);
        let mut client = connect(&proxy);
        let received = receive(&mut client);
        assert_eq!(received.end, End::Fin, "{count}");
        assert_same(&received.bytes, &bytes[..count]);
        assert_same(&ping_pong(&mut client, &reports), b"still here");
        assert!(proxy.wait_until(|stats| stats.open == 0, PATIENCE));
        let stats = proxy.stats();
        assert_eq!(stats.to_client.read, LENGTH as u64);
        assert_eq!(stats.to_client.delivered, count as u64);
        assert_eq!(stats.connections[0].state, ConnectionState::Finished);
        assert_eq!(proxy.fired(), fired_once(rule, Direction::ToClient, fault, count));
    }
}

#[test]
fn a_truncated_upload_ends_cleanly_and_the_response_arrives() {
    let server = Server::echo();
    let proxy = server.proxy();
    proxy.set(Connections::All, Direction::ToServer, Fault::Truncate { after: 5 });
    let mut client = connect(&proxy);
    client.write_all(&pattern(10_000_000)).unwrap();
    let received = receive(&mut client);
    assert_eq!(received, Received { bytes: pattern(5), end: End::Fin });
}

#[test]
fn a_reset_is_passed_on_behind_a_truncated_stream() {
    let (server, reports) = Server::sink();
    let proxy = server.proxy();
    proxy.set(Connections::All, Direction::ToClient, Fault::Truncate { after: 0 });
    let mut client = connect(&proxy);
    assert_eq!(receive(&mut client).end, End::Fin);
    reset(client);
    assert_eq!(reports.recv().unwrap().end, End::Reset);
}

#[test]
fn a_cut_set_on_an_open_connection_takes_effect_at_its_offset_or_at_once() {
    let server = Server::echo();
    for (after, more) in [(150, 50), (100, 0), (50, 0), (0, 0)] {
        let proxy = server.proxy();
        let mut client = connect(&proxy);
        ping(&mut client, &[1; 100]);
        let fault = Fault::CutHard { after };
        proxy.set(Connections::All, Direction::ToClient, fault);
        // If the offset has been reached already, the cut takes effect before anything is sent.
        let sent = if more > 0 { write(&client, &[2; 100]) } else { None };
        let received = receive_after(sent, &mut client);
        assert_eq!(received, Received { bytes: vec![2; more], end: End::Reset }, "{after}");
    }
}

#[test]
fn a_cut_applies_to_bytes_already_in_flight() {
    let bytes = pattern(1000);
    for (fault, end) in [
        (Fault::CutHard { after: 300 }, End::Reset),
        (Fault::CutSoft { after: 300 }, End::Fin),
        (Fault::Truncate { after: 300 }, End::Fin),
    ] {
        let (server, _reports) = Server::quiet_source(bytes.clone());
        let proxy = server.proxy();
        let delay = Fault::delay(Duration::from_secs(3600));
        let delay = proxy.set(Connections::All, Direction::ToClient, delay);
        let mut client = connect(&proxy);
        assert!(proxy.wait_until(|stats| stats.to_client.read == 1000, PATIENCE));
        proxy.set(Connections::All, Direction::ToClient, fault);
        proxy.lift(delay);
        let received = receive(&mut client);
        assert_eq!(received.end, end, "{fault:?}");
        assert_same(&received.bytes, &bytes[..300]);
    }
}

#[test]
fn faults_apply_only_to_the_selected_connections() {
    let (server, _reports) = Server::quiet_source(pattern(100));
    let cut = |after| Fault::CutHard { after };
    let proxy = FaultProxy::to(server.address)
        .set(Connections::Nth(2), Direction::ToClient, cut(20))
        .set(Connections::From(4), Direction::ToClient, cut(40))
        .start()
        .unwrap();
    let mut clients = Vec::new();
    for whole in [true, false, true, false, false] {
        let mut client = connect(&proxy);
        let mut bytes = vec![0; 100];
        assert_eq!(client.read_exact(&mut bytes).is_ok(), whole);
        clients.push(client);
    }
    let cut: Vec<_> = proxy.fired().iter().map(|fired| fired.connection).collect();
    assert_eq!(cut, [2, 4, 5]);
    assert_eq!(proxy.stats().open, 2);
}

#[test]
fn of_several_cuts_the_one_at_the_lowest_offset_fires() {
    let (server, _reports) = Server::quiet_source(pattern(100));
    let proxy = server.proxy();
    proxy.set(Connections::All, Direction::ToClient, Fault::CutHard { after: 60 });
    let first = proxy.set(Connections::All, Direction::ToClient, Fault::Truncate { after: 30 });
    let received = receive(&mut connect(&proxy));
    assert_eq!(received, Received { bytes: pattern(30), end: End::Fin });
    assert_eq!(proxy.fired().len(), 1);
    assert_eq!(proxy.fired()[0].rule, first);
}

#[test]
fn cut_all_resets_every_connection_and_later_ones_work() {
    let server = Server::echo();
    let proxy = server.proxy();
    // There are no connections yet.
    proxy.cut_all();
    let mut clients: Vec<_> = (0..5).map(|_| connect(&proxy)).collect();
    for client in &mut clients {
        ping(client, b"alive");
    }
    proxy.cut_all();
    assert_eq!(proxy.stats().open, 0);
    for client in &mut clients {
        assert_eq!(receive(client), Received { bytes: Vec::new(), end: End::Reset });
    }
    assert_eq!(exchange(&proxy, b"again").bytes, b"again");
}

#[test]
fn cut_all_resets_a_client_that_has_just_connected() {
    let server = Server::echo();
    let proxy = server.proxy();
    for _ in 0..20 {
        let mut client = connect(&proxy);
        proxy.cut_all();
        assert_eq!(receive(&mut client).end, End::Reset);
    }
}
