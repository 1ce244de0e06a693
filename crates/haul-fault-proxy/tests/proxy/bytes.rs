//! Faults that change, discard or hold back bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy, Injected};

use crate::peers::*;

const LENGTH: usize = 200_000;

/// The bytes that an echo server returns.
fn echoed(proxy: &FaultProxy, bytes: &[u8]) -> Vec<u8> {
    let received = exchange(proxy, bytes);
    assert_eq!(received.end, End::Fin);
    received.bytes
}

#[test]
fn a_flip_changes_one_byte_and_no_other() {
    let bytes = pattern(LENGTH);
    let server = Server::echo();
    for direction in Direction::BOTH {
        for at in [0, 1, 777, 65_535, 65_536, LENGTH - 1, LENGTH, LENGTH + 1] {
            let proxy = server.proxy();
            let fault = Fault::Flip { at: at as u64, mask: 0x81 };
            let rule = proxy.set(Connections::All, direction, fault);
            let mut wanted = bytes.clone();
            if let Some(byte) = wanted.get_mut(at) {
                *byte ^= 0x81;
            }
            assert_same(&echoed(&proxy, &bytes), &wanted);
            let fired = proxy.fired();
            assert_eq!(fired.len(), usize::from(at < LENGTH), "{at}");
            for fired in fired {
                assert_eq!((fired.rule, fired.connection, fired.times), (rule, 1, 1));
                assert_eq!(fired.what, Injected::Stream { direction, fault, at: at as u64 });
            }
        }
    }
}

#[test]
fn a_flip_that_changes_nothing_does_not_count() {
    let server = Server::echo();
    let proxy = server.proxy();
    for fault in [
        Fault::Flip { at: 0, mask: 0 },
        Fault::FlipRandomly { probability: 1.0, mask: 0 },
        Fault::FlipRandomly { probability: 0.0, mask: 1 },
    ] {
        proxy.set(Connections::All, Direction::ToServer, fault);
    }
    assert_eq!(echoed(&proxy, b"same"), b"same");
    assert_eq!(proxy.fired(), []);
}

#[test]
fn random_flips_depend_on_the_seed_and_not_on_how_bytes_arrive() {
    let zeros = vec![0; LENGTH];
    let flipped = |seed: u64, portion: usize| {
        let server = Server::echo();
        let proxy = FaultProxy::to(server.address)
            .seed(seed)
            .set(
                Connections::All,
                Direction::ToClient,
                Fault::FlipRandomly { probability: 0.01, mask: 1 },
            )
            .start()
            .unwrap();
        let mut client = connect(&proxy);
        let mut response = Vec::new();
        for part in zeros.chunks(portion) {
            response.extend(ping(&mut client, part));
        }
        let fired = proxy.fired();
        assert_eq!(fired[0].times, response.iter().map(|byte| u64::from(*byte)).sum::<u64>());
        response
    };
    let response = flipped(1, 10_000);
    let count = response.iter().filter(|byte| **byte == 1).count();
    assert!((1_500..2_500).contains(&count), "{count} flips, about 2000 are expected");
    assert_same(&flipped(1, 7_001), &response);
    assert_ne!(flipped(2, 10_000), response);
}

#[test]
fn a_flip_probability_of_one_changes_every_byte() {
    let server = Server::echo();
    let proxy = server.proxy();
    let always = Fault::FlipRandomly { probability: 1.0, mask: 0x20 };
    proxy.set(Connections::All, Direction::ToServer, always);
    assert_eq!(echoed(&proxy, b"Shout"), b"sHOUT");
}

#[test]
fn discarded_bytes_are_lost_and_the_end_of_the_stream_arrives() {
    let bytes = pattern(LENGTH);
    let server = Server::echo();
    for from in [0, 1, 65_536, 100_000, LENGTH, LENGTH + 1] {
        let proxy = server.proxy();
        let fault = Fault::Discard { from: from as u64 };
        proxy.set(Connections::All, Direction::ToServer, fault);
        assert_same(&echoed(&proxy, &bytes), &bytes[..from.min(LENGTH)]);
        let stats = proxy.stats();
        assert_eq!(stats.to_server.read, LENGTH as u64);
        assert_eq!(stats.to_server.delivered, from.min(LENGTH) as u64);
        assert_eq!(stats.fired.len(), usize::from(from <= LENGTH));
    }
}

#[test]
fn lifting_a_discard_leaves_a_gap_in_the_stream() {
    let server = Server::echo();
    let proxy = server.proxy();
    let discard = proxy.set(Connections::All, Direction::ToServer, Fault::Discard { from: 3 });
    let mut client = connect(&proxy);
    client.write_all(b"abcdef").unwrap();
    client.read_exact(&mut [0; 3]).unwrap();
    assert!(proxy.wait_until(|stats| stats.to_server.read == 6, PATIENCE));
    // Bytes are discarded as they leave the proxy, in the same step in which they are read.
    proxy.lift(discard);
    assert_eq!(ping(&mut client, b"ghi"), b"ghi");
}

#[test]
fn a_blackhole_holds_everything_back_from_an_offset_until_it_is_lifted() {
    let bytes = pattern(LENGTH);
    for from in [0, 1, 65_536, 100_000, LENGTH] {
        let (server, reports) = Server::source(bytes.clone());
        let proxy = server.proxy();
        let fault = Fault::Blackhole { from: from as u64 };
        let hole = proxy.set(Connections::All, Direction::ToClient, fault);
        let mut client = connect(&proxy);
        let before = receive_briefly(&mut client);
        assert_eq!(before.end, End::Timeout, "{from}");
        assert_same(&before.bytes, &bytes[..from]);
        // The bytes behind that offset are not even read, and the other direction works.
        assert_eq!(proxy.stats().to_client.read, from as u64);
        send(&client, b"hello?");
        assert_eq!(reports.recv().unwrap().bytes, b"hello?");
        assert!(proxy.stats().has_fired(hole));
        proxy.lift(hole);
        let after = receive(&mut client);
        assert_eq!(after.end, End::Fin);
        assert_same(&after.bytes, &bytes[from..]);
    }
}

#[test]
fn a_blackhole_beyond_the_end_has_no_effect() {
    let server = Server::echo();
    let proxy = server.proxy();
    proxy.set(Connections::All, Direction::ToServer, Fault::Blackhole { from: 6 });
    assert_eq!(echoed(&proxy, b"hello"), b"hello");
    assert_eq!(proxy.fired(), []);
}

#[test]
fn a_blackhole_in_both_directions_starts_at_once_and_hides_ends_and_resets() {
    type Leave = fn(TcpStream);
    let leave: [(Leave, End); 2] = [(drop, End::Fin), (reset, End::Reset)];
    for (leave, end) in leave {
        let (server, reports) = Server::reporting(|mut socket| {
            let writer = socket.try_clone().unwrap();
            let mut bytes = [0; 4];
            socket.read_exact(&mut bytes).unwrap();
            (&writer).write_all(&bytes).unwrap();
            receive(&mut socket)
        });
        let proxy = server.proxy();
        let mut client = connect(&proxy);
        ping(&mut client, b"ping");
        for direction in Direction::BOTH {
            proxy.set(Connections::All, direction, Fault::Blackhole { from: 0 });
        }
        client.write_all(b"lost?").unwrap();
        assert_eq!(receive_briefly(&mut client), Received { bytes: Vec::new(), end: End::Timeout });
        assert_eq!(proxy.stats().to_server.read, 4);
        leave(client);
        std::thread::sleep(MOMENT);
        assert!(reports.try_recv().is_err());
        assert_eq!(proxy.stats().open, 1);
        proxy.clear();
        let received = reports.recv().unwrap();
        assert_eq!(received.end, end);
        // A reset may discard bytes that were not read yet.
        assert!(received.bytes == b"lost?" || end == End::Reset, "{received:?}");
    }
}

#[test]
fn a_blackhole_holds_back_bytes_already_in_flight() {
    let bytes = pattern(1000);
    let (server, _reports) = Server::source(bytes.clone());
    let proxy = server.proxy();
    let delay = Fault::delay(Duration::from_secs(3600));
    let delay = proxy.set(Connections::All, Direction::ToClient, delay);
    let mut client = connect(&proxy);
    assert!(proxy.wait_until(|stats| stats.to_client.read == 1000, PATIENCE));
    proxy.set(Connections::All, Direction::ToClient, Fault::Blackhole { from: 300 });
    proxy.lift(delay);
    let received = receive_briefly(&mut client);
    assert_eq!(received.end, End::Timeout);
    assert_same(&received.bytes, &bytes[..300]);
    proxy.clear();
    assert_same(&receive(&mut client).bytes, &bytes[300..]);
}

#[test]
fn several_faults_apply_to_one_stream() {
    let bytes = pattern(LENGTH);
    let (server, _reports) = Server::quiet_source(bytes.clone());
    let proxy = FaultProxy::to(server.address)
        .set(Connections::All, Direction::ToClient, Fault::delay(Duration::from_millis(20)))
        .set(Connections::All, Direction::ToClient, Fault::Rate(2_000_000))
        .set(Connections::All, Direction::ToClient, Fault::Flip { at: 99_999, mask: 255 })
        .set(Connections::All, Direction::ToClient, Fault::Flip { at: 100_000, mask: 255 })
        .set(Connections::All, Direction::ToClient, Fault::CutHard { after: 100_000 })
        .start()
        .unwrap();
    let mut client = connect(&proxy);
    client.shutdown(Shutdown::Write).unwrap();
    let received = receive(&mut client);
    let mut wanted = bytes[..100_000].to_vec();
    wanted[99_999] ^= 255;
    assert_eq!(received.end, End::Reset);
    assert_same(&received.bytes, &wanted);
    assert_eq!(proxy.fired().len(), 4);
}
