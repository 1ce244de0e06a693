//! Rates: bytes take as long as on a link of that bandwidth.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};

use crate::peers::*;

#[test]
fn bytes_arrive_no_faster_than_the_rate() {
    for (direction, count, rate) in [
        (Direction::ToServer, 1_000_000_u64, 4_000_000),
        (Direction::ToClient, 1_000_000, 4_000_000),
        (Direction::ToClient, 150, 1_000),
        (Direction::ToServer, 1, 10),
    ] {
        let server = Server::echo();
        let proxy = FaultProxy::to(server.address)
            .set(Connections::All, direction, Fault::Rate(rate))
            .start()
            .unwrap();
        let bytes = pattern(count as usize);
        let start = Instant::now();
        let mut client = connect(&proxy);
        let mut reader = client.try_clone().unwrap();
        let reading = thread::spawn(move || receive(&mut reader));
        client.write_all(&bytes).unwrap();
        send(&client, &[]);
        assert_same(&reading.join().unwrap().bytes, &bytes);
        let least = Duration::from_secs_f64(count as f64 / rate as f64);
        assert!(start.elapsed() >= least, "{:?} for {least:?}", start.elapsed());
        assert_eq!(proxy.fired().len(), 1);
    }
}

#[test]
fn a_shared_rate_is_shared_by_all_connections_of_its_rule() {
    let server = Server::echo();
    let proxy = server.proxy();
    // Alone, each of the four connections would take an eighth of a second.
    proxy.set(Connections::All, Direction::ToClient, Fault::SharedRate(1_000_000));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let bytes = pattern(125_000);
                assert_same(&exchange(&proxy, &bytes).bytes, &bytes);
            });
        }
    });
    assert!(start.elapsed() >= Duration::from_millis(500));
    assert_eq!(proxy.fired().len(), 4);
}

#[test]
fn a_rate_of_one_connection_leaves_others_alone() {
    let server = Server::echo();
    let proxy = server.proxy();
    proxy.set(Connections::Nth(1), Direction::ToServer, Fault::Rate(1));
    let mut slow = connect(&proxy);
    slow.write_all(&pattern(100_000)).unwrap();
    // At the rate of the first connection this would take eleven days.
    let bytes = pattern(1_000_000);
    let mut fast = connect(&proxy);
    for part in bytes.chunks(50_000) {
        assert_same(&ping(&mut fast, part), part);
    }
    assert!(proxy.stats().connections[0].to_server.delivered < 1000);
}

#[test]
fn a_slow_link_reads_hardly_more_than_it_passes_on() {
    let (server, _reports) = Server::sink();
    let proxy = server.proxy();
    proxy.set(Connections::All, Direction::ToServer, Fault::Rate(100_000));
    let start = Instant::now();
    let mut client = connect(&proxy);
    client.write_all(&pattern(200_000)).unwrap();
    assert!(proxy.wait_until(|stats| stats.to_server.delivered >= 10_000, PATIENCE));
    let (read, passed) = (proxy.stats().to_server.read as f64, start.elapsed().as_secs_f64());
    // 20 ms ahead, and a portion.
    assert!(read <= 100_000.0 * (passed + 0.02) + 500.0, "{read} bytes in {passed} s");
}

#[test]
fn a_rate_can_be_set_and_lifted_while_bytes_flow() {
    let server = Server::echo();
    let proxy = server.proxy();
    let mut client = connect(&proxy);
    ping(&mut client, b"quick");
    for fault in [Fault::Rate(100), Fault::SharedRate(100), Fault::Rate(0), Fault::SharedRate(0)] {
        let rate = proxy.set(Connections::All, Direction::ToServer, fault);
        let before = proxy.stats().to_server.delivered;
        // No more than the system's buffers hold.
        client.write_all(&pattern(100_000)).unwrap();
        thread::sleep(MOMENT);
        assert!(proxy.stats().to_server.delivered - before < 10_000, "{fault:?}");
        proxy.lift(rate);
        let mut response = vec![0; 100_000];
        client.read_exact(&mut response).unwrap();
        assert_same(&response, &pattern(100_000));
    }
}
